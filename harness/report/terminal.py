"""The judgement and the tables on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from harness.errors import ExitCode
from harness.judge import Judgement
from harness.records import OutputRow
from harness.report import phrases
from harness.verdicts import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from harness.accept import Proposal  # brings the measuring processes with it

_COLOURS = {
    Outcome.OK: "green",
    Outcome.IMPROVED: "cyan",
    Outcome.REGRESSED: "red",
    Outcome.CHANGED: "red",
    Outcome.NEW: "cyan",
    Outcome.MISSING: "yellow",
    Outcome.FAILED: "yellow",
}
MEANING = {
    ExitCode.OK: "every row is as accepted or waived",
    ExitCode.REGRESSED: "numerics got worse or changed",
    ExitCode.STALE: "nothing is worse, but the baseline is out of date",
    ExitCode.INCOMPLETE: "some rows failed or are missing",
    ExitCode.NOTHING_MEASURED: "nothing was measured",
}
_MOST_LINES = 20
_WORDS = ("flow", "model", "fix", "output")
"""Columns of words, the others are numbers."""


def console() -> Console:
    """A console on standard output; wide where output goes to a file, so that lines stay whole."""
    made = Console()
    return made if made.is_terminal else Console(width=200)


def print_judgement(
    console: Console, judgement: Judgement, most: int = _MOST_LINES, *, advise: bool = True, run: str = ""
) -> None:
    """Worst rows first, then counts, notes and the verdict line; with `advise`, the next command too."""
    notable = [verdict for verdict in judgement.verdicts if verdict.outcome is not Outcome.OK]
    for verdict in notable[:most]:
        sign = f"[{_COLOURS[verdict.outcome]}]{phrases.SYMBOLS[verdict.outcome]} {verdict.outcome}[/]"
        console.print(f"{sign} {escape(phrases.verdict(verdict))}", soft_wrap=True, highlight=False)
    if len(notable) > most:
        console.print(f"... and {len(notable) - most} more: see verdict.json", highlight=False)
    for note in judgement.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True, highlight=False)
    _print_verdict_line(console, judgement)
    command = phrases.accept_command(notable, run)
    if advise and command:
        console.print(f"If intended: {escape(command)}", soft_wrap=True, highlight=False)


def _print_verdict_line(console: Console, judgement: Judgement) -> None:
    counts = Counter(verdict.outcome for verdict in judgement.verdicts)
    parts = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    code = judgement.exit_code
    colour = {ExitCode.OK: "green", ExitCode.STALE: "cyan"}.get(code, "red")
    waived = sum(1 for verdict in judgement.verdicts if verdict.waived)
    parts += f"; {waived} of them waived" if waived else ""
    console.print(f"[bold {colour}]{MEANING[code]}[/]: {parts or 'no rows'} (exit {int(code)})", highlight=False)


def print_matrix(console: Console, rows: Sequence[OutputRow]) -> None:
    """SQNR of released code, and what each fix changed: a line for each flow, a column for each model and output."""
    from harness.report.frames import fix_frame, idle_fixes, sqnr_matrix

    _print_frame(console, "SQNR, dB, released code against fp32 eager", sqnr_matrix(rows).reset_index(names="flow"))
    fixes, idle = fix_frame(rows), idle_fixes(rows)
    if not fixes.empty:
        _print_frame(console, "SQNR, dB, without and with each fix", fixes)
    for line in idle:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_frame(console: Console, title: str, frame: pd.DataFrame) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(frame.columns):
        side: JustifyMethod = "left" if column in _WORDS else "right"
        table.add_column(escape(str(column)), justify=side, no_wrap=index == 0, overflow="fold")
    for values in frame.itertuples(index=False):
        table.add_row(*(escape(str(value)) for value in values))
    console.print(table)


def print_proposal(console: Console, proposal: Proposal, most: int = 40) -> None:
    """Old -> new of every row an accept changes."""
    for change in proposal.changes[:most]:
        row = change.new or change.old
        if row is not None:
            old, new = phrases.row_value(change.old), phrases.row_value(change.new)
            console.print(f"{escape(phrases.row_name(row))}: {escape(old)} -> {escape(new)}", highlight=False,
                          soft_wrap=True)  # fmt: skip
    if len(proposal.changes) > most:
        console.print(f"... and {len(proposal.changes) - most} more rows", highlight=False)
    console.print(f"{len(proposal.changes)} rows change", highlight=False)
