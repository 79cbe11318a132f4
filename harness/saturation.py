"""Which lowered outputs an instruction set damages, told from runs of one selection under several of them.

Where a processor has no VNNI, oneDNN's kernels for u8 activations and s8 weights add two products in int16 before they
go on in int32: 2 x 255 x 127 is 64,770, and int16 ends at 32,767 (pytorch/pytorch issue 126521). The graph is the same,
the program too; only the kernels' results move away from the converted graph's. docs/saturation.md has measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.environment import VNNI
from harness.records import Case, Cause, OutputRow, Point

FALL_DB = 3.0
"""A fall of `kernel_db` against the best instruction set that counts: the noise of the kernels is twice as loud.

Of kernels that were loud enough to count (`AUDIBLE_DB`) right ones moved by at most 0.25 dB from one instruction set to
another (a full ResNet-50), and saturating ones fell by 8 to 124 dB.
"""
AUDIBLE_DB = 10.0
"""Kernels whose noise is so far below the quantization noise of their graph cost an output 0.4 dB at most.

Above that a fall says nothing: codes round to one side or the other and a few of them decide. Kernels that were right
under both had 62 dB under one and 139 under another, or 56.8 and 51.7 where the converted graph had 40.
"""

Runs = Mapping[str, Iterable[OutputRow]]
"""Output rows of one selection by instruction set (`harness.environment.ISAS`), the best first."""


@dataclass(frozen=True, slots=True)
class Swept:
    """One lowered output with int8 kernels: its row by instruction set, and the sets under which it saturates."""

    case: Case
    output: str
    rows: Mapping[str, OutputRow]
    saturates: tuple[str, ...]


def flagged(runs: Runs) -> dict[str, list[OutputRow]]:
    """The rows of each run in their order, those that saturate with the cause `saturation` in place of their own.

    That is a row of a lowered output which ran int8 kernels without VNNI, with a `kernel_db` over `FALL_DB` below the
    best that the same output has in any of the runs, and less than `AUDIBLE_DB` above the SQNR of the converted graph.
    """
    rows = {isa: list(own) for isa, own in runs.items()}
    best: dict[tuple[str, ...], float] = {}
    for row in (row for own in rows.values() for row in own if _runs_int8(row)):
        best[row.key] = max(best.get(row.key, -math.inf), -math.inf if row.kernel_db is None else row.kernel_db)
    marked = {}
    for isa, own in rows.items():
        converted = {(row.case, row.output): row.sqnr_db for row in own if row.point == Point.CONVERTED}
        marked[isa] = [
            replace(row, cause=Cause.SATURATION)
            if isa not in VNNI
            and _runs_int8(row)
            and _falls(row.kernel_db, best[row.key], converted.get((row.case, row.output)))
            else row
            for row in own
        ]
    return marked


def _falls(kernel_db: float | None, best_db: float, converted_db: float | None) -> bool:
    if kernel_db is None or converted_db is None:
        return False
    return best_db - kernel_db > FALL_DB and kernel_db < converted_db + AUDIBLE_DB


def _runs_int8(row: OutputRow) -> bool:
    return row.point == Point.LOWERED and (row.int8_convs or 0) + (row.int8_linears or 0) > 0


def swept(runs: Runs) -> list[Swept]:
    """Each output that was lowered to int8 kernels in any of some `flagged` runs, in the order of the runs."""
    by_key: dict[tuple[str, ...], dict[str, OutputRow]] = {}
    for isa, rows in runs.items():
        for row in rows:
            if row.point == Point.LOWERED:
                by_key.setdefault(row.key, {})[isa] = row
    return [
        Swept(
            next(iter(rows.values())).case,
            key[-1],
            rows,
            tuple(isa for isa, row in rows.items() if row.cause == Cause.SATURATION),
        )
        for key, rows in by_key.items()
        if any(_runs_int8(row) for row in rows.values())
    ]
