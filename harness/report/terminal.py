"""The judgement and the tables on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from harness.errors import ExitCode
from harness.judge import Judgement
from harness.records import OutputRow
from harness.report import phrases
from harness.report.advice import advice
from harness.report.text import spoken
from harness.store import Run
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
_MOST_LINES = 20
_WORDS = ("flow", "model", "fix", "output", "cause", "what runs")
"""Columns of words, the others are numbers."""


def console() -> Console:
    """A console on standard output; wide where output goes to a file, so that lines stay whole."""
    made = Console()
    return made if made.is_terminal else Console(width=200)


def print_judgement(console: Console, run: Run, judgement: Judgement, *, named: bool, most: int = _MOST_LINES) -> None:
    """Worst rows first, then counts, notes and the verdict line, and what to do if all is right.

    A run that was `named` by the user may not be the latest, so the advice names it too. Where there is nothing to
    judge by, every row is new, and that is said once.
    """
    notable = [verdict for verdict in judgement.verdicts if verdict.outcome is not Outcome.OK]
    listed = notable[:most] if judgement.before.name else []
    for verdict in listed:
        print_line(console, phrases.verdict(verdict), verdict.outcome)
    if len(notable) > len(listed) and listed:
        print_line(console, f"... and {len(notable) - most} more: see verdict.json")
    for note in judgement.notes:
        print_line(console, f"note: {note}")
    _print_verdict_line(console, judgement)
    for line in advice(run, judgement, named=named).lines:
        print_line(console, line)


def print_line(console: Console, text: str, outcome: Outcome | None = None) -> None:
    """One line, whatever is in it: nothing that moves a terminal, and nothing that GitHub takes for a command."""
    line = Text(spoken(text))
    if outcome is not None:
        line = Text.assemble((f"{phrases.SYMBOLS[outcome]} {outcome}", _COLOURS[outcome]), " ", line)
    console.print(line, soft_wrap=True, highlight=False)


def _print_verdict_line(console: Console, judgement: Judgement) -> None:
    counts = Counter(verdict.outcome for verdict in judgement.verdicts)
    parts = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    code = judgement.exit_code
    colour = {ExitCode.OK: "green", ExitCode.STALE: "cyan"}.get(code, "red")
    waived = sum(1 for verdict in judgement.verdicts if verdict.waived)
    parts += f"; {waived} of them waived" if waived else ""
    console.print(
        f"[bold {colour}]{phrases.meaning(judgement)}[/]: {parts or 'no rows'} (exit {int(code)})", highlight=False
    )


def shown(text: object) -> Text:
    """A name in a table: as it is, not as markup."""
    return Text(spoken(text))


def print_matrix(console: Console, rows: Sequence[OutputRow]) -> None:
    """SQNR of released code, and what each fix changed: a line for each flow, a column for each model and output."""
    from harness.report.frames import fix_frame, idle_fixes, sqnr_table
    from harness.report.kernels import LEVELS, TITLE, kernel_frame

    _print_frame(console, "SQNR, dB, released code against fp32 eager", sqnr_table(rows))
    programs = kernel_frame(rows)
    if not programs.empty:
        _print_frame(console, TITLE, programs, LEVELS)
    fixes, idle = fix_frame(rows), idle_fixes(rows)
    if not fixes.empty:
        _print_frame(console, "SQNR, dB, without and with each fix", fixes)
    for line in idle:
        print_line(console, line)


def _print_frame(console: Console, title: str, frame: pd.DataFrame, whole: Sequence[str] = ()) -> None:
    """A table; its first column and those named are never broken."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(frame.columns):
        side: JustifyMethod = "left" if column in _WORDS else "right"
        table.add_column(shown(column), justify=side, no_wrap=index == 0 or column in whole, overflow="fold")
    for values in frame.itertuples(index=False):
        table.add_row(*map(shown, values))
    console.print(table)


def print_proposal(console: Console, proposal: Proposal, most: int = 40) -> None:
    """Old -> new of every row an accept changes."""
    for change in proposal.changes[:most]:
        row = change.new or change.old
        if row is not None:
            old, new = phrases.row_value(change.old), phrases.row_value(change.new)
            print_line(console, f"{phrases.row_name(row)}: {old} -> {new}")
    if len(proposal.changes) > most:
        console.print(f"... and {len(proposal.changes) - most} more rows", highlight=False)
    count = len(proposal.changes)
    console.print(f"{count} row changes" if count == 1 else f"{count} rows change", highlight=False)
