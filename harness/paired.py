"""Two runs sample by sample: what a sum over the evaluation set hides. Without torch; never prints or writes.

Each sample is its own control: what makes it hard is in both runs, so the difference of its two SQNRs shows a change
far smaller than the spread between samples, and one sample that collapsed shows although hundreds did not.

**When a sample collapsed.** A drop alone says little: where int8 codes flip, single samples move by 10 dB in both
directions when only the instruction set changes, and the sum over the set hardly does (docs/noise.md). So three things
must hold, all of which hold for a sample that a defect hit and together for none that noise did:

1. it fell by more than is allowed (`sqnr_min_drop_db`);
2. it is now by more than that below the level that 99 in 100 samples of the base had, however bad the worst one was;
3. it fell by more than that beyond twice as far as samples rose: noise is even-handed. The largest rise counts, but of
   100 samples or more the one in 100 that rose furthest are passed over, and a rise above 11 dB counts as 11, which is
   as far as noise was ever seen to move a sample: one that was repaired must not hide another that broke. Rises are
   counted from the median where that is a gain, so that what all gained is none, and falls from 0, so that a collapse
   of half of the set is no measure of itself.

Levels above `ignore_above_db` count as that: an exact sample has 160 dB by convention. One or two samples have no usual
level and no even hand; there one collapsed if it is by more than is allowed below the worst that the base had, which
`sqnr_min_db` then says too.
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
"""A drop up to this many times the usual largest rise, and the allowance, is taken for noise."""
NOISE_AT_MOST_DB = 11.0
"""No rise counts as more, dB: the furthest that another instruction set moved a sample is 10.9 (docs/noise.md)."""
_RARE = 100
"""One in so many samples may have been worse than the usual level, or have risen further than noise made others."""
_FEW = 3
"""Fewer samples than these have no usual level."""
_SUMS_AGREE_DB = 1e-8
"""A row's SQNR is that of its samples to within this, dB: another order of a million float64 terms is 4e-10."""
_NAMED = 3
"""So many outputs are named in a note."""
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

    `samples` have an SQNR in both runs, and `moved` of them not the same; `left_out` more have none in one of the runs,
    as there is noise and no signal. `change_db` is that of `sqnr_db` with its
    95 % paired bootstrap interval; either is None where it is undefined. `collapsed` are in the order of their deltas,
    the worst first, and `allowed_db` is how far a sample may fall.
    """

    row: OutputRow
    samples: int
    left_out: int
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
    with noise and no signal has no SQNR and is left out, but for the sums of all. ValueError for another number.
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
    fallen = _collapsed(before, after, tolerance)
    samples = [
        Sample(int(known[at]), float(before[at]), float(after[at])) for at in order if at == order[0] or fallen[at]
    ]
    old, new = _level(base), _level(head)
    return Paired(
        row,
        len(deltas),
        base.shape[1] - len(deltas),
        int(np.count_nonzero(deltas)),
        None if old is None or new is None else new - old,
        paired_interval_db(base=base, head=head),
        float(np.median(deltas)),
        samples[0],
        tuple(samples if fallen[order[0]] else samples[1:]),
        tolerance.sqnr_min_drop_db,
    )


def _collapsed(before: Array, after: Array, tolerance: Tolerance) -> NDArray[np.bool_]:
    """Which samples collapsed, as the module says; SQNR of at least one sample in both runs, dB."""
    count, allowed = len(before), tolerance.sqnr_min_drop_db
    before, after = (np.minimum(side, tolerance.ignore_above_db) for side in (before, after))
    deltas, levels = after - before, np.sort(before)
    if count < _FEW:
        few: NDArray[np.bool_] = after < levels[0] - allowed
        return few
    usual = levels[max(1, count // _RARE)]
    rises = np.sort(deltas - max(0.0, float(np.median(deltas))))
    rise = min(NOISE_AT_MOST_DB, max(0.0, float(rises[-1 - count // _RARE])))
    mask: NDArray[np.bool_] = (deltas < -allowed) & (after < usual - allowed) & (deltas < -LIKE_NOISE * rise - allowed)
    return mask


def pairs(
    base: Run,
    head: Run,
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    tolerance_for: Callable[[Row], Tolerance],
) -> tuple[list[Paired], list[str]]:
    """All outputs whose samples moved, the one with the deepest drop first, and notes on what could not be paired.

    `before` and `after` are the sums of both runs, as `harness.samples.read` gives them. Samples are not paired where
    the runs say that they evaluated other data, nor where a sum is not that of the row: then one of the files is not
    what was measured.
    """
    old_rows = {row.key: row for row in base.outputs}
    found, other, lacking, unknown = [], 0, 0, 0
    unlike: set[str] = set()
    wrong: dict[str, list[str]] = {}
    for row in head.outputs:
        name, old = name_of(row.key), old_rows.get(row.key)
        if old is None or row.sqnr_db is None:
            continue
        if _other_data(base, head, row):
            unlike.add(_subject(row))
        elif name not in before or name not in after:
            lacking += 1
        elif disagree := [
            (run.name, f"{name} ({_said(_level(sums))} dB, its row {_said(side.sqnr_db)})")
            for run, side, sums in ((base, old, before[name]), (head, row, after[name]))
            if not _agree(side.sqnr_db, _level(sums))
        ]:
            for run_name, what in disagree:
                wrong.setdefault(run_name, []).append(what)
        elif before[name].shape != after[name].shape:
            other += 1
        else:
            unknown += _moved_without_level(before[name], after[name])
            if (one := pair(row, tolerance_for(row), base=before[name], head=after[name])) is not None:
                found.append(one)
    found.sort(key=lambda one: (one.worst.delta_db, one.row.key))
    notes = [
        f"samples of {run_name} do not add up to outputs.csv and are not paired: {'; '.join(names[:_NAMED])}"
        f"{f'; and {len(names) - _NAMED} more' if len(names) > _NAMED else ''}: measure again"
        for run_name, names in wrong.items()
    ]
    if unlike:
        notes.append(
            f"evaluation data are not the same in both runs: samples are not paired of {', '.join(sorted(unlike))}"
        )
    if other:
        notes.append(f"{other} outputs have another number of samples and are not paired")
    if lacking:
        notes.append(f"{lacking} outputs have no samples in one of the runs")
    if unknown:
        notes.append(
            f"{unknown} outputs have moved samples with noise and no signal: without an SQNR they are not paired"
        )
    return found, notes


def _moved_without_level(base: Array, head: Array) -> bool:
    """Whether a sample that `pair` leaves out is not the same in both runs."""
    unknown = np.isnan(levels_db(base)) | np.isnan(levels_db(head))
    return not np.array_equal(base[:, unknown], head[:, unknown])


def _subject(row: OutputRow) -> str:
    """By which name a run keeps the hashes of a row's batches."""
    return f"{row.model}/{row.size}/{row.weights}"


def _other_data(base: Run, head: Run, row: OutputRow) -> bool:
    """Whether both runs know which batches they evaluated, and they are not the same."""
    old, new = (run.input_hashes.get(_subject(row), {}).get("evaluation") for run in (base, head))
    return bool(old and new and old != new)


def _level(sums: Array) -> float | None:
    """SQNR of (2, samples) sums together, dB."""
    return db(float(sums[0].sum()), float(sums[1].sum()))


def _agree(row_db: float | None, level: float | None) -> bool:
    if row_db is None or level is None:
        return row_db is level
    return abs(row_db - level) <= _SUMS_AGREE_DB


def _said(level: float | None) -> str:
    return "no" if level is None else f"{level:.9g}"


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
