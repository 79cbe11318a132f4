"""What `check`, `gate` and `compare` do once there is a judgement: say it, then write the reports."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import SqnrError, TableError
from harness.files import write_atomically
from harness.judge import Judgement, judge_or_none
from harness.report import verdict_json
from harness.report.terminal import console, print_judgement, print_line
from harness.report.text import for_programs
from harness.store import Run
from harness.verbs.reporting import known_history, write_error, write_verdict
from harness.workspace import Workspace

if TYPE_CHECKING:
    from harness.paired import Paired


def judge_and_report(
    workspace: Workspace, run: Run, *, as_json: bool, named: bool = False, bundles: bool = False
) -> Judgement:
    """Judge a run and write into its folder; prints for people, or verdict.json itself for programs.

    With `bundles`, each failing row gets a replay bundle too. A run that was `named` by the user may not be the latest.
    Raises `TableError` for an unreadable baseline, after verdict.json and report.md have been written for that too.
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
    if bundles:
        from harness.verbs.bundling import write_bundles

        write_bundles(run, judgement, as_json=as_json)
    return judgement


def say(run: Run, judgement: Judgement, *, as_json: bool, named: bool) -> None:
    """Print a judgement for people, or verdict.json for programs: before anything is written, it cannot be lost."""
    if as_json:
        print(for_programs(verdict_json.render(run, judgement)), end="")
    else:
        print_judgement(console(), run, judgement, named=named)


def judge_samples(workspace: Workspace, base: Run, head: Run, judgement: Judgement) -> tuple[Judgement, list[Paired]]:
    """A judgement of `head` by `base` with what their samples add to it, and the outputs whose samples moved.

    Where a run has no samples, as those of older versions, or they are damaged, a note says so and nothing is added;
    where only some cannot be paired, as `harness.paired.pairs` finds, a note says which.
    """
    from harness import samples
    from harness.paired import pairs, with_samples

    today = datetime.date.today()
    try:
        sums = samples.read(base.folder), samples.read(head.folder)
    except TableError as error:
        return replace(judgement, notes=(*judgement.notes, f"samples are not compared: {error}")), []
    found, notes = pairs(base, head, *sums, workspace.settings.tolerances(head.plan.suite, today))
    judged = with_samples(judgement, found, workspace.settings, today)
    return replace(judged, notes=(*judged.notes, *notes)), found


def write_samples(folder: Path, found: list[Paired]) -> None:
    """samples.csv into a comparison's folder; where no sample moved there is none, nor an older one."""
    from harness.report import samples

    if found:
        write_atomically(folder / samples.FILE, samples.render(found))
    else:
        (folder / samples.FILE).unlink(missing_ok=True)


def show_folder(folder: Path) -> None:
    """Where the reports are."""
    print_line(console(), f"reports: {folder}")
