"""Two runs sample by sample: deltas a reader can redo, and when a sample has collapsed."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ExitCode
from harness.judge import Judgement, judge_runs
from harness.measure.bootstrap import Array
from harness.paired import Paired, Sample, pair, pairs, with_samples
from harness.report.samples import render, sentence
from harness.samples import name_of
from harness.settings import Settings, Tolerance
from harness.verdicts import Outcome
from tests.rows import output_row, run_of, settings_from, workspace_at

TODAY = datetime.date(2026, 1, 31)
ROW = output_row()


def levels(*decibels: float) -> Array:
    """Sums of samples of signal 1 at these SQNRs."""
    return np.array([[1.0] * len(decibels), [10 ** (-level / 10) for level in decibels]])


def of(base: Array, head: Array) -> Paired | None:
    return pair(ROW, Tolerance(), base=base, head=head)


def collapsed(base: Array, head: Array) -> list[int]:
    found = of(base, head)
    return [] if found is None else [sample.index for sample in found.collapsed]


# Deltas


def test_median_and_worst_are_of_the_same_samples_in_both() -> None:
    found = of(levels(40, 30, 35, 38, 36), levels(40, 29, 36, 38, 33))
    assert found is not None
    assert (found.samples, found.moved) == (5, 3)
    assert found.median_db == 0  # of 0, -1, +1, 0, -3
    assert found.worst == Sample(4, pytest.approx(36), pytest.approx(33))
    assert found.worst.delta_db == pytest.approx(-3)


def test_the_change_of_the_whole_is_that_of_the_sums() -> None:
    """Noise 1e-2 + 1e-2 becomes 1e-2 + 2e-2: 3 / 2 of it."""
    found = of(np.array([[1, 1], [0.01, 0.01]]), np.array([[1, 1], [0.01, 0.02]]))
    assert found is not None
    assert found.change_db == pytest.approx(-10 * math.log10(1.5))
    assert found.interval_db == pytest.approx((-10 * math.log10(2), 0), abs=1e-9)  # sample 1 twice; sample 0 twice


def test_equal_samples_have_not_moved() -> None:
    assert of(levels(40, 30), levels(40, 30)) is None


def test_above_80_db_on_both_sides_a_difference_is_rounding() -> None:
    assert of(levels(140, 81), levels(120, 90)) is None
    found = of(levels(140, 90), levels(79, 90))
    assert found is not None
    assert (found.moved, found.worst.index) == (1, 0)


def test_a_sample_without_a_signal_has_no_sqnr_and_is_left_out() -> None:
    base, head = levels(40, 40, 40), levels(40, 40, 39)
    base[0, 0] = head[0, 0] = 0
    found = of(base, head)
    assert found is not None
    assert (found.samples, found.worst.index) == (2, 2)


def test_other_samples_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="2 samples cannot be paired with 3"):
        of(levels(40, 40), levels(40, 40, 40))


# Collapse

SET = [30.0 + at % 20 for at in range(200)]
"""200 samples from 30 to 49 dB, ten at each."""


def changed(**to: float) -> Array:
    """The set with some samples at another SQNR."""
    return levels(*(to.get(f"s{at}", level) for at, level in enumerate(SET)))


def test_one_sample_that_fell_among_hundreds_that_did_not_has_collapsed() -> None:
    assert collapsed(levels(*SET), changed(s77=5.0)) == [77]


def test_it_is_found_where_a_bad_sample_hides_it_from_the_worst() -> None:
    """sqnr_min_db stays at 4 dB, and among 200 samples a few dB in one leave the mean as it was."""
    bad = changed(s0=4.0)
    signal = np.ones(200)
    signal[77] = 1e-4  # a sample of small signal: its noise is nothing to the sum
    base, head = bad * signal, changed(s0=4.0, s77=5.0) * signal
    found = of(base, head)
    assert found is not None
    assert [sample.index for sample in found.collapsed] == [77]
    assert found.change_db == pytest.approx(0, abs=0.01)


def test_a_drop_within_the_allowance_is_none() -> None:
    """From 30 dB, the lowest there was, to 28.6."""
    assert collapsed(levels(*SET), changed(s0=28.6)) == []
    assert collapsed(levels(*SET), changed(s0=28.4)) == [0]


def test_a_drop_that_ends_where_other_samples_always_were_is_none() -> None:
    """From 49 to 29 dB, where the lowest are at 30."""
    assert collapsed(levels(*SET), changed(s19=29.0)) == []


def test_a_drop_as_far_as_others_rose_is_noise() -> None:
    """s0 fell by 6 dB, to 24; s1 rose by 4: noise is even-handed. Had it risen by 2, the drop would stand alone."""
    assert collapsed(levels(*SET), changed(s0=24.0, s1=35.0)) == []
    assert collapsed(levels(*SET), changed(s0=24.0, s1=33.0)) == [0]


def test_what_all_samples_gained_hides_no_collapse() -> None:
    better = levels(*(level + 10 for level in SET))
    better[:, 3] = levels(20.0)[:, 0]
    assert collapsed(levels(*SET), better) == [3]


def test_several_collapse_the_worst_first() -> None:
    assert collapsed(levels(*SET), changed(s3=9.0, s4=5.0)) == [4, 3]


# The judgement


def compared(
    tmp_path: Path, base: Array, head: Array, settings: Settings | None = None
) -> tuple[Judgement, list[Paired], list[str]]:
    """Both runs have the same row, 30 dB and 20 at worst, but these samples."""
    workspace = workspace_at(tmp_path, settings)
    runs = [run_of(tmp_path / "reports" / name, ROW) for name in ("base", "head")]
    judgement = judge_runs(workspace, base=runs[0], head=runs[1], today=TODAY)
    before, after = ({name_of(ROW.key): side} for side in (base, head))
    found, notes = pairs(*runs, before, after, workspace.settings.tolerances("gate", TODAY))
    return with_samples(judgement, found, workspace.settings, TODAY), found, notes


def test_a_collapsed_sample_is_a_regression_though_mean_and_worst_are_as_they_were(tmp_path: Path) -> None:
    judgement, _, _ = compared(tmp_path, levels(*SET), changed(s77=5.0))
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
    judgement, _, _ = compared(tmp_path, levels(*SET), changed(s77=5.0), settings)
    assert [(verdict.outcome, verdict.waived) for verdict in judgement.verdicts] == [(Outcome.REGRESSED, "known")]
    assert judgement.exit_code is ExitCode.OK


def test_the_allowance_is_that_of_the_worst_sample(tmp_path: Path) -> None:
    settings = settings_from(tolerance={"sqnr_min_drop_db": 50.0})
    assert compared(tmp_path, levels(*SET), changed(s77=5.0), settings)[0].exit_code is ExitCode.OK


def test_what_cannot_be_paired_is_said(tmp_path: Path) -> None:
    _, found, notes = compared(tmp_path, levels(*SET), levels(40, 40))
    assert (found, notes) == ([], ["1 outputs have another number of samples and are not paired"])
    runs = [run_of(tmp_path / name, ROW) for name in ("base", "head")]
    assert pairs(*runs, {}, {}, lambda _row: Tolerance())[1] == ["1 outputs have no samples in one of the runs"]


# What is written


def test_a_sentence_names_three_and_counts_the_rest() -> None:
    found = of(levels(*SET), changed(s1=5.0, s2=6.0, s3=7.0, s4=8.0))
    assert found is not None
    assert sentence(found) == (
        "resnet/small/trained x86-static converted logits: 4 of 200 samples collapsed: sample 1 31.00 -> 5.00 dB; "
        "sample 2 32.00 -> 6.00 dB; sample 3 33.00 -> 7.00 dB; and 1 more"
    )


def test_the_csv_holds_every_output_exactly() -> None:
    found = of(levels(40, 40, 40), levels(40, 40, 39))
    assert found is not None
    header, line = render([found]).splitlines()
    cells = dict(zip(header.split(","), line.split(","), strict=True))
    assert [cells[name] for name in ("model", "output", "samples", "moved")] == ["resnet", "logits", "3", "1"]
    assert float(cells["worst_db"]) == found.worst.delta_db
    assert (cells["worst_sample"], cells["collapsed"]) == ("2", "")
