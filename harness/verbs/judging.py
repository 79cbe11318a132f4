"""What `check` and `gate` do once there is a run: judge it, leave verdict.json and report.md, and say it."""

from __future__ import annotations

from harness.errors import SqnrError
from harness.files import write_atomically
from harness.judge import Judgement, judge
from harness.report import markdown, verdict_json
from harness.report.terminal import console, print_judgement
from harness.store import Run
from harness.workspace import Workspace


def judge_and_report(workspace: Workspace, run: Run, *, as_json: bool, named: bool = False) -> Judgement:
    """Judge a run and write into its folder; prints for people, or verdict.json itself for programs.

    A run that was `named` by the user may not be the latest, so the advice names it too.
    Raises what `judge` raises, after verdict.json has been written for that too.
    """
    path = run.folder / "verdict.json"
    try:
        judgement = judge(workspace, run)
    except SqnrError as error:
        write_atomically(path, verdict_json.render_error(run, error))
        raise
    text = verdict_json.render(run, judgement)
    write_atomically(path, text)
    if markdown.available():
        write_atomically(run.folder / "report.md", markdown.render(run, judgement))
    if as_json:
        print(text, end="")
    else:
        print_judgement(console(), judgement, run=run.name if named else "")
        console().print(f"run: {run.folder}", markup=False, highlight=False, soft_wrap=True)
    return judgement
