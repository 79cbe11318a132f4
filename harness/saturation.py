"""Which lowered outputs lose with the instruction set what another one keeps.

Without VNNI, oneDNN's int8 kernels add two products of u8 x s8 in int16 before they go on in int32: 2 x 255 x 127 is
64,770, and int16 ends at 32,767 (pytorch/pytorch issue 126521). Runs of the same cases under several instruction sets
show it: SQNR of kernel against converted graph falls, while the graph itself stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.records import Cause, OutputRow, Point

FALL_DB = 3.0
"""A kernel that loses no more against the best instruction set computes as it does."""
RESOLUTION_DB = 60.0
"""Above this, codes that round to either side decide: two right instruction sets gave 62 and 139 dB."""


@dataclass(frozen=True, slots=True)
class Swept:
    """One lowered output with int8 kernels: `kernel_db` by instruction set, dB, best first; None where it failed."""

    row: OutputRow
    kernel_db: Mapping[str, float | None]
    saturated: tuple[str, ...]


def flagged(rows: Iterable[OutputRow], best: Iterable[OutputRow]) -> list[OutputRow]:
    """Rows of a run, with the cause `saturation` for each whose kernels fall against a `best` run's."""
    before = {row.key: row for row in best}
    return [
        replace(row, cause=Cause.SATURATION) if row.key in before and falls(row, before[row.key]) else row
        for row in rows
    ]


def falls(row: OutputRow, best: OutputRow) -> bool:
    """Whether an output's int8 kernels are farther from the converted graph than the same ones in the best run."""
    if not _is_int8(row) or row.kernel_db is None or best.kernel_db is None:
        return False
    return min(best.kernel_db, RESOLUTION_DB) - row.kernel_db > FALL_DB


def swept(runs: Sequence[tuple[str, Sequence[OutputRow]]]) -> list[Swept]:
    """Each lowered output with int8 kernels of some runs, by instruction set; the first run is the best one's."""
    levels: dict[tuple[str, ...], dict[str, OutputRow]] = {}
    for isa, rows in runs:
        for row in rows:
            if row.point == Point.LOWERED:
                levels.setdefault(row.key, {})[isa] = row
    found = []
    for by_isa in levels.values():
        if any(map(_is_int8, by_isa.values())):
            saturated = tuple(isa for isa, row in by_isa.items() if row.cause == Cause.SATURATION)
            shown = next(iter(by_isa.values()))
            found.append(Swept(shown, {isa: row.kernel_db for isa, row in by_isa.items()}, saturated))
    return found


def _is_int8(row: OutputRow) -> bool:
    return (row.int8_convs or 0) + (row.int8_linears or 0) > 0
