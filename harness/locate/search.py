"""The smallest set of changes that explains a difference, by delta debugging with a budget. Pure.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002: here what is shrunk
is the set of candidates put right, and a set passes when it explains enough. Nothing is assumed of how they act
together. A ranking decides what is tried first, never what is found to be enough.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Found(Generic[T]):
    """A set that explains enough, in the ranking's order; `minimal` if it was seen that no member can be spared."""

    members: tuple[T, ...]
    minimal: bool


class Budget:
    """How many more sets may be tried."""

    def __init__(self, tries: int) -> None:
        self.left = tries

    def spend(self) -> bool:
        """Whether one more may be; it is then taken off."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


def smallest(ranked: Sequence[T], enough: Callable[[frozenset[T]], bool], budget: Budget) -> Found[T]:
    """A smallest set of `ranked` candidates that is `enough`; all of them together are taken to be.

    First the shortest run from the top that is enough: 1, 2, 4, ... and then by halves. The last of that run made the
    difference, so it is tried alone; else parts of the others are left out as long as the rest is enough: halves
    first, single ones last, the lowest ranked first.
    """
    *others, last = _prefix(list(ranked), enough, budget)
    if not others:
        return Found((last,), minimal=True)
    if not budget.spend():
        return Found((*others, last), minimal=False)
    if enough(frozenset({last})):
        return Found((last,), minimal=True)
    kept, whole = _shrink(others, lambda few: enough(few | {last}), budget)
    if not whole or not budget.spend():
        return Found((*kept, last), minimal=False)
    needed = not enough(frozenset(kept))  # it was when there were more
    return Found((*kept, last) if needed else tuple(kept), minimal=needed or len(kept) == 1)


def _prefix(ranked: list[T], enough: Callable[[frozenset[T]], bool], budget: Budget) -> list[T]:
    low, high = 0, 1  # of the lengths that are not enough the largest known, and one to try
    while high < len(ranked):
        if not budget.spend():
            return ranked
        if enough(frozenset(ranked[:high])):
            break
        low, high = high, 2 * high
    high = min(high, len(ranked))
    while high - low > 1 and budget.spend():
        middle = (low + high) // 2
        if enough(frozenset(ranked[:middle])):
            high = middle
        else:
            low = middle
    return ranked[:high]


def _shrink(members: list[T], enough: Callable[[frozenset[T]], bool], budget: Budget) -> tuple[list[T], bool]:
    """What is left of `members`, one at least, and whether each was seen to be needed before the budget was spent."""
    parts = 2
    while len(members) > 1:
        size = -(-len(members) // parts)
        for end in range(len(members), 0, -size):
            rest = members[: max(0, end - size)] + members[end:]
            if not budget.spend():
                return members, False
            if enough(frozenset(rest)):
                members, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(members), 2 * parts)
    return members, True
