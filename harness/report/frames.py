"""Rows as pandas tables, rounded for reading."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from harness.files import storable
from harness.judge import coverage
from harness.records import RELEASED, FixState, OutputRow, Point, QuantizerRow, released_of
from harness.report.bounds import moved_ranges
from harness.report.names import Subject, subject_names
from harness.report.order import point_order
from harness.report.phrases import fixed, number

_MOST_COLUMNS = 12
_CASE = ["model", "size", "weights", "flow", "variant"]
_QUANTIZED = (Point.CONVERTED, Point.LOWERED)
_IDLE = (FixState.INERT, FixState.UPSTREAMED)


def sqnr_table(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """SQNR of released code in dB as text: a line for each flow and point, a column for each model and output.

    The first column, `flow`, names the lines. With many outputs the table is turned on its side: then the first is
    `output`, and the others are flows. Names are as users wrote them, so that two columns may have one name.
    """
    shown = [row for row in rows if row.point in _QUANTIZED and row.variant == RELEASED]
    if not shown:
        return pd.DataFrame(columns=["flow"])
    names = subject_names(map(_subject, shown))
    cells = {((row.flow, row.point), (*_subject(row), row.output)): _cell(row) for row in shown}
    lines = [(key, storable(_line_name(*key))) for key in sorted({line for line, _ in cells})]
    columns = [(key, storable(f"{names[key[:3]]} {key[3]}")) for key in sorted({column for _, column in cells})]
    table = [[name, *(cells.get((line, column), "") for column, _ in columns)] for line, name in lines]
    table.insert(0, ["flow", *(name for _, name in columns)])
    if len(columns) > _MOST_COLUMNS:
        table = [list(column) for column in zip(*table, strict=True)]
        table[0][0] = "output"
    return pd.DataFrame(table[1:], columns=table[0], dtype=object)


def _subject(row: OutputRow | QuantizerRow) -> Subject:
    return (row.model, row.size, row.weights)


def _line_name(flow: str, point: str) -> str:
    return flow if point == Point.CONVERTED else f"{flow} {point}"


def _cell(row: OutputRow) -> str:
    return row.status if row.sqnr_db is None else fixed(row.sqnr_db, 1)


def fix_frame(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """What each variant changed at the last point of its flow: SQNR as released and repaired, and the difference.

    Variants that are inert or upstreamed are left out: they are evidence of nothing.
    """
    rows = list(rows)
    idle = {row.case for row in rows if row.fix_state in _IDLE}  # what is lowered after it says nothing more
    last = {(row.case, row.output): row for row in sorted(rows, key=lambda row: point_order(row.point))}
    names = subject_names(map(_subject, last.values()))
    lines = []
    for (case, output), row in sorted(last.items()):
        released = last.get((released_of(case), output))
        if case.variant == RELEASED or case in idle:
            continue
        where = [names[_subject(row)], case.flow, case.variant, output]
        lines.append([*map(storable, where), _level(released), _level(row), _gain(released, row)])
    return pd.DataFrame(lines, columns=["model", "flow", "fix", "output", "released", "repaired", "gain, dB"])


def idle_fixes(rows: Iterable[OutputRow]) -> list[str]:
    """One line for each variant and state of those that changed nothing, with the cases."""
    rows = list(rows)
    names = subject_names(map(_subject, rows))
    cases: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        if row.fix_state in _IDLE:
            cases.setdefault((row.fix_state, row.flow, row.variant), set()).add(names[_subject(row)])
    return [
        f"{flow} {variant}: {state} on {', '.join(sorted(models))}"
        for (state, flow, variant), models in sorted(cases.items())
    ]


def bounds_frame(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """Quantizers whose range bounds a fix moved by over 1 %: largest observed value, range and own SQNR, both ways."""
    rows = list(rows)
    moved, names = moved_ranges(rows), subject_names(set(map(_subject, rows)))
    told = {tuple(map(storable, subject)): storable(name) for subject, name in names.items()}
    subjects = zip(moved["model"], moved["size"], moved["weights"], strict=True)
    shown = {
        "model": pd.Series([told[subject] for subject in subjects], dtype=str),
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


def _level(row: OutputRow | None) -> str:
    return "none" if row is None else row.status if row.sqnr_db is None else fixed(row.sqnr_db, 2)


def _gain(released: OutputRow | None, row: OutputRow) -> str:
    if released is None or released.sqnr_db is None or row.sqnr_db is None:
        return ""
    return fixed(row.sqnr_db - released.sqnr_db, 2, sign="+")


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
        rest = storable(", ".join(covered.rest))
        lines.append([*map(storable, key), covered.quantized, covered.quantizable, rest])
    return pd.DataFrame(lines, columns=[*_CASE, "quantized", "quantizable", "in float"])
