"""What is written of a judged run: report.html, report.md, junit.xml, verdict.json, and tables for spreadsheets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness import extra
from harness.errors import SqnrError, in_a_line
from harness.files import replace_all, write_atomically
from harness.judge import Judgement, judge_or_none
from harness.located import FOLDER, Located, read_sound
from harness.records import OutputRow, QuantizerRow
from harness.report import verdict_json
from harness.report.terminal import console, print_judgement, print_line, print_matrix
from harness.report.text import spoken
from harness.store import Run, find_run
from harness.workspace import Workspace

if TYPE_CHECKING:
    from harness.report.html.timeline import Timeline
    from harness.verbs.remembering import Remembered

VERDICT = "verdict.json"
HTML = "report.html"
MARKDOWN = "report.md"
JUNIT = "junit.xml"


def write_reports(run: Run, judgement: Judgement, folder: Path, history: Timeline | None = None) -> None:
    """Write verdict.json and every other report into a folder.

    Raises `UsageError` if the extra `report` is not installed or the folder cannot be written.
    """
    others, _ = _rendered(run, judgement, folder, history)
    replace_all({folder / VERDICT: verdict_json.render(run, judgement), **others})


def _rendered(
    run: Run, judgement: Judgement, folder: Path, history: Timeline | None
) -> tuple[dict[Path, str | bytes], str]:
    """The reports beside verdict.json by their paths, and the markdown among them."""
    extra.require("the report", *extra.REPORTS)
    from harness.report import junit, markdown, sheets
    from harness.report.html import page

    located = located_in(run)
    text = markdown.render(run, judgement, located)
    reports: dict[Path, str | bytes] = {
        folder / HTML: page.render(run, judgement, history, located),
        folder / MARKDOWN: text,
        folder / JUNIT: junit.render(run, judgement),
        folder / "sheets" / "outputs.csv": sheets.render(run.outputs, OutputRow),
        folder / "sheets" / "quantizers.csv": sheets.render(run.quantizers, QuantizerRow),
    }
    return reports, text


def located_in(run: Run) -> list[Located]:
    """What `sqnr locate` found in a run. A damaged record is said on standard error and left out."""
    found, damaged = read_sound(run.folder / FOLDER)
    for error in damaged:
        _say(f"left out of the report: {error}")
    return found


def report_run(
    workspace: Workspace, name: str | None, output: Path | None, figures: Path | None, history: Path | None
) -> None:
    """Print a stored run's tables and its judgement, and write its reports, and its pictures into `figures`."""
    run = find_run(workspace.reports, name)
    judgement = judge_or_none(workspace, run)
    out = console()
    print_matrix(out, run.outputs)
    print_judgement(out, run, judgement, named=name is not None)
    folder = output or run.folder
    write_reports(run, judgement, folder, known_history(workspace, history))
    for line in (*(draw(run, figures) if figures else ()), f"report: {folder / HTML}"):
        print_line(out, line)


def write_verdict(run: Run, judgement: Judgement, folder: Path, history: Timeline | None = None) -> None:
    """verdict.json first of all, then the other reports, then GitHub is told, where there is one.

    Where packages are missing or broken, verdict.json is all: that is said on standard error and changes no verdict.
    Raises `UsageError` if the folder cannot be written.
    """
    from harness.report import github

    _write_alone(folder, verdict_json.render(run, judgement))
    text = ""
    try:
        others, text = _rendered(run, judgement, folder, history)
        replace_all(others)
    except Exception as error:
        if isinstance(error, SqnrError) and not extra.absent(*extra.REPORTS):
            raise
        _say(f"verdict.json is the only report: {_reason(error)}")
    github.announce(run, judgement, text, os.environ, _print)


def write_error(run: Run, error: SqnrError) -> None:
    """What is left of a run that cannot be judged: verdict.json and report.md say why, and older reports are gone."""
    from harness.report import github, markdown

    _write_alone(run.folder, verdict_json.render_error(run, error))
    text = markdown.render_error(run.plan.suite, str(error))
    write_atomically(run.folder / MARKDOWN, text)
    github.announce_error(str(error), text, os.environ, _print)


def _write_alone(folder: Path, verdict: str) -> None:
    """Write verdict.json, and take away reports that would say something else."""
    write_atomically(folder / VERDICT, verdict)
    for name in (HTML, MARKDOWN, JUNIT):
        (folder / name).unlink(missing_ok=True)


def _say(text: str) -> None:
    _print(f"sqnr: {spoken(text)}")


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def timeline_of(remembered: Remembered) -> Timeline:
    """A history as the page shows it."""
    from harness.report.html.timeline import timeline

    return timeline(remembered.frame, remembered.steps, remembered.speeds)


def known_history(workspace: Workspace, file: Path | None = None) -> Timeline | None:
    """The timeline of a stored history; None where there is none.

    A file that was not asked for by name and cannot be read is said on standard error, and left out of the report.
    """
    from harness.verbs.remembering import history_file, recall

    if file is None and not history_file(workspace).exists():
        return None
    try:
        return timeline_of(recall(workspace, file))
    except Exception as error:
        if file is not None:
            raise
        _say(f"the report has no history: {_reason(error)}")
        return None


def keep_in_history(workspace: Workspace, run: Run) -> None:
    """Add a run to the workspace's history. A verdict is worth more: what keeps it out is said, not raised."""
    from harness.verbs.remembering import remember

    try:
        remember(workspace, [run.folder])
    except Exception as error:
        _say(f"the run is not in the history: {_reason(error)}")


def _reason(error: Exception) -> str:
    """A user error's own line, or type and first line of what a broken package raised."""
    return str(error) if isinstance(error, SqnrError) else in_a_line(error)


def draw(run: Run, folder: Path) -> list[str]:
    """Draw a run's pictures; a line for each file, and for each thing that is left out.

    Raises `UsageError` if matplotlib is not installed or the folder cannot be written.
    """
    from harness.report import pictures

    located, _ = read_sound(run.folder / FOLDER)  # of damaged ones the reports speak
    return [*map(str, pictures.draw(run, folder, located)), *pictures.left_out(run, located)]


def write_history(remembered: Remembered, file: Path) -> Path | None:
    """The page of a history beside its file; None where there is no history yet.

    So it is without the extra `report`, and that is said on standard error.
    """
    if not file.exists():
        return None
    if lacking := extra.absent(*extra.REPORTS):
        _say(f"no page of the history: {', '.join(lacking)} not installed")
        return None
    from harness.report.html import page as pages

    page = file.with_suffix(".html")
    write_atomically(page, pages.render_history(timeline_of(remembered)))
    return page
