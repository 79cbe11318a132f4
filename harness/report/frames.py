"""Rows as pandas tables, rounded for reading."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import pandas as pd

from harness.judge import coverage
from harness.records import RELEASED, FixState, OutputRow, Point, QuantizerRow, released_of
from harness.report.bounds import moved_ranges
from harness.report.phrases import number

_MOST_COLUMNS = 12
_CASE = ["model", "size", "weights", "flow", "variant"]
_QUANTIZED = (Point.CONVERTED, Point.LOWERED)


def sqnr_matrix(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """SQNR of released code in dB as text: a line for each flow and point, a column for each model and output."""
    shown = [row for row in rows if row.point in _QUANTIZED and row.variant == RELEASED]
    names = ["model", "size", "flow", "point", "output", "status", "sqnr_db"]
    frame = pd.DataFrame.from_records(list(map(attrgetter(*names), shown)), columns=names)
    if frame.empty:
        return pd.DataFrame()
    frame["line"] = frame["flow"].where(frame["point"] == Point.CONVERTED, frame["flow"] + " " + frame["point"])
    frame["column"] = frame["model"] + "/" + frame["size"] + " " + frame["output"]
    text = frame["sqnr_db"].map(lambda value: f"{value:.1f}", na_action="ignore").astype(object)
    frame["value"] = text.where(frame["sqnr_db"].notna(), frame["status"])
    matrix = frame.pivot(index="line", columns="column", values="value").fillna("").rename_axis(None)
    return matrix if len(matrix.columns) <= _MOST_COLUMNS else matrix.transpose().rename_axis(None)


def fix_frame(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """What each variant changed at the last point of its flow: SQNR as released and repaired, and the difference.

    Variants that are inert or upstreamed are left out: they are evidence of nothing.
    """
    last = {(row.case, row.output): row for row in sorted(rows, key=lambda row: _order(row.point))}
    lines = []
    for (case, output), row in sorted(last.items()):
        released = last.get((released_of(case), output))
        if case.variant == RELEASED or row.fix_state in (FixState.INERT, FixState.UPSTREAMED):
            continue
        lines.append(
            [
                f"{case.model}/{case.size}",
                case.flow,
                case.variant,
                output,
                _level(released),
                _level(row),
                _gain(released, row),
            ]
        )
    return pd.DataFrame(lines, columns=["model", "flow", "fix", "output", "released", "repaired", "gain, dB"])


def idle_fixes(rows: Iterable[OutputRow]) -> list[str]:
    """One line for each variant and state of those that changed nothing, with the cases."""
    cases: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        if row.fix_state in (FixState.INERT, FixState.UPSTREAMED):
            cases.setdefault((row.fix_state, row.flow, row.variant), set()).add(f"{row.model}/{row.size}")
    return [
        f"{flow} {variant}: {state} on {', '.join(sorted(models))}"
        for (state, flow, variant), models in sorted(cases.items())
    ]


def bounds_frame(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """Quantizers whose range bounds a fix moved by over 1 %: largest observed value, range and own SQNR, both ways."""
    moved = moved_ranges(rows)
    shown = {
        "model": moved["model"] + "/" + moved["size"],
        "flow": moved["flow"],
        "fix": moved["variant"],
        "point": moved["point"],
        "quantizer": moved["quantizer"],
        "absmax": moved["absmax"].map(lambda value: "none" if pd.isna(value) else f"{value:.9g}"),
        "released range": _ranges(moved, "_released"),
        "repaired range": _ranges(moved, ""),
        "released": _levels(moved["sqnr_db_released"]),
        "repaired": _levels(moved["sqnr_db"]),
    }
    return pd.DataFrame(shown)


def _order(point: str) -> int:
    return list(Point).index(Point(point))


def _level(row: OutputRow | None) -> str:
    return "none" if row is None else row.status if row.sqnr_db is None else f"{row.sqnr_db:.2f}"


def _gain(released: OutputRow | None, row: OutputRow) -> str:
    if released is None or released.sqnr_db is None or row.sqnr_db is None:
        return ""
    return f"{row.sqnr_db - released.sqnr_db:+.2f}"


def _ranges(moved: pd.DataFrame, side: str) -> list[str]:
    """`[lo, hi]` of one side, or its status where it has no range."""
    columns = (moved[name + side] for name in ("lo", "hi", "status"))
    return [
        status if pd.isna(lo) or pd.isna(hi) else f"[{lo:.9g}, {hi:.9g}]"
        for lo, hi, status in zip(*columns, strict=True)
    ]


def _levels(levels: pd.Series[float]) -> list[str]:
    return [number("sqnr_db", None if pd.isna(level) else level) for level in levels]


def coverage_frame(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """Quantized over quantizable weights of each case, and the names of those left in float."""
    by_case: dict[tuple[str, ...], list[QuantizerRow]] = {}
    for row in rows:
        by_case.setdefault((row.model, row.size, row.weights, row.flow, row.variant), []).append(row)
    lines = []
    for key, members in sorted(by_case.items()):
        covered = coverage(members)
        lines.append([*key, covered.quantized, covered.quantizable, ", ".join(covered.rest)])
    return pd.DataFrame(lines, columns=[*_CASE, "quantized", "quantizable", "in float"])
