"""What `check`, `gate` and `compare` do once there is a judgement: write the reports, and say it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import SqnrError
from harness.files import write_atomically
from harness.judge import Judgement, judge
from harness.report import verdict_json
from harness.report.terminal import console, print_judgement
from harness.store import Run
from harness.verbs.reporting import VERDICT, write_verdict
from harness.workspace import Workspace

if TYPE_CHECKING:
    from harness.report.html.timeline import Timeline


def judge_and_report(
    workspace: Workspace, run: Run, *, as_json: bool, named: bool = False, history: Timeline | None = None
) -> Judgement:
    """Judge a run and write into its folder; prints for people, or verdict.json itself for programs.

    A run that was `named` by the user may not be the latest, so the advice names it too.
    Raises what `judge` raises, after verdict.json has been written for that too.
    """
    try:
        judgement = judge(workspace, run)
    except SqnrError as error:
        write_atomically(run.folder / VERDICT, verdict_json.render_error(run, error))
        raise
    say(run, judgement, as_json=as_json, name=run.name if named else "")
    write_verdict(run, judgement, run.folder, history)
    if not as_json:
        show_folder(run.folder)
    return judgement


def say(run: Run, judgement: Judgement, *, as_json: bool, name: str = "", advise: bool = True) -> None:
    """Print a judgement for people, or verdict.json for programs: before anything is written, it cannot be lost."""
    if as_json:
        print(verdict_json.render(run, judgement), end="")
    else:
        print_judgement(console(), judgement, run=name, advise=advise)


def show_folder(folder: Path) -> None:
    """Where the reports are."""
    console().print(f"reports: {folder}", markup=False, highlight=False, soft_wrap=True)
