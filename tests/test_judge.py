"""A stored run against the accepted baselines: what else there is to know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import baseline as baselines
from harness.environment import platform_name
from harness.errors import ExitCode, NoBaselineError
from harness.judge import judge, judge_or_none, judge_runs
from harness.store import INTERRUPTED, RUNNING, Run
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


# Runs of another platform


FOREIGN = {"platform": "plan9-mips", "stack": {"torchao": "0.18"}}


def test_a_run_is_judged_by_the_baselines_of_the_platform_it_was_measured_on(workspace: Workspace) -> None:
    theirs = accepted(replace(RESNET, sqnr_db=50.0), accepted=[journal_entry()])
    baselines.write(workspace.baselines / "plan9-mips", theirs)
    foreign = judge(workspace, run_of(Path("reports/a"), RESNET, environment=FOREIGN), TODAY)
    assert foreign.before.name == "baseline plan9-mips"
    assert [verdict.outcome for verdict in foreign.verdicts] == [Outcome.REGRESSED]
    here = {**FOREIGN, "platform": platform_name()}
    own = judge(workspace, run_of(Path("reports/a"), RESNET, environment=here), TODAY)
    assert own.before.name == f"baseline {platform_name()}"
    assert (own.acceptable, foreign.acceptable) == (True, False)
    assert [verdict.outcome for verdict in own.verdicts] == [Outcome.OK]


def test_a_run_of_a_platform_without_baselines_is_not_judged_by_those_of_this_one(workspace: Workspace) -> None:
    run = run_of(Path("reports/a"), RESNET, environment=FOREIGN)
    with pytest.raises(NoBaselineError, match="no baselines for plan9-mips, where run a was measured") as caught:
        judge(workspace, run, TODAY)
    assert caught.value.exit_code == ExitCode.INCOMPLETE
    judgement = judge_or_none(workspace, run)
    assert str(caught.value) in judgement.notes
    assert not judgement.acceptable


# What else there is to know


def test_a_run_without_baseline_still_says_that_it_was_interrupted_and_what_expired(tmp_path: Path) -> None:
    settings = settings_from(waive=[{"reason": "issue 7", "until": "2026-01-30"}])
    run = run_of(Path("reports/a"), RESNET, status=INTERRUPTED)
    _, expired, unfinished = judge_or_none(workspace_at(tmp_path, settings), run, TODAY).notes
    assert expired == "waiver expired on 2026-01-30: issue 7"
    assert unfinished == "the run is interrupted: what it did not reach is missing"


def notes(base: Run, head: Run, **settings: Any) -> tuple[str, ...]:
    """What is said when two runs are compared."""
    return judge_runs(workspace_at(Path(), settings_from(**settings)), base=base, head=head, today=TODAY).notes


def compared(base: dict[str, Any], head: dict[str, Any]) -> tuple[str, ...]:
    """The notes on two runs of the same row with these fields."""
    return notes(*(run_of(Path(f"reports/{name}"), RESNET, **some) for name, some in (("a", base), ("b", head))))


def test_comparing_two_alike_runs_has_no_notes() -> None:
    assert compared({}, {}) == ()


def test_a_side_that_is_not_complete_says_so() -> None:
    assert compared({"status": INTERRUPTED}, {}) == ("run a is interrupted: what it did not reach is new",)
    assert compared({}, {"status": RUNNING}) == ("run b is running: what it did not reach is missing",)


def test_expired_overrides_and_waivers_are_told_when_runs_are_compared() -> None:
    gone = {"reason": "issue 7", "until": "2026-01-30"}
    runs = [run_of(Path(f"reports/{name}"), RESNET) for name in "ab"]
    told = notes(*runs, waive=[gone], override=[{**gone, "tolerance": {"sqnr_drop_db": 9.0}}])
    assert told == ("override expired on 2026-01-30: issue 7", "waiver expired on 2026-01-30: issue 7")


@pytest.mark.parametrize(
    ("base", "head", "note"),
    [
        ({"suite": "gate"}, {"suite": "nightly"}, "suites differ: gate, nightly"),
        ({"seed": 0}, {"seed": 7}, "seeds differ: 0, 7"),
        (
            {"environment": {"platform": "linux-x86_64"}},
            {"environment": {"platform": "darwin-aarch64"}},
            "platforms differ: linux-x86_64, darwin-aarch64",
        ),
        (
            {"environment": {"pins": {"MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}}},
            {"environment": {"pins": {"MKL_CBWR": "", "OMP_NUM_THREADS": "1"}}},
            "pin MKL_CBWR differs: COMPATIBLE, none",
        ),
    ],
)
def test_what_makes_two_runs_hard_to_compare_is_a_note(base: dict[str, Any], head: dict[str, Any], note: str) -> None:
    assert compared(base, head) == (note,)


def test_what_one_run_did_not_record_is_no_difference() -> None:
    recorded = {"environment": {"platform": "linux-x86_64", "pins": {"MKL_CBWR": "COMPATIBLE"}}}
    assert compared(recorded, {"environment": {}}) == ()
