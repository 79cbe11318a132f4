"""Steps in the SQNR of a history: the run from which on a row has another level, or none. Pure.

A series is one row (case, point, output) on one platform, pinned or not, over time. Its measured values are cut into
segments of equal level with PELT (Killick, Fearnhead and Eckley 2012) under the squared error, as ruptures has it: the
segmentation that makes (squared deviations from the segments' means) + penalty x (number of cuts) least.

**The penalty is allowed_db^2 / 4.** Let k runs lie at levels of which each differs from the next by over d. Whatever
mean m they are given, two neighbours deviate from it by (x - m)^2 + (y - m)^2 >= d^2 / 2 together, so all k by at least
(k - 1) d^2 / 4; several runs at a level only deviate more. Cutting them all apart costs k - 1 penalties. So with
d > allowed_db no best segment spans two such levels: a drop that the gate calls one is found, be it of the last run
alone (gain d^2 (n - 1) / n against one penalty), or of one run between good ones (two cuts).

Long segments are cut apart by smaller differences too. So afterwards neighbouring segments are joined, the closest
first, until all that are left differ by more than allowed_db in the mean: what the gate allows is no step, and a slow
drift is one where it adds up to more.

Failures take no part in this. Where a row ceases to have an SQNR, and where it has one again, the level told is that of
the segment beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import extra
from harness.environment import STACK
from harness.history import KEY
from harness.records import Case

if TYPE_CHECKING:
    import pandas as pd

IGNORE_ABOVE_DB = 80.0
"""Between two levels above this a difference is rounding, as in the judgement."""
SERIES = (*KEY, "platform", "pinned")
"""The columns of a history that tell its series apart."""
_LEAST_PENALTY = 1e-12

Allowance = Callable[[tuple[str, ...]], float]
SeriesKey = tuple[str | bool, ...]
"""What a series has in the columns `SERIES`."""


class StepKind(StrEnum):
    """What happened to the row: less or more SQNR, or none any more (a failed stage, NaN, ...), or again."""

    FAILED = "failed"
    DROP = "drop"
    RISE = "rise"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a row: `run` is the first with it, `before` the last without.

    `old_db` and `new_db` are the levels of the row on either side: the mean SQNR of the segment that the nearest
    measured run belongs to; None on the side that has none. `status` is that of `run`. `stack_changes` are the packages
    whose versions differ between `before` and `run`, such as `torchao 0.17.0 -> 0.18.0`.
    """

    case: Case
    point: str
    output: str
    kind: StepKind
    run: str
    run_id: str
    started: datetime
    before: str
    old_db: float | None
    new_db: float | None
    status: str
    stack_changes: tuple[str, ...]
    platform: str
    pinned: bool

    @property
    def series(self) -> SeriesKey:
        """The series it is a step of."""
        return (*astuple(self.case), self.point, self.output, self.platform, self.pinned)

    @property
    def change_db(self) -> float | None:
        """From the old level to the new; negative is worse."""
        return None if self.old_db is None or self.new_db is None else self.new_db - self.old_db


def find_steps(frame: pd.DataFrame, allowed_db: float | Allowance = 0.5) -> list[Step]:
    """All steps in a history (`harness.history.read`), worst first: failed, drops, rises, recovered.

    `allowed_db` is what a level may change without being a step: a number, or a function of a row's key (model, size,
    weights, flow, variant, point, output). Raises `ValueError` if it is negative or NaN, `UsageError` without ruptures.
    """
    allowance: Allowance = allowed_db if callable(allowed_db) else lambda _key: allowed_db
    steps = [step for series in _all_series(frame) for step in series.steps(allowance)]
    return sorted(steps, key=_worst_first)


def _worst_first(step: Step) -> tuple[Any, ...]:
    place = (step.case, step.point, step.output, step.platform, step.pinned)
    when = (-step.started.timestamp(), step.run, step.run_id)
    return (list(StepKind).index(step.kind), step.change_db or 0.0, *when, place)


