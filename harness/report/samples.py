"""Outputs whose samples two runs measured differently: a table on a terminal, and all of them as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple

from rich.console import Console
from rich.table import Table

from harness.paired import Paired
from harness.report.phrases import fixed, row_name
from harness.report.terminal import print_line, shown

FILE = "samples.csv"
_MOST_ROWS = 20
_KEY = ("model", "size", "weights", "flow", "variant", "point", "output")


def print_samples(console: Console, found: Sequence[Paired]) -> None:
    """The outputs with the deepest drop of a sample, and each collapsed sample in a line; nothing if none moved."""
    if not found:
        return
    title = "samples that moved: SQNR of head minus base, dB, over the same samples"
    if any(one.left_out for one in found[:_MOST_ROWS]):
        title += "; left out are those with noise and no signal"
    table = Table(title=title, title_justify="left")
    table.add_column("output", overflow="fold")
    for name in ("samples", "moved", "all", "95 % interval", "median", "worst", "its sample", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found[:_MOST_ROWS]:
        table.add_row(shown(row_name(one.row)), *_cells(one))
    console.print(table)
    if len(found) > _MOST_ROWS:
        print_line(console, f"... and {len(found) - _MOST_ROWS} more outputs whose samples moved: see {FILE}")
    for one in found:
        if one.collapsed:
            print_line(console, sentence(one))


def _cells(one: Paired) -> list[str]:
    interval = "" if one.interval_db is None else f"{_signed(one.interval_db[0])} to {_signed(one.interval_db[1])}"
    change = "" if one.change_db is None else _signed(one.change_db)
    worst = one.worst
    samples = f"{one.samples}, {one.left_out} left out" if one.left_out else str(one.samples)
    return [
        *(samples, str(one.moved), change, interval, _signed(one.median_db), _signed(worst.delta_db)),
        *(str(worst.index), fixed(worst.base_db, 2), fixed(worst.head_db, 2)),
    ]


def sentence(one: Paired) -> str:
    """Which samples of an output collapsed: the first three, and how many more."""
    told = "; ".join(
        f"sample {sample.index} {fixed(sample.base_db, 2)} -> {fixed(sample.head_db, 2)} dB"
        for sample in one.collapsed[:3]
    )
    more = len(one.collapsed) - 3
    count = f"{len(one.collapsed)} of {one.samples} samples collapsed" if len(one.collapsed) > 1 else "collapsed"
    return f"{row_name(one.row)}: {count}: {told}{f'; and {more} more' if more > 0 else ''}"


def _signed(value: float) -> str:
    return fixed(value, 2, "+")


def render(found: Sequence[Paired]) -> str:
    """CSV of all outputs whose samples moved, exact, that with the deepest drop first; sample 0 is the first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("samples", "left_out", "moved", "change_db", "change_lo_db", "change_hi_db", "median_db", "worst_db")
    writer.writerow([*_KEY, *names, "worst_sample", "worst_base_db", "worst_head_db", "collapsed"])
    for one in found:
        lower, upper = one.interval_db or (None, None)
        values = (one.samples, one.left_out, one.moved, one.change_db, lower, upper, one.median_db, one.worst.delta_db)
        collapsed = " ".join(str(sample.index) for sample in one.collapsed)
        writer.writerow([*one.row.key, *values, *astuple(one.worst), collapsed])
    return text.getvalue()
