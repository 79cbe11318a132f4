"""Two runs whose samples are paired: what that adds to the judgement, and what is not paired and why."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ExitCode
from harness.judge import Judgement, judge_runs
from harness.measure.bootstrap import Array
from harness.measure.decibels import db
from harness.paired import Paired, pairs, with_samples
from harness.records import OutputRow
from harness.samples import name_of
from harness.settings import Settings, Tolerance
from harness.verdicts import Outcome
from tests.paired_sets import ROW, SET, changed, levels, quiet
from tests.rows import output_row, run_of, settings_from, workspace_at

TODAY = datetime.date(2026, 1, 31)
BASE, HEAD = quiet(levels(*SET), 77), quiet(changed(s77=5.0), 77)
"""s77 collapses, the sum hardly changes."""
NAME = name_of(ROW.key)


def row_of(sums: Array) -> OutputRow:
    """The row of these samples, as a run has it, but 20 dB at worst."""
    return output_row(sqnr_db=db(float(sums[0].sum()), float(sums[1].sum())))


def compared(
    tmp_path: Path,
    base: Array = BASE,
    head: Array = HEAD,
    settings: Settings | None = None,
    rows: tuple[OutputRow, OutputRow] | None = None,
    inputs: tuple[list[str], list[str]] = ([], []),
) -> tuple[Judgement, list[Paired], list[str]]:
    """Two runs with these samples and their rows, whose evaluation batches have these hashes."""
    workspace = workspace_at(tmp_path, settings)
    before, after = [
        run_of(tmp_path / "reports" / name, row, input_hashes={"resnet/small/trained": {"evaluation": hashes}})
        for name, row, hashes in zip(("base", "head"), rows or (row_of(base), row_of(head)), inputs, strict=True)
    ]
    judgement = judge_runs(workspace, base=before, head=after, today=TODAY)
    found, notes = pairs(before, after, {NAME: base}, {NAME: head}, workspace.settings.tolerances("gate", TODAY))
    return with_samples(judgement, found, workspace.settings, TODAY), found, notes


def test_a_collapsed_sample_is_a_regression_though_mean_and_worst_are_as_they_were(tmp_path: Path) -> None:
    judgement, _, _ = compared(tmp_path)
    (verdict,) = judgement.verdicts
    (finding,) = verdict.findings
    assert (verdict.outcome, judgement.exit_code) == (Outcome.REGRESSED, ExitCode.REGRESSED)
    assert (finding.field, finding.allowed) == ("sample_77_db", 1.5)
    assert (finding.old, finding.new) == (pytest.approx(47), pytest.approx(5))
    assert verdict.loss_db == pytest.approx(42)


def test_samples_that_moved_without_a_collapse_change_no_verdict(tmp_path: Path) -> None:
    judgement, found, _ = compared(tmp_path, levels(*SET), changed(s77=46.0))
    assert [verdict.outcome for verdict in judgement.verdicts] == [Outcome.OK]
    assert (judgement.exit_code, len(found)) == (ExitCode.OK, 1)


def test_a_waived_row_shows_it_and_does_not_fail(tmp_path: Path) -> None:
    settings = settings_from(waive=[{"model": "resnet", "reason": "known"}])
    judgement, _, _ = compared(tmp_path, settings=settings)
    assert [(verdict.outcome, verdict.waived) for verdict in judgement.verdicts] == [(Outcome.REGRESSED, "known")]
    assert judgement.exit_code is ExitCode.OK


def test_the_allowance_is_that_of_the_worst_sample(tmp_path: Path) -> None:
    settings = settings_from(tolerance={"sqnr_min_drop_db": 50.0})
    assert compared(tmp_path, settings=settings)[0].exit_code is ExitCode.OK


def test_what_cannot_be_paired_is_said(tmp_path: Path) -> None:
    _, found, notes = compared(tmp_path, levels(*SET), levels(40, 40))
    assert (found, notes) == ([], ["1 outputs have another number of samples and are not paired"])
    before, after = [run_of(tmp_path / name, ROW) for name in ("base", "head")]
    assert pairs(before, after, {}, {}, lambda _row: Tolerance())[1] == ["1 outputs have no samples in one of the runs"]


def test_samples_of_other_data_are_not_the_same_samples(tmp_path: Path) -> None:
    judgement, found, notes = compared(tmp_path, inputs=(["aa", "bb"], ["aa", "cc"]))
    assert (found, judgement.exit_code) == ([], ExitCode.OK)
    assert notes == ["evaluation data are not the same in both runs: samples are not paired of resnet/small/trained"]


@pytest.mark.parametrize("inputs", [([], ["aa"]), (["aa"], []), (["aa"], ["aa"])])
def test_without_hashes_on_a_side_or_with_the_same_they_are_paired(
    tmp_path: Path, inputs: tuple[list[str], list[str]]
) -> None:
    _, found, notes = compared(tmp_path, inputs=inputs)
    assert (len(found), notes) == (1, [])


def test_samples_that_do_not_add_up_to_their_row_are_named_and_left_out(tmp_path: Path) -> None:
    """Twice the noise in all of head's samples, 3.01 dB less than the row says: of another run, or edited."""
    level = row_of(BASE).sqnr_db
    assert level is not None
    _, found, notes = compared(tmp_path, BASE, BASE * np.array([[1], [2]]), rows=(row_of(BASE), row_of(BASE)))
    assert found == []
    assert notes == [
        "samples of head do not add up to outputs.csv and are not paired: "
        f"{NAME} ({level - 10 * math.log10(2):.9g} dB, its row {level:.9g}): measure again"
    ]


def test_above_the_cap_they_add_up_to_160_db(tmp_path: Path) -> None:
    """Signal 2 and noise 2e-18 would be 180 dB."""
    base = np.array([[1.0, 1.0], [1e-18, 1e-18]])
    assert row_of(base).sqnr_db == 160
    assert compared(tmp_path, base, base)[2] == []


def test_a_sample_with_noise_and_no_signal_that_changed_is_said(tmp_path: Path) -> None:
    """It has no SQNR in either run; nothing else moved."""
    base = levels(*SET)
    base[0, 0] = 0
    head = base.copy()
    head[1, 0] *= 2
    _, found, notes = compared(tmp_path, base, head)
    assert (found, notes) == (
        [],
        ["1 outputs have moved samples with noise and no signal: without an SQNR they are not paired"],
    )
