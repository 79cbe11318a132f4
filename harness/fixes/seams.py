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
    title = getattr(owner, "__name__", type(owner).__name__)
    where = f"{getattr(owner, '__module__', '')}.{title}".strip(".")
    if name not in getattr(owner, "__dict__", {}):
        raise SeamMovedError(f"{where} has no {name}")
    found = vars(owner)[name]
    if parameters is not None:
        try:
            actual = tuple(inspect.signature(getattr(owner, name)).parameters)
        except (TypeError, ValueError) as error:
            raise SeamMovedError(f"{where}.{name}: {error}") from None
        if actual != parameters:
            raise SeamMovedError(f"{where}.{name} takes ({', '.join(actual)}), not ({', '.join(parameters)})")
    return found
