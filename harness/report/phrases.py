"""Rounded numbers and one-line sentences."""

from __future__ import annotations

from harness.errors import ExitCode
from harness.judge import Judgement
from harness.records import OutputRow, Row
from harness.verdicts import Finding, Outcome, Verdict

UNITS = {
    "sqnr_db": "SQNR",
    "sqnr_min_db": "worst SQNR",
    "max_abs_err": "largest error",
    "ref_rms": "fp32 reference RMS",
    "task_metric": "top-1",
    "clip_fraction": "clipped share",
    "lo": "lower bound",
    "hi": "upper bound",
    "quantize_nodes": "quantize nodes",
    "dequantize_nodes": "dequantize nodes",
    "fix_state": "fix",
}
SYMBOLS = {
    Outcome.OK: "✓",
    Outcome.IMPROVED: "▲",
    Outcome.REGRESSED: "✗",
    Outcome.CHANGED: "≠",
    Outcome.NEW: "+",
    Outcome.MISSING: "−",
    Outcome.FAILED: "!",
}
"""A sign for each outcome, so that none is told by colour alone."""
_MOST_FIXED = 1e4

_MEANING = {
    ExitCode.OK: "every row is as accepted or waived",
    ExitCode.REGRESSED: "numerics got worse or changed",
    ExitCode.STALE: "nothing is worse, but the baseline is out of date",
    ExitCode.INCOMPLETE: "some rows failed or are missing",
    ExitCode.NOTHING_MEASURED: "nothing was measured",
}


def meaning(judgement: Judgement) -> str:
    """What a judgement comes to, in a line."""
    if not judgement.before.name and judgement.verdicts:
        return "there is no baseline to judge by"
    return _MEANING[judgement.exit_code]


def number(field: str, value: float | int | str | None) -> str:
    """A value of a row's field as people read it."""
    if value is None or value == "":
        return "none"
    if isinstance(value, str):
        return value
    if field.endswith("_db"):
        return f"{fixed(value, 2)} dB"
    if field in ("task_metric", "clip_fraction", "utilisation"):
        return f"{fixed(100 * value, 2)} %"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def fixed(value: float, digits: int, sign: str = "-") -> str:
    """So many digits after the point; from 10,000 on a power of ten, as damaged rows may hold 300 digits before it.

    `sign` is that of a format: `+` marks positive numbers too.
    """
    return f"{value:{sign}.{digits}f}" if abs(value) < _MOST_FIXED else f"{value:{sign}.2e}"


def probe_value(value: float | str | None) -> str:
    """What a probe measured, as people read it; nothing where it could not be."""
    return "" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)


def finding(item: Finding) -> str:
    """`SQNR 24.10 dB, baseline 31.70 dB, allowed drop 0.50 dB`."""
    new, old = number(item.field, item.new), number(item.field, item.old)
    text = f"{UNITS.get(item.field, item.field)} {new}, baseline {old}"
    if item.limit is not None:
        return f"{UNITS.get(item.field, item.field)} {new}, must be at least {number(item.field, item.limit)}"
    if item.allowed is None:
        return text
    if item.field in ("lo", "hi", "ref_rms"):
        return f"{text}, allowed change {item.allowed:.2g} of its size"
    if item.field == "clip_fraction":
        return f"{text}, allowed rise {number(item.field, item.allowed)}"
    if item.field == "max_abs_err":
        return f"{text}, allowed rise {item.allowed:.2f} dB"
    return f"{text}, allowed drop {number(item.field, item.allowed)}"


def old_new(item: Finding) -> str:
    """`39.17 dB → 37.66 dB`."""
    return f"{number(item.field, item.old)} → {number(item.field, item.new)}"


def verdict(item: Verdict) -> str:
    """One line: where, what, the numbers."""
    where = f"{item.case} {item.label}"
    if item.error:
        text = f"{item.findings[0].new}: {item.error}"
    elif item.outcome is Outcome.NEW:
        text = "new, not in the baseline"
    elif item.outcome is Outcome.MISSING:
        text = "in the baseline, not measured"
    elif _one_sided(item, "new"):
        text = "quantizer gone: in the baseline, not in the graph"
    elif _one_sided(item, "old"):
        text = "quantizer added: in the graph, not in the baseline"
    else:
        text = "; ".join(finding(entry) for entry in item.findings)
    waived = f" (waived: {item.waived})" if item.waived else ""
    return f"{where}: {text}{waived}"


def _one_sided(item: Verdict, side: str) -> bool:
    """Whether a verdict says that a quantizer is on one side only."""
    first = item.findings[0] if item.findings else None
    return first is not None and item.kind == "quantizer" and first.field == "status" and getattr(first, side) is None


def row_name(row: Row) -> str:
    """Case and output or quantizer of a row."""
    return f"{row.case} {row.point} {row.key[-1]}"


def row_value(row: Row | None) -> str:
    """A row's leading value: SQNR (or status) of an output, range bounds (or status) of a quantizer."""
    if row is None:
        return "-"
    if isinstance(row, OutputRow):
        return row.status if row.sqnr_db is None else number("sqnr_db", row.sqnr_db)
    if row.lo is None:
        return row.status
    return f"[{number('lo', row.lo)}, {number('hi', row.hi)}]"
