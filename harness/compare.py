"""The judgement: a full outer join of measured and accepted rows. Pure: never prints, reads or writes.

Every comparison is written so that NaN fails.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from harness.errors import ExitCode
from harness.records import (
    FAILED,
    Case,
    Cause,
    FixState,
    Mode,
    OutputRow,
    Point,
    QuantizerRow,
    Role,
    Row,
    Status,
    released_of,
)
from harness.settings import Settings, Tolerance
from harness.verdicts import WORST_FIRST, Finding, Outcome, Verdict, always_fails, is_known_failure

_STRUCTURE = ("status", "role", "mode", "dtype", "granularity", "axis", "quant_min", "quant_max", "share_group")
_EXACT = (
    *("numel", "quantize_nodes", "dequantize_nodes", "fix_state"),
    *("int8_convs", "int8_linears", "float_convs", "float_linears", "delegated_nodes", "undelegated_nodes"),
)
_LOST = "the flow asks for a quantizer here, and the repaired graph has none"
_QUANTIZED_POINTS = (Point.CONVERTED, Point.LOWERED)


@dataclass(frozen=True, slots=True)
class Rows:
    """One side of a comparison, by key."""

    outputs: Mapping[tuple[str, ...], OutputRow]
    quantizers: Mapping[tuple[str, ...], QuantizerRow]


def compare(
    *,
    baseline: Rows,
    measured: Rows,
    in_scope: Callable[[Row], bool],
    settings: Settings,
    suite: str,
    today: datetime.date,
) -> list[Verdict]:
    """Verdicts on all rows of either side, worst first; baseline rows out of scope are left alone."""
    judged = []
    for verdict, row in _join(baseline, measured, in_scope, settings.tolerances(suite, today)):
        waiver = settings.waiver_for(row, today) if verdict.outcome is not Outcome.OK else None
        judged.append(replace(verdict, waived=waiver.reason) if waiver else verdict)
    return sorted(judged, key=lambda v: (WORST_FIRST.index(v.outcome), -v.loss_db, v.case, v.kind, v.label))


def _join(
    baseline: Rows, measured: Rows, in_scope: Callable[[Row], bool], tolerance_for: Callable[[Row], Tolerance]
) -> Iterator[tuple[Verdict, Row]]:
    repaired = _fully_repaired(baseline, measured)
    for key in sorted(baseline.outputs.keys() | measured.outputs.keys()):
        old, new = baseline.outputs.get(key), measured.outputs.get(key)
        row = new or old
        if row is not None and (new is not None or in_scope(row)):
            yield _judge_output(old, new, tolerance_for(row), (row.case, row.point) in repaired), row
    known_graphs = _known_graphs(measured) & _known_graphs(baseline)
    for key in sorted(baseline.quantizers.keys() | measured.quantizers.keys()):
        before, after = baseline.quantizers.get(key), measured.quantizers.get(key)
        quantizer = after or before
        if quantizer is not None and (after is not None or in_scope(quantizer)):
            both_known = (quantizer.case, quantizer.point) in known_graphs
            yield _judge_quantizer(before, after, tolerance_for(quantizer), both_known), quantizer


def _fully_repaired(*sides: Rows) -> set[tuple[Case, str]]:
    """Of a flow's variants that tell of their fixes at a point, the one with most, and the point.

    What is still to be mended may leave the others at noise, but not a fix that is at work only after the point.
    """
    fullest: dict[tuple[Case, str], Case] = {}
    told = {(row.case, row.point) for side in sides for row in side.outputs.values() if row.fix_state}
    for case, point in sorted(told):
        released = released_of(case)
        if case.variant.count("+") > fullest.get((released, point), released).variant.count("+"):
            fullest[released, point] = case
    return {(case, point) for (_, point), case in fullest.items()}


def _known_graphs(rows: Rows) -> set[tuple[Case, str]]:
    """(case, point) of graphs that could be run, whose set of quantizers is therefore known."""
    return {
        (row.case, row.point)
        for row in rows.outputs.values()
        if row.point in _QUANTIZED_POINTS and not row.status.startswith(FAILED)
    }


def _judge_output(old: OutputRow | None, new: OutputRow | None, tolerance: Tolerance, repaired: bool) -> Verdict:
    row = new or old
    assert row is not None
    verdict = Verdict(row.case, "output", row.point, row.output, Outcome.OK)
    if new is None:
        return replace(verdict, outcome=Outcome.MISSING)
    if new.status.startswith(FAILED):
        finding = Finding("status", old.status if old else None, new.status)
        failure = replace(verdict, outcome=Outcome.FAILED, findings=(finding,), error=new.error)
        return verdict if is_known_failure(old, new) else failure
    if always_fails(new):
        finding = Finding("status", old.status if old else None, new.status)
        return replace(verdict, outcome=Outcome.REGRESSED, findings=(finding,), error=new.error, loss_db=math.inf)
    broken = list(_broken_limits(old, new, tolerance, repaired))
    if broken:
        return replace(verdict, outcome=Outcome.REGRESSED, findings=tuple(broken), loss_db=_loss(broken))
    if old is None:
        return replace(verdict, outcome=Outcome.NEW)
    if old.status.startswith(FAILED):
        return replace(verdict, outcome=Outcome.IMPROVED, findings=(Finding("status", old.status, new.status),))
    return _judge_pair(old, new, tolerance, verdict)


def _broken_limits(old: OutputRow | None, new: OutputRow, tolerance: Tolerance, repaired: bool) -> Iterator[Finding]:
    """Limits that hold without a baseline: a control that is not float, a repaired output that is noise."""
    if new.point in (Point.FLOAT, Point.PREPARED):
        limit = tolerance.control_db
    elif repaired and new.fix_state == FixState.NEEDED and new.point in _QUANTIZED_POINTS:
        limit = tolerance.floor_db
    else:
        return
    level = -math.inf if new.status == Status.ZERO_SIGNAL else new.sqnr_db
    if level is not None and not level >= limit:
        yield Finding("sqnr_db", old.sqnr_db if old else None, new.sqnr_db, limit=limit)


def _judge_pair(old: OutputRow, new: OutputRow, tolerance: Tolerance, verdict: Verdict) -> Verdict:
    changed = list(_changed_control(old, new, tolerance))
    if changed:
        return replace(verdict, outcome=Outcome.CHANGED, findings=tuple(changed))
    allowed = max(tolerance.sqnr_drop_db, tolerance.noise_multiple * (old.noise_db or 0.0))
    drops = [
        *_drop("sqnr_db", old.sqnr_db, new.sqnr_db, allowed, tolerance.ignore_above_db),
        *_drop("sqnr_min_db", old.sqnr_min_db, new.sqnr_min_db, tolerance.sqnr_min_drop_db, tolerance.ignore_above_db),
        *_drop("task_metric", old.task_metric, new.task_metric, tolerance.task_metric, math.inf),
    ]
    # Without a signal there is no SQNR; the largest error is held to the same number of decibels.
    without_signal = old.sqnr_db is None and old.max_abs_err is not None
    if without_signal and not _rise_db(old.max_abs_err, new.max_abs_err) <= tolerance.sqnr_drop_db:
        drops.append(Finding("max_abs_err", old.max_abs_err, new.max_abs_err, tolerance.sqnr_drop_db))
    if drops:
        return replace(verdict, outcome=Outcome.REGRESSED, findings=tuple(drops), loss_db=_loss(drops))
    quiet = _both_above(old.sqnr_db, new.sqnr_db, tolerance.ignore_above_db)
    if old.sqnr_db is not None and new.sqnr_db is not None and not quiet and new.sqnr_db - old.sqnr_db > allowed:
        better = Finding("sqnr_db", old.sqnr_db, new.sqnr_db, allowed)
        return replace(verdict, outcome=Outcome.IMPROVED, findings=(better,), loss_db=old.sqnr_db - new.sqnr_db)
    return verdict


def _rise_db(old: float | None, new: float | None) -> float:
    """By how many dB an error grew; infinite from nothing, or when it is no longer known."""
    if new is None or (not old and new > 0):
        return math.inf
    return 20 * (math.log10(new) - math.log10(old)) if old and new else -math.inf


def _changed_control(old: OutputRow, new: OutputRow, tolerance: Tolerance) -> Iterator[Finding]:
    """What must stay as it is for two SQNRs to speak of the same thing."""
    if old.status != new.status and (old.sqnr_db is None) != (new.sqnr_db is None):
        yield Finding("status", old.status, new.status)
    for name in _EXACT:
        if getattr(old, name) != getattr(new, name):
            yield Finding(name, getattr(old, name), getattr(new, name))
    if new.point == Point.FLOAT and old.ref_rms is not None:
        moved = abs((new.ref_rms or 0.0) - old.ref_rms)
        if not moved <= tolerance.ref_rms_rel * old.ref_rms:
            yield Finding("ref_rms", old.ref_rms, new.ref_rms, tolerance.ref_rms_rel)


def _both_above(old: float | None, new: float | None, level: float) -> bool:
    return old is not None and new is not None and old > level and new > level


def _drop(name: str, old: float | None, new: float | None, allowed: float, ignore_above: float) -> Iterator[Finding]:
    if (old is None and new is None) or _both_above(old, new, ignore_above):
        return
    if old is None or new is None or not old - new <= allowed:
        yield Finding(name, old, new, allowed)


def _loss(findings: list[Finding]) -> float:
    """The largest drop in dB among findings, from the baseline or else the limit; infinite where a number is gone."""
    losses = []
    for item in findings:
        start = item.limit if item.old is None else item.old
        if item.field.endswith("_db") and start is not None:
            losses.append(math.inf if item.new is None else float(start) - float(item.new))
    return max(losses, default=0.0)


def _judge_quantizer(
    old: QuantizerRow | None, new: QuantizerRow | None, tolerance: Tolerance, both_known: bool
) -> Verdict:
    row = new or old
    assert row is not None
    verdict = Verdict(row.case, "quantizer", row.point, row.quantizer, Outcome.OK)
    if new is not None and always_fails(new):
        finding = Finding("status", old.status if old else None, new.status)
        why = _LOST if new.cause == Cause.UNQUANTIZED else "a scale that is not finite, or 0"
        return replace(verdict, outcome=Outcome.REGRESSED, findings=(finding,), error=why, loss_db=math.inf)
    if old is None or new is None:
        # In a case that both sides know, a quantizer on one side only is a change of structure.
        alone = Outcome.CHANGED if both_known else Outcome.NEW if old is None else Outcome.MISSING
        finding = Finding("status", old.status if old else None, new.status if new else None)
        return replace(verdict, outcome=alone, findings=(finding,))
    changed = [
        Finding(name, getattr(old, name), getattr(new, name))
        for name in _STRUCTURE
        if getattr(old, name) != getattr(new, name)
    ]
    changed += _moved_bounds(old, new, tolerance)
    if changed:
        return replace(verdict, outcome=Outcome.CHANGED, findings=tuple(changed))
    # What a parameter loses depends on its qparams alone; what an activation loses, also on the layers before it.
    own = tolerance.sqnr_drop_db if old.role == Role.WEIGHT else tolerance.sqnr_min_drop_db
    worse = [
        *_drop("sqnr_db", old.sqnr_db, new.sqnr_db, own, tolerance.ignore_above_db),
        *_drop("sqnr_min_db", old.sqnr_min_db, new.sqnr_min_db, tolerance.sqnr_min_drop_db, tolerance.ignore_above_db),
    ]
    before, after = old.clip_fraction, new.clip_fraction
    if before != after and (before is None or after is None or not after - before <= tolerance.clip_fraction):
        worse.append(Finding("clip_fraction", before, after, tolerance.clip_fraction))
    if worse:
        return replace(verdict, outcome=Outcome.REGRESSED, findings=tuple(worse), loss_db=_loss(worse))
    return verdict


def _moved_bounds(old: QuantizerRow, new: QuantizerRow, tolerance: Tolerance) -> Iterator[Finding]:
    size = max(abs(old.lo or 0.0), abs(old.hi or 0.0))
    least = tolerance.dynamic_bound_rel if old.mode == Mode.DYNAMIC else tolerance.bound_rel
    allowed = max(least, tolerance.noise_multiple * (old.noise_rel or 0.0))
    for name in ("lo", "hi"):
        before, after = getattr(old, name), getattr(new, name)
        if before is None and after is None:
            continue
        if before is None or after is None or not abs(after - before) <= allowed * size:
            yield Finding(name, before, after, allowed)


def exit_code(verdicts: list[Verdict]) -> ExitCode:
    """The code a judgement ends with; waived verdicts do not count. When several apply: 1, 4, 5, 3."""
    outcomes = {verdict.outcome for verdict in verdicts if not verdict.waived}
    if outcomes & {Outcome.REGRESSED, Outcome.CHANGED}:
        return ExitCode.REGRESSED
    if outcomes & {Outcome.FAILED, Outcome.MISSING}:
        return ExitCode.INCOMPLETE
    if not verdicts:
        return ExitCode.NOTHING_MEASURED
    if outcomes & {Outcome.IMPROVED, Outcome.NEW}:
        return ExitCode.STALE
    return ExitCode.OK
