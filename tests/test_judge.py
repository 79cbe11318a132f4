"""A stored run against the accepted baselines: what else there is to know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import baseline as baselines
from harness.errors import NoBaselineError
from harness.judge import judge, judge_or_none, judge_runs
from harness.store import INTERRUPTED
from harness.verdicts import Outcome
from harness.workspace import Workspace
from tests.judging import TODAY
from tests.rows import accepted, case, journal_entry, output_row, run_of, settings_from, workspace_at

RESNET, VIT = output_row(), output_row(model="vit")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace that accepted resnet with torchao 0.17; runs are measured with 0.18."""
    made = workspace_at(tmp_path)
    baselines.write(made.platform_baselines, accepted(RESNET, accepted=[journal_entry()]))
    return made


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_another_stack_is_a_note_and_no_reason_not_to_compare(workspace: Workspace) -> None:
    judgement = judge(workspace, run_of(Path("reports/a"), RESNET), TODAY)
    assert [verdict.outcome for verdict in judgement.verdicts] == [Outcome.OK]
    assert judgement.exit_code == 0
    assert judgement.notes == ("torchao 0.17 -> 0.18",)


def test_an_interrupted_run_says_so_and_what_it_did_not_reach_is_missing(workspace: Workspace) -> None:
    run = run_of(Path("reports/a"), cases=[case()], status=INTERRUPTED)
    judgement = judge(workspace, run, TODAY)
    assert judgement.exit_code == 4
    assert "the run is interrupted: what it did not reach is missing" in judgement.notes


def test_an_expired_waiver_is_told_and_no_longer_helps(workspace: Workspace) -> None:
    waived = replace(workspace, settings=settings_from(waive=[{"reason": "issue 7", "until": "2026-01-30"}]))
    judgement = judge(waived, run_of(Path("reports/a"), replace(RESNET, sqnr_db=1.0)), TODAY)
    assert judgement.exit_code == 1
    assert "waiver expired on 2026-01-30: issue 7" in judgement.notes


def test_judging_writes_nothing(workspace: Workspace) -> None:
    before = files(workspace.start)
    judge(workspace, run_of(workspace.reports / "a", replace(RESNET, sqnr_db=1.0), VIT), TODAY)
    assert files(workspace.start) == before


def test_without_a_baseline_every_row_is_new_and_the_run_incomplete(tmp_path: Path) -> None:
    workspace, run = workspace_at(tmp_path), run_of(Path("reports/a"), RESNET, VIT)
    with pytest.raises(NoBaselineError):
        judge(workspace, run, TODAY)
    judgement = judge_or_none(workspace, run)
    assert [verdict.outcome for verdict in judgement.verdicts] == [Outcome.NEW] * 2
    assert judgement.exit_code == 4
    assert "no baselines for this platform" in judgement.notes[0]


def test_two_runs_are_compared_in_full_whatever_they_planned(workspace: Workspace) -> None:
    base = run_of(Path("reports/a"), RESNET, filtered=True, environment={"stack": {"torch": "2.9"}})
    head = run_of(Path("reports/b"), VIT, filtered=True, environment={"stack": {"torchao": "0.18"}})
    judgement = judge_runs(workspace, base=base, head=head)
    assert {verdict.case.model: verdict.outcome for verdict in judgement.verdicts} == {
        "resnet": Outcome.MISSING,
        "vit": Outcome.NEW,
    }
    assert judgement.notes == ("torch 2.9 -> not installed", "torchao not installed -> 0.18")
