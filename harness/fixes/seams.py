"""Replacing a piece of an upstream package for a while: the mechanics that every repair shares."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SeamMovedError(Exception):
    """The installed package has no longer the place that a repair replaces; the fix's state is then unknown."""


@contextmanager
def replaced(owner: Any, name: str, new: Any, parameters: tuple[str, ...] | None = None) -> Iterator[None]:
    """Put `new` in the place of `owner.name` (a module's or class's own attribute) until the context ends.

    `parameters` are the names of the arguments that the original must still take. Raises `SeamMovedError` if the
    attribute is gone or its arguments are others.
    """
    original = seam(owner, name, parameters)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, original)


def seam(owner: Any, name: str, parameters: tuple[str, ...] | None = None) -> Any:
    """`owner`'s own attribute `name` as it is stored (so that a static method stays one); raises `SeamMovedError`."""
    where = f"{getattr(owner, '__module__', '')}.{owner.__name__}".strip(".")
    if name not in vars(owner):
        raise SeamMovedError(f"{where} has no {name}")
    found = vars(owner)[name]
    if parameters is not None:
        actual = tuple(inspect.signature(getattr(owner, name)).parameters)
        if actual != parameters:
            raise SeamMovedError(f"{where}.{name} takes ({', '.join(actual)}), not ({', '.join(parameters)})")
    return found
