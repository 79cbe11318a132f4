"""What `sqnr run --isa` prints of several instruction sets: SQNR of kernels against the converted graph under each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from harness.report.phrases import fixed, row_name
from harness.report.terminal import print_line, shown
from harness.saturation import Swept


def print_sweep(console: Console, isas: Sequence[str], found: Sequence[Swept]) -> None:
    """A line for each lowered output with int8 kernels; `!` marks those that saturate."""
    if not found:
        print_line(console, "no int8 kernel ran under any instruction set: --lower measures the lowering of every flow")
        return
    title = "Kernels against the converted graph, dB, by instruction set (! saturates)"
    table = Table(title=title, title_justify="left")
    table.add_column("output", overflow="fold")
    for isa in isas:
        table.add_column(isa, justify="right", no_wrap=True)
    for one in found:
        cells = (_cell(one, isa) for isa in isas)
        table.add_row(shown(row_name(one.row)), *cells)
    console.print(table)
    count = sum(bool(one.saturated) for one in found)
    print_line(console, f"{count} of {len(found)} outputs saturate without VNNI" if count else "no output saturates")


def _cell(one: Swept, isa: str) -> str:
    level = one.kernel_db.get(isa)
    return ("! " if isa in one.saturated else "") + ("none" if level is None else fixed(level, 1))
