"""What compilers and runtimes made of the converted graphs: kernels by kind, and what they cost the worst output."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from harness.files import storable
from harness.records import RELEASED, Case, OutputRow, Point
from harness.report.names import subject_names
from harness.report.order import natural, variant_order
from harness.report.phrases import fixed

_COUNTS = {
    "int8_convs": "int8 convs",
    "int8_linears": "int8 linears",
    "float_convs": "float convs",
    "float_linears": "float matmuls",
    "quantize_nodes": "quantize ops",
    "dequantize_nodes": "dequantize ops",
    "delegated_nodes": "delegated",
    "undelegated_nodes": "not delegated",
    "program_bytes": "bytes",
}
_NAMES = 3
TITLE = "What runs after lowering: kernels, and SQNR, dB, of the worst output"


def kernel_frame(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """A line for each case that was lowered to a program, as text.

    `model`, `flow`, `fix`; the counts that any program has; and of the output with the least SQNR between kernels and
    converted graph: `converted` and `lowered` against fp32, `kernels` against the converted graph. A lowering that
    failed says so in the place of its levels.
    """
    rows = list(rows)
    converted = {(row.case, row.output): row for row in rows if row.point == Point.CONVERTED}
    lowered: dict[Case, list[OutputRow]] = {}
    programs = {row.flow for row in rows if row.is_program}
    for row in rows:
        if row.point == Point.LOWERED and row.flow in programs:
            lowered.setdefault(row.case, []).append(row)
    names = subject_names({(case.model, case.size, case.weights) for case in lowered})
    lines = []
    for case in sorted(lowered, key=_order):
        worst = min(lowered[case], key=_closeness)
        before = converted.get((case, worst.output))
        lines.append(
            {
                "model": storable(names[case.model, case.size, case.weights]),
                "flow": storable(case.flow),
                "fix": "" if case.variant == RELEASED else storable(case.variant),
                **{title: _count(getattr(worst, column)) for column, title in _COUNTS.items()},
                "converted": "" if before is None else _level(before),
                "lowered": _level(worst),
                "kernels": "" if worst.kernel_db is None else fixed(worst.kernel_db, 1),
                "cause": worst.cause,
            }
        )
    frame = pd.DataFrame(lines, dtype=str)
    empty = [column for column in frame.columns[_NAMES:] if not frame[column].astype(bool).any()]
    return frame.drop(columns=empty)


def _closeness(row: OutputRow) -> tuple[float, str]:
    return (float("-inf") if row.kernel_db is None else row.kernel_db, row.output)


def _order(case: Case) -> tuple[object, ...]:
    return natural(case.model), case.size, case.weights, natural(case.flow), variant_order(case.variant)


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _level(row: OutputRow) -> str:
    return row.status if row.sqnr_db is None else fixed(row.sqnr_db, 1)