@dataclass(frozen=True, slots=True)
class _Series:
    """One series, by its positions `first` to `end` in the columns of a history in order of series and time."""

    columns: dict[str, np.ndarray[Any, Any]]
    first: int
    measured: np.ndarray[Any, Any]
    """Positions of the runs that have an SQNR."""
    end: int

    def steps(self, allowance: Allowance) -> Iterator[Step]:
        """Where the row ceased to have an SQNR or has one again, and where the level changed."""
        if len(self.measured):
            cuts, means = self._levels(allowance)
            yield from self._failures(cuts, means)
            yield from self._changes(cuts, means)

    def _levels(self, allowance: Allowance) -> tuple[list[int], list[float]]:
        """As `levels`, of the runs that have an SQNR: one at least."""
        values = self.columns["sqnr_db"][self.measured]
        one: tuple[list[int], list[float]] = ([], [float(values.mean())])
        if values.max() == values.min():
            return one
        allowed = allowance(tuple(self.columns[name][self.first] for name in KEY))
        if not allowed >= 0:
            raise ValueError(f"allowed_db is {allowed}: at least 0 is expected")
        return levels(values, allowed) if values.max() - values.min() > allowed else one

    def _failures(self, cuts: list[int], means: list[float]) -> Iterator[Step]:
        has = np.isin(np.arange(self.first, self.end), self.measured)
        for at in (self.first + 1 + np.flatnonzero(has[1:] != has[:-1])).tolist():
            ceased = has[at - 1 - self.first]
            nearest = int(np.searchsorted(self.measured, at - 1 if ceased else at))
            level = means[bisect_right(cuts, nearest)]
            if ceased:
                yield self._step(StepKind.FAILED, at - 1, at, level, None)
            else:
                yield self._step(StepKind.RECOVERED, at - 1, at, None, level)

    def _changes(self, cuts: list[int], means: list[float]) -> Iterator[Step]:
        for cut, (old, new) in zip(cuts, pairwise(means), strict=True):
            if min(old, new) <= IGNORE_ABOVE_DB:
                kind = StepKind.DROP if new < old else StepKind.RISE
                yield self._step(kind, self.measured[cut - 1], self.measured[cut], old, new)

    def _step(self, kind: StepKind, before: int, at: int, old: float | None, new: float | None) -> Step:
        cell = {name: column[at] for name, column in self.columns.items()}
        then = {package: self.columns[package][before] for package in STACK}
        return Step(
            Case(*(cell[name] for name in KEY[:5])),
            cell["point"],
            cell["output"],
            kind,
            cell["run"],
            cell["run_id"],
            cell["started"].to_pydatetime(),
            self.columns["run"][before],
            old,
            new,
            cell["status"],
            stack_changes(then, cell),
            cell["platform"],
            bool(cell["pinned"]),
        )


def stack_changes(then: dict[str, str], now: dict[str, str]) -> tuple[str, ...]:
    """The packages whose version is another one now, old -> new."""
    return tuple(
        f"{package} {then[package] or 'not installed'} -> {now[package] or 'not installed'}"
        for package in STACK
        if then[package] != now[package]
    )


def levels(values: np.ndarray[Any, Any], allowed_db: float) -> tuple[list[int], list[float]]:
    """Where the level of at least two values in dB changes by more than allowed, and the mean of each segment."""
    detection = extra.load("the history", "ruptures").KernelCPD(kernel="linear", min_size=1)
    # Taken from the middle, so that the sums of squares inside lose no digits.
    found = detection.fit_predict(values - np.median(values), pen=max(allowed_db**2 / 4, _LEAST_PENALTY))
    bounds = [0, *(int(bound) for bound in found)]
    while True:
        means = np.add.reduceat(values, bounds[:-1]) / np.diff(bounds)
        changes = np.abs(np.diff(means))
        if not len(changes) or changes.min() > allowed_db:
            return bounds[1:-1], means.tolist()
        del bounds[int(changes.argmin()) + 1]


def _all_series(frame: pd.DataFrame) -> Iterator[_Series]:
    if frame.empty:
        return
    series = frame.groupby(list(SERIES), sort=False, dropna=False).ngroup()
    ordered = frame.assign(_series=series).sort_values(["_series", "started", "run", "run_id"])
    names = (*SERIES, "run", "run_id", "started", "status", *STACK)
    columns = {name: ordered[name].to_numpy(dtype=object) for name in names}
    columns["sqnr_db"] = sqnr = ordered["sqnr_db"].to_numpy(dtype=float, na_value=np.nan)
    bounds = np.flatnonzero(np.diff(ordered["_series"], prepend=-1, append=len(ordered))).tolist()
    measured = np.flatnonzero(np.isfinite(sqnr))
    places = np.searchsorted(measured, bounds)
    for index, (first, end) in enumerate(pairwise(bounds)):
        yield _Series(columns, first, measured[places[index] : places[index + 1]], end)
