"""Two runs sample by sample: what a sum over the evaluation set hides. Without torch; never prints or writes.

Each sample is its own control: what makes it hard is in both runs, so the difference of its two SQNRs shows a change
far smaller than the spread between samples, and one sample that collapsed shows although hundreds did not.

**When a sample collapsed.** A drop alone says little: where int8 codes flip, single samples move by 10 dB in both
directions when only the instruction set changes, and the sum over the set hardly does (docs/noise.md). So three things
must hold, all of which hold for a sample that a defect hit and together for none that noise did:

1. it fell by more than is allowed (`sqnr_min_drop_db`);
2. it is now by more than that below the level that 99 in 100 samples of the base had, however bad the worst one was;
3. it fell more than twice as far as any sample rose, both counted from the median delta: noise is even-handed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.compare import exit_code
from harness.judge import Judgement
from harness.measure.bootstrap import Array, levels_db, paired_interval_db
from harness.measure.decibels import db
from harness.records import OutputRow, Row
from harness.samples import name_of
from harness.settings import Settings, Tolerance
from harness.store import Run
from harness.verdicts import WORST_FIRST, Finding, Outcome, Verdict

LIKE_NOISE = 2.0
"""A drop up to this many times the largest rise is taken for noise."""
_WORST_SHARE = 100
"""One in so many samples may be worse than the level below which a sample has collapsed."""
_JUDGED = (Outcome.OK, Outcome.IMPROVED, Outcome.REGRESSED)


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of the evaluation set, the first is 0, and its SQNR in both runs, dB."""

    index: int
    base_db: float
    head_db: float

    @property
    def delta_db(self) -> float:
        """Head minus base: negative is a loss."""
        return self.head_db - self.base_db


@dataclass(frozen=True, slots=True)
class Paired:
    """One output whose samples two runs measured differently; deltas are head minus base, dB, negative is a loss.

    `samples` have an SQNR in both runs, and `moved` of them not the same. `change_db` is that of `sqnr_db` with its
    95 % paired bootstrap interval; either is None where it is undefined. `collapsed` are in the order of their deltas,
    the worst first, and `allowed_db` is how far a sample may fall.
    """

    row: OutputRow
    samples: int
    moved: int
    change_db: float | None
    interval_db: tuple[float, float] | None
    median_db: float
    worst: Sample
    collapsed: tuple[Sample, ...]
    allowed_db: float


def pair(row: OutputRow, tolerance: Tolerance, *, base: Array, head: Array) -> Paired | None:
    """An output's samples in two runs, (2, samples) sums of signal and noise each; `row` is that of head.

    None where no sample moved. A sample above `ignore_above_db` in both runs did not: its difference is rounding. One
    without a signal in either has no SQNR and is left out. ValueError for another number of samples.
    """
    if base.shape != head.shape:
        raise ValueError(f"{base.shape[1]} samples cannot be paired with {head.shape[1]}")
    before, after = levels_db(base), levels_db(head)
    known = np.flatnonzero(np.isfinite(before) & np.isfinite(after))
    before, after = before[known], after[known]
    quiet = (before > tolerance.ignore_above_db) & (after > tolerance.ignore_above_db)
    deltas = np.where(quiet, 0.0, after - before)
    if not deltas.any():
        return None
    order = np.argsort(deltas, kind="stable")
    fallen = _collapsed(before, after, deltas, tolerance.sqnr_min_drop_db)
    samples = [
        Sample(int(known[at]), float(before[at]), float(after[at])) for at in order if at == order[0] or fallen[at]
    ]
    old, new = (db(float(sums[0].sum()), float(sums[1].sum())) for sums in (base, head))
    return Paired(
        row,
        len(deltas),
        int(np.count_nonzero(deltas)),
        None if old is None or new is None else new - old,
        paired_interval_db(base=base, head=head),
        float(np.median(deltas)),
        samples[0],
        tuple(samples) if fallen[order[0]] else (),
        tolerance.sqnr_min_drop_db,
    )


def _collapsed(before: Array, after: Array, deltas: Array, allowed: float) -> NDArray[np.bool_]:
    """Which samples collapsed, as the module says; levels and deltas in dB, one at least."""
    usual = np.sort(before)[min(len(before) - 1, max(1, len(before) // _WORST_SHARE))]
    middle = np.median(deltas)
    rise = deltas.max() - middle
    mask: NDArray[np.bool_] = (deltas < -allowed) & (after < usual - allowed) & (middle - deltas > LIKE_NOISE * rise)
    return mask


def pairs(
    base: Run,
    head: Run,
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    tolerance_for: Callable[[Row], Tolerance],
) -> tuple[list[Paired], list[str]]:
    """All outputs whose samples moved, the one with the deepest drop first, and notes on what could not be paired.

    `before` and `after` are the sums of both runs, as `harness.samples.read` gives them.
    """
    old_rows = {row.key for row in base.outputs}
    found, other, lacking = [], 0, 0
    for row in head.outputs:
        name = name_of(row.key)
        if row.key not in old_rows or row.sqnr_db is None:
            continue
        if name not in before or name not in after:
            lacking += 1
        elif before[name].shape != after[name].shape:
            other += 1
        elif (one := pair(row, tolerance_for(row), base=before[name], head=after[name])) is not None:
            found.append(one)
    found.sort(key=lambda one: (one.worst.delta_db, one.row.key))
    notes = [f"{other} outputs have another number of samples and are not paired"] if other else []
    return found, notes + ([f"{lacking} outputs have no samples in one of the runs"] if lacking else [])


def with_samples(judgement: Judgement, found: list[Paired], settings: Settings, today: datetime.date) -> Judgement:
    """A judgement in which an output with a collapsed sample has regressed, whatever its mean says.

    The finding is called `sample_17_db` for the 18th sample of the evaluation set, the worst of those that collapsed.
    """
    collapsed = {one.row.key: one for one in found if one.collapsed}
    verdicts = [
        _judged(verdict, collapsed[verdict.key], settings, today)
        if verdict.kind == "output" and verdict.key in collapsed and verdict.outcome in _JUDGED
        else verdict
        for verdict in judgement.verdicts
    ]
    verdicts.sort(key=lambda v: (WORST_FIRST.index(v.outcome), -v.loss_db, v.case, v.kind, v.label))
    return replace(judgement, verdicts=tuple(verdicts), exit_code=exit_code(verdicts))


def _judged(verdict: Verdict, one: Paired, settings: Settings, today: datetime.date) -> Verdict:
    sample = one.collapsed[0]
    finding = Finding(f"sample_{sample.index}_db", sample.base_db, sample.head_db, one.allowed_db)
    before = verdict.findings if verdict.outcome is Outcome.REGRESSED else ()
    waiver = settings.waiver_for(one.row, today)
    return replace(
        verdict,
        outcome=Outcome.REGRESSED,
        findings=(*before, finding),
        loss_db=max(verdict.loss_db, -sample.delta_db),
        waived=waiver.reason if waiver else "",
    )
