"""Noise floors held against what really happened to the same rows on another machine. Pure: never prints or reads.

A row's floor is the standard deviation of a few jittered runs (`noise_db` of an output, `noise_rel` of range bounds).
If another instruction set is to a row what another jitter is, its change between two runs is a few floors; how many,
over all rows, is what `noise_multiple` has to allow. docs/noise.md has the figures and what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from harness.compare import Rows
from harness.records import Mode, OutputRow, QuantizerRow, Row
from harness.settings import Tolerance

MULTIPLES = (1, 2, 3, 4, 5, 10)
QUANTILES = (0.5, 0.9, 0.99, 1.0)
MOST_ROWS = 0.999
"""The share of rows that a multiple should hold if one row may be an accident."""


@dataclass(frozen=True, slots=True)
class Move:
    """What happened to one row between two runs, its noise floor, and what is allowed whatever the floor.

    In dB of an output's SQNR (negative is a loss), or of range bounds relative to the larger one; floor and `least` in
    the same unit.
    """

    row: Row
    change: float
    floor: float
    least: float
    multiple: float

    @property
    def floors(self) -> float:
        """The size of the change in units of the floor; infinite where a row without noise moved."""
        if self.change == 0:
            return 0.0
        return abs(self.change) / self.floor if self.floor else math.inf

    @property
    def needed(self) -> float:
        """The least multiple of the floor that allows the change: 0 where what is allowed anyhow does."""
        return 0.0 if abs(self.change) <= self.least else self.floors

    @property
    def allowed(self) -> float:
        """What the tolerance allows: `least`, or the multiple of the floor where that is more."""
        return max(self.least, self.multiple * self.floor)

    @property
    def by_floor(self) -> bool:
        """Whether the floor decides what is allowed."""
        return self.multiple * self.floor > self.least


@dataclass(frozen=True, slots=True)
class Moves:
    """All rows that two runs and the baseline have, by kind, and how many could not be compared.

    Rows of variants that share one measurement, as where a fix changed no bit, count once. `quiet` rows are above
    `ignore_above_db` on both sides, and `without_floor` have none in the baseline.
    """

    outputs: tuple[Move, ...]
    bounds: tuple[Move, ...]
    quiet: int
    without_floor: int


def moves(base: Rows, head: Rows, accepted: Rows, tolerance_for: Callable[[Row], Tolerance]) -> Moves:
    """Rows of `head` against those of `base`, with the floors of the accepted ones."""
    outputs: dict[object, Move] = {}
    quiet = bare = 0
    for key in sorted(base.outputs.keys() & head.outputs.keys()):
        old, new = base.outputs[key], head.outputs[key]
        if old.sqnr_db is None or new.sqnr_db is None:
            continue
        tolerance = tolerance_for(old)
        if min(old.sqnr_db, new.sqnr_db) > tolerance.ignore_above_db:
            quiet += 1
            continue
        known = accepted.outputs.get(key)
        if known is None or known.noise_db is None:
            bare += 1
            continue
        change = new.sqnr_db - old.sqnr_db
        move = Move(old, change, known.noise_db, tolerance.sqnr_drop_db, tolerance.noise_multiple)
        outputs.setdefault((_place(old), old.sqnr_db, new.sqnr_db, known.noise_db), move)
    bounds: dict[object, Move] = {}
    for key in sorted(base.quantizers.keys() & head.quantizers.keys()):
        before, after = base.quantizers[key], head.quantizers[key]
        known_bounds = accepted.quantizers.get(key)
        moved = _bound_change(before, after)
        if moved is None:
            continue
        if known_bounds is None or known_bounds.noise_rel is None:
            bare += 1
            continue
        tolerance = tolerance_for(before)
        least = tolerance.dynamic_bound_rel if before.mode == Mode.DYNAMIC else tolerance.bound_rel
        one = (_place(before), before.lo, before.hi, after.lo, after.hi, known_bounds.noise_rel)
        bounds.setdefault(one, Move(before, moved, known_bounds.noise_rel, least, tolerance.noise_multiple))
    return Moves(tuple(outputs.values()), tuple(bounds.values()), quiet, bare)


def _place(row: Row) -> tuple[str, ...]:
    """A row's key without the variant."""
    return (*row.key[:4], *row.key[5:])


def _bound_change(old: QuantizerRow, new: QuantizerRow) -> float | None:
    """The larger change of the two bounds, as `harness.compare` judges it; None without bounds on both sides."""
    if old.lo is None or old.hi is None or new.lo is None or new.hi is None:
        return None
    size = max(abs(old.lo), abs(old.hi))
    change = max(abs(new.lo - old.lo), abs(new.hi - old.hi))
    return change / size if size else math.inf if change else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """How far some rows moved, in floors; empty quantiles without rows.

    `quantiles` by share of rows, `beyond` the number of rows that moved more than so many floors. `needed` is the least
    multiple with which every row is within its allowance, `needed_by_most` that with which 99.9 % of them are.
    """

    rows: int
    moved: int
    quantiles: Mapping[float, float]
    beyond: Mapping[int, int]
    needed: float
    needed_by_most: float


def summary(some: Iterable[Move]) -> Summary:
    """Figures over rows."""
    rows = list(some)
    floors = sorted(move.floors for move in rows)
    needed = sorted(move.needed for move in rows)
    return Summary(
        len(rows),
        sum(1 for move in rows if move.change != 0),
        {share: _quantile(floors, share) for share in QUANTILES} if rows else {},
        {multiple: sum(1 for value in floors if not value <= multiple) for multiple in MULTIPLES},
        needed[-1] if rows else 0.0,
        _quantile(needed, MOST_ROWS) if rows else 0.0,
    )


def _quantile(ordered: list[float], share: float) -> float:
    """The least value that at least that share of values do not exceed: one of them, as two may be infinite."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def beyond_allowance(some: Iterable[Move]) -> list[Move]:
    """Rows that moved further than allowed, either way, the worst first."""
    return sorted((move for move in some if not abs(move.change) <= move.allowed), key=lambda m: -abs(m.change))


def is_output(move: Move) -> bool:
    """Whether a move is an output's, in dB."""
    return isinstance(move.row, OutputRow)
