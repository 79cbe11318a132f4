"""What `check`, `gate` and `compare` do once there is a judgement: say it, then write the reports."""

from __future__ import annotations

from pathlib import Path

from harness.errors import SqnrError
from harness.judge import Judgement, judge_or_none
from harness.report import verdict_json
from harness.report.terminal import console, print_judgement, print_line
from harness.store import Run
from harness.verbs.reporting import known_history, write_error, write_verdict
from harness.workspace import Workspace


def judge_and_report(workspace: Workspace, run: Run, *, as_json: bool, named: bool = False) -> Judgement:
    """Judge a run and write into its folder; prints for people, or verdict.json itself for programs.

    A run that was `named` by the user may not be the latest. Raises `TableError` for an unreadable baseline, after
    verdict.json and report.md have been written for that too.
    """
    try:
        judgement = judge_or_none(workspace, run)
    except SqnrError as error:
        write_error(run, error)
        raise
    say(run, judgement, as_json=as_json, named=named)
    write_verdict(run, judgement, run.folder, known_history(workspace))
    if not as_json:
        show_folder(run.folder)
    return judgement


def say(run: Run, judgement: Judgement, *, as_json: bool, named: bool) -> None:
    """Print a judgement for people, or verdict.json for programs: before anything is written, it cannot be lost."""
    if as_json:
        # GitHub looks for `##[` in every line; JSON has another spelling for it.
        print(verdict_json.render(run, judgement).replace("##[", "##\\u005b"), end="")
    else:
        print_judgement(console(), run, judgement, named=named)


def show_folder(folder: Path) -> None:
    """Where the reports are."""
    print_line(console(), f"reports: {folder}")
