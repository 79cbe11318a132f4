"""Fixes: known upstream defects with an in-process repair, each a variant that is measured beside `released`.

A fix comes from another package through the entry-point group `sqnr.fixes`, whose value is a `Fix` object.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import entry_points

from harness.errors import unknown_name
from harness.records import RELEASED, Stage

ENTRY_POINTS = "sqnr.fixes"


@dataclass(frozen=True, slots=True)
class Fix:
    """One upstream defect and its repair.

    `flows` are name patterns such as `x86-*`; `stage` is the earliest stage the repair touches: everything before it
    is shared with `released`. `repair()` returns a context manager that is undone on exit, also after an exception.
    """

    name: str
    link: str
    flows: tuple[str, ...]
    stage: Stage
    repair: Callable[[], AbstractContextManager[None]]

    def applies_to(self, flow: str) -> bool:
        """Whether a flow's variants include this fix."""
        return any(fnmatchcase(flow, pattern) for pattern in self.flows)


def installed() -> tuple[Fix, ...]:
    """All fixes known on this machine, by name."""
    return tuple(sorted((point.load() for point in entry_points(group=ENTRY_POINTS)), key=lambda fix: fix.name))


def variants(flow: str, fixes: tuple[Fix, ...]) -> list[str]:
    """`released`, each applicable fix alone, all together, and with three or more also all but one."""
    applicable = [fix.name for fix in fixes if fix.applies_to(flow)]
    chosen = [frozenset[str](), *(frozenset({name}) for name in applicable), frozenset(applicable)]
    if len(applicable) > 2:
        chosen += [frozenset(applicable) - {name} for name in applicable]
    return [variant_name(names) for names in dict.fromkeys(chosen)]


def variant_name(names: frozenset[str]) -> str:
    """`released` for no fix, else `+a+b` in alphabetical order: the order in which repairs are entered."""
    return "".join(f"+{name}" for name in sorted(names)) or RELEASED


def of_variant(variant: str, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes that a variant's name lists; raises `UsageError` for one that is not installed."""
    by_name = {fix.name: fix for fix in fixes}
    wanted = [] if variant == RELEASED else variant.removeprefix("+").split("+")
    for name in wanted:
        if name not in by_name:
            raise unknown_name("fix", name, by_name)
    return tuple(by_name[name] for name in wanted)
