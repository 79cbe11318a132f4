"""What is written of a judged run: report.html, report.md, junit.xml, verdict.json, and tables for spreadsheets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness import extra
from harness.errors import SqnrError
from harness.files import replace_all, write_atomically
from harness.judge import Judgement
from harness.records import OutputRow, QuantizerRow
from harness.report import verdict_json
from harness.store import Run
from harness.workspace import Workspace

if TYPE_CHECKING:
    from harness.report.html.timeline import Timeline
    from harness.verbs.remembering import Remembered

VERDICT = "verdict.json"
HTML = "report.html"
MARKDOWN = "report.md"


def write_reports(run: Run, judgement: Judgement, folder: Path, history: Timeline | None = None) -> str:
    """Write every kind of report into a folder, all or none; returns the markdown.

    Raises `UsageError` if the extra `report` is not installed or the folder cannot be written.
    """
    extra.require("the report", *extra.REPORTS)
    from harness.report import junit, markdown, sheets
    from harness.report.html import page

    text = markdown.render(run, judgement)
    replace_all(
        {
            folder / VERDICT: verdict_json.render(run, judgement),
            folder / HTML: page.render(run, judgement, history),
            folder / MARKDOWN: text,
            folder / "junit.xml": junit.render(run, judgement),
            folder / "sheets" / "outputs.csv": sheets.render(run.outputs, OutputRow),
            folder / "sheets" / "quantizers.csv": sheets.render(run.quantizers, QuantizerRow),
        }
    )
    return text


def write_verdict(run: Run, judgement: Judgement, folder: Path, history: Timeline | None = None) -> str:
    """As `write_reports`; without the extra `report` verdict.json alone. Then GitHub is told, where there is one."""
    from harness.report import github

    text = ""
    if not extra.absent(*extra.REPORTS):
        text = write_reports(run, judgement, folder, history)
    else:
        write_atomically(folder / VERDICT, verdict_json.render(run, judgement))
    github.announce(run, judgement, text, os.environ, lambda line: print(line, file=sys.stderr))
    return text


def timeline_of(remembered: Remembered) -> Timeline:
    """A history as the page shows it."""
    from harness.report.html.timeline import timeline

    return timeline(remembered.frame, remembered.steps)


def known_history(workspace: Workspace, file: Path | None = None) -> Timeline | None:
    """The timeline of a stored history; None where there is none.

    A file that was not asked for by name and cannot be read is said on standard error, and left out of the report.
    """
    from harness.verbs.remembering import history_file, recall

    if file is None and not history_file(workspace).exists():
        return None
    try:
        return timeline_of(recall(workspace, file))
    except SqnrError as error:
        if file is not None:
            raise
        print(f"sqnr: the report has no history: {error}", file=sys.stderr)
        return None


def keep_in_history(workspace: Workspace, run: Run) -> None:
    """Add a run to the workspace's history. A verdict is worth more: what keeps it out is said, not raised."""
    from harness.verbs.remembering import remember

    try:
        remember(workspace, [run.folder])
    except SqnrError as error:
        print(f"sqnr: the run is not in the history: {error}", file=sys.stderr)


def draw(run: Run, folder: Path) -> list[str]:
    """Draw a run's pictures; a line for each file, and for each thing that is left out.

    Raises `UsageError` if matplotlib is not installed or the folder cannot be written.
    """
    from harness.report import pictures

    return [*map(str, pictures.draw(run, folder)), *pictures.left_out(run)]


def write_history(remembered: Remembered, file: Path) -> Path | None:
    """The page of a history beside its file; None without the extra `report`."""
    if extra.absent(*extra.REPORTS):
        return None
    from harness.report.html import page as pages

    page = file.with_suffix(".html")
    write_atomically(page, pages.render_history(timeline_of(remembered)))
    return page
