"""What a sweep of instruction sets comes to: SQNR of int8 kernels against the converted graph under each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from harness.environment import VNNI
from harness.records import OutputRow
from harness.report.phrases import fixed, row_name
from harness.report.terminal import print_line, shown
from harness.saturation import Runs, Swept, swept

_TITLE = "SQNR of int8 kernels against the converted graph, dB"


def print_sweep(console: Console, runs: Runs) -> None:
    """A line for each output that int8 kernels compute, then what it means; the rows are `flagged` ones."""
    found = swept(runs)
    if found:
        table = Table(title=_TITLE, title_justify="left")
        table.add_column("output", overflow="fold")
        for isa in runs:
            table.add_column(shown(isa), justify="right", no_wrap=True)
        table.add_column("saturates", overflow="fold")
        for one in found:
            name = row_name(next(iter(one.rows.values())))
            table.add_row(shown(name), *(shown(_level(one.rows.get(isa))) for isa in runs), ", ".join(one.saturates))
        console.print(table)
    for line in _ends(list(runs), found):
        print_line(console, line)


def _level(row: OutputRow | None) -> str:
    if row is None:
        return "not measured"
    return row.status if row.kernel_db is None else fixed(row.kernel_db, 1)


def _ends(isas: Sequence[str], found: Sequence[Swept]) -> Iterator[str]:
    """What it comes to, and what it cannot tell."""
    if not found:
        yield "no output was computed by int8 kernels: --lower has every flow's lowering measured"
        return
    for isa in isas:
        count = sum(isa in one.saturates for one in found)
        if count:
            yield f"{isa}: {count} of {len(found)} outputs saturate, their rows have the cause saturation"
    if VNNI.isdisjoint(isas):
        yield f"{', '.join(isas)}: none has VNNI, so that what saturates under all of them alike is not told"
    elif not any(one.saturates for one in found):
        yield "nothing saturates"
