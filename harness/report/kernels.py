"""What compilers and runtimes made of the converted graphs: kernels by kind, and what they cost the worst output."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from harness.files import storable
from harness.records import FAILED, RELEASED, Case, OutputRow, Point
from harness.report.names import subject_names
from harness.report.order import natural, variant_order
from harness.report.phrases import fixed
from harness.report.text import counted

_INT8 = {"int8_convs": "int8 conv", "int8_linears": "int8 linear"}
_FLOAT = {"float_convs": "float conv", "float_linears": "float matmul"}
_LEFT = {"quantize_nodes": "quantize op", "dequantize_nodes": "dequantize op"}
WORDS = 5
"""How many columns are words; levels follow."""
LEVELS = ("converted", "lowered", "kernels")
"""Columns of decibels, or of what failed."""
TITLE = "What runs after lowering: kernels, and SQNR, dB, of the worst output"


def kernel_frame(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """A line for each case that was lowered to a program, as text.

    `model`, `flow`, `fix`; of the output with the least SQNR between kernels and converted graph its `cause`; `what
    runs`; and of that output `converted` and `lowered` against fp32, and `kernels` against the converted graph. A
    lowering that failed says so in the place of its levels.
    """
    rows = list(rows)
    converted = {(row.case, row.output): row for row in rows if row.point == Point.CONVERTED}
    lowered: dict[Case, list[OutputRow]] = {}
    rows_lowered = [row for row in rows if row.point == Point.LOWERED]
    graphs = {row.flow for row in rows_lowered if not (row.is_program or row.status.startswith(FAILED))}
    for row in rows_lowered:
        if row.flow not in graphs:
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
                "cause": worst.cause,
                "what runs": _what_runs(worst),
                "converted": "" if before is None else _level(before),
                "lowered": _level(worst),
                "kernels": "" if worst.kernel_db is None else fixed(worst.kernel_db, 1),
            }
        )
    return pd.DataFrame(lines, dtype=str)


def _closeness(row: OutputRow) -> tuple[float, str]:
    return (float("-inf") if row.kernel_db is None else row.kernel_db, row.output)


def _order(case: Case) -> tuple[object, ...]:
    return natural(case.model), case.size, case.weights, natural(case.flow), variant_order(case.variant)


def _what_runs(row: OutputRow) -> str:
    """Kernels of a compiled program, or ops and bytes of one for a runtime; nothing where there is no program."""
    if row.delegated_nodes is not None:
        told = [f"{counted(row.delegated_nodes, 'op')} delegated, {row.undelegated_nodes:,} not", *_counts(row, _LEFT)]
        return ", ".join([*told, counted(row.program_bytes or 0, "byte")])
    if row.int8_convs is None:
        return ""
    return ", ".join([*(_counts(row, _INT8) or ["no int8 kernel"]), *_counts(row, _FLOAT), *_counts(row, _LEFT)])


def _counts(row: OutputRow, names: dict[str, str]) -> list[str]:
    """What there is of each kind, in words."""
    found = {name: getattr(row, column) for column, name in names.items()}
    return [counted(count, name) for name, count in found.items() if count]


def _level(row: OutputRow) -> str:
    return row.status if row.sqnr_db is None else fixed(row.sqnr_db, 1)
