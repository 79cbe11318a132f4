"""The likely cause of what became of a row group, told from its rows alone, in one line.

The first rule that applies speaks: what makes a comparison void comes before what changed in the graph, that before
what changed in its ranges, and arithmetic is what is left when nothing else moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.records import Cause, OutputRow, Point, QuantizerRow, QuantizerStatus
from harness.report.groups import Group, Pair
from harness.report.phrases import UNITS, old_new, row_value
from harness.verdicts import Finding, Outcome, Verdict

_STRUCTURE = ("status", "dtype", "granularity", "axis", "mode", "role", "quant_min", "quant_max", "share_group")
_SAME_WIDTH = 0.01
"""Ranges whose widths differ by a smaller share were moved rather than widened."""
_RISE = 1e-3
"""Rise of the clipped share that counts as clipping, as in the default tolerance."""
_WORDS = {
    Cause.CLIPPING: "values are clipped",
    Cause.STEP_SIZE: "the range is wider than the values, so steps are coarse",
    Cause.ZERO_POINT: "the zero point is off",
    Cause.AXIS: "scales lie along the wrong axis",
    Cause.UNQUANTIZED: "an edge that should have a quantizer has none",
    Cause.FOLDING: "folding moved the float graph",
    Cause.MUTATED_WEIGHTS: "an upstream pass wrote into the weights",
    Cause.SATURATION: "int8 kernels saturate under this instruction set",
    Cause.NONFINITE: "values are not finite",
    Cause.NUMERICS: "arithmetic: no range explains it",
}
"""What `OutputRow.cause` and `QuantizerRow.cause` mean to a reader."""


def likely_cause(group: Group, siblings: Mapping[str, Group]) -> str:
    """One line, empty where there is nothing to explain; `siblings` are the groups of the same case, by point."""
    notable = group.notable
    if not notable or group.outcome is Outcome.NEW:
        return ""
    if group.outcome is Outcome.MISSING:
        return "not measured"
    failed = next((verdict for verdict in notable if verdict.outcome is Outcome.FAILED), None)
    if failed is not None:
        return f"{failed.findings[0].new}: {failed.error}".removesuffix(": ")
    control = _control(group, siblings.get(Point.FLOAT))
    own = _fix_state(group) or _status(group) or _structure(group) or _range(group) or _measured_cause(group)
    if control:
        return "; ".join(filter(None, (control, own)))
    return own or _pass(group, siblings) or _nodes(group) or "no range or structure moved: arithmetic"


def moved_bounds(group: Group) -> list[tuple[QuantizerRow, QuantizerRow]]:
    """Quantizers whose range bounds moved beyond the allowance, old and new, the largest relative move first."""
    moved = [
        (pair.old, pair.new)
        for pair in group.quantizers
        if pair.old is not None and pair.new is not None and _finding(pair.verdict, "lo", "hi") is not None
    ]
    return sorted(moved, key=lambda pair: -_move(*pair))


def _control(group: Group, control: Group | None) -> str:
    """The float model itself is another one: then no SQNR can be compared with its baseline."""
    for verdict in control.notable if control is not None else ():
        moved = _finding(verdict, "ref_rms", "numel")
        if moved is not None:
            return f"the float model or its data changed: {UNITS.get(moved.field, moved.field)} {old_new(moved)}"
    lost = [pair for pair in group.outputs if _finding(pair.verdict, "sqnr_db") is not None]
    if lost and group.point in (Point.FLOAT, Point.PREPARED):
        return f"the {group.point} graph no longer equals the eager model"
    return ""


def _fix_state(group: Group) -> str:
    for verdict in group.notable:
        moved = _finding(verdict, "fix_state")
        if moved is not None:
            return f"the fix is {moved.new or 'none'}, was {moved.old or 'none'}"
    return ""


def _status(group: Group) -> str:
    for pair in group.outputs:
        moved = _finding(pair.verdict, "status")
        if moved is not None:
            return f"{_where(pair)} is {moved.new}, was {moved.old or 'not there'}"
    return ""


def _structure(group: Group) -> str:
    """Quantizers that came, went, or are of another kind."""
    gone = [pair for pair in group.quantizers if pair.new is None and pair.verdict.outcome is Outcome.CHANGED]
    come = [pair for pair in group.quantizers if pair.old is None and pair.verdict.outcome is Outcome.CHANGED]
    broken = [pair for pair in group.quantizers if _became(pair.verdict) == QuantizerStatus.NONFINITE]
    lost = [pair for pair in group.quantizers if _became(pair.verdict) == QuantizerStatus.UNQUANTIZED]
    for pairs, word in ((broken, "the scale is not finite"), (lost, "not quantized"), (gone, "gone"), (come, "new")):
        if pairs:
            more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
            return f"{_where(pairs[0])}{more}: {word}"
    for pair in group.quantizers:
        moved = _finding(pair.verdict, *_STRUCTURE) if pair.old and pair.new else None
        if moved is not None:
            return f"{_where(pair)}: {moved.field} {old_new(moved)}"
    return ""


def _became(verdict: Verdict) -> object:
    """The status that a row did not have before."""
    moved = _finding(verdict, "status")
    return moved and moved.new


def _range(group: Group) -> str:
    """The quantizer that clips more, or else the one whose range moved most."""
    risen = [(pair.old, pair.new) for pair in group.quantizers if pair.verdict.outcome is not Outcome.OK]
    clipping = [(old, new) for old, new in risen if old and new and _clipped(new) - _clipped(old) > _RISE]
    if clipping:
        old, new = max(clipping, key=lambda pair: _clipped(pair[1]))
        shares = Finding("clip_fraction", old.clip_fraction, new.clip_fraction)
        return f"{new.quantizer} clips {old_new(shares)}"
    for old, new in moved_bounds(group):
        return f"the range of {new.quantizer} {_moved(old, new)}"
    return ""


def _moved(old: QuantizerRow, new: QuantizerRow) -> str:
    ratio = _widening(old, new)
    if abs(ratio - 1.0) < _SAME_WIDTH:
        return f"moved from {row_value(old)} to {row_value(new)}"
    return (
        f"is {ratio:.3g} times as wide" if ratio > 1 else f"is {1 / ratio:.3g} times narrower" if ratio else "is empty"
    )


def _clipped(row: QuantizerRow) -> float:
    return row.clip_fraction or 0.0


def _widening(old: QuantizerRow, new: QuantizerRow) -> float:
    """New width of the representable range over the old one; 1 where either is not known."""
    if old.lo is None or old.hi is None or new.lo is None or new.hi is None or old.hi <= old.lo:
        return 1.0
    return (new.hi - new.lo) / (old.hi - old.lo)


def _move(old: QuantizerRow, new: QuantizerRow) -> float:
    """How far a range moved: a width of half and one of twice count the same, and so does what its middle shifts by."""
    ratio = _widening(old, new)
    if ratio <= 0 or old.lo is None or old.hi is None or new.lo is None or new.hi is None or old.hi <= old.lo:
        return math.inf
    shift = abs(new.lo + new.hi - old.lo - old.hi) / 2 / (old.hi - old.lo)
    return abs(math.log2(ratio)) + shift


def _measured_cause(group: Group) -> str:
    """What the rows say of themselves, where they did not say it before."""
    pairs: list[Pair[OutputRow] | Pair[QuantizerRow]] = [*group.outputs, *group.quantizers]
    for pair in pairs:
        if pair.verdict.outcome is Outcome.OK or pair.new is None or not pair.new.cause:
            continue
        if pair.old is None or pair.old.cause != pair.new.cause:
            return f"{_where(pair)}: {_WORDS[Cause(pair.new.cause)]}"
    return ""


def _pass(group: Group, siblings: Mapping[str, Group]) -> str:
    converted = siblings.get(Point.CONVERTED)
    if group.point == Point.LOWERED and converted is not None and not converted.notable:
        return "the upstream's pass: the converted graph is as accepted"
    return ""


def _nodes(group: Group) -> str:
    for verdict in group.notable:
        moved = _finding(verdict, "quantize_nodes", "dequantize_nodes")
        if moved is not None:
            return f"{moved.field.replace('_', ' ')} {old_new(moved)}"
    return ""


def _finding(verdict: Verdict, *fields: str) -> Finding | None:
    return next((item for item in verdict.findings if item.field in fields), None)


def _where(pair: Pair[OutputRow] | Pair[QuantizerRow]) -> str:
    return pair.verdict.name
