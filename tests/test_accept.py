"""Turning a run into the baseline: what is replaced, and what is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import baseline as baselines
from harness.accept import Proposal, Request, propose, write
from harness.baseline import Baseline
from harness.noise_floor import NoiseFloor
from harness.records import Row
from harness.store import INTERRUPTED, Run
from tests.rows import accepted, by_key, case, journal_entry, output_row, quantizer_row, run_of, workspace_at

ALL = Request("better observer")
RESNET, VIT, WEIGHT = output_row(), output_row(model="vit"), quantizer_row()
BETTER = replace(RESNET, sqnr_db=40.0)


def run(*rows: Row, **changes: Any) -> Run:
    return run_of(Path("reports/20260131-gate"), *rows, **changes)


# What changes


def changes_of(proposal: Proposal) -> list[tuple[Row | None, Row | None]]:
    return [(change.old, change.new) for change in proposal.changes]


def proposed(which: Run, present: Baseline, request: Request = ALL, noise: NoiseFloor | None = None) -> Proposal:
    return propose(which, request, present, noise)


def test_an_unchanged_run_proposes_no_change() -> None:
    assert proposed(run(RESNET, WEIGHT), accepted(RESNET, WEIGHT)).changes == ()


def test_a_row_is_replaced_added_or_removed() -> None:
    gone, added = output_row(output="gone"), output_row(output="added")
    proposal = proposed(run(BETTER, added), accepted(RESNET, gone))
    assert changes_of(proposal) == [(None, added), (gone, None), (RESNET, BETTER)]  # in the order of the keys
    assert proposal.baseline.outputs == by_key([BETTER, added])


def test_quantizers_are_replaced_added_and_removed_too() -> None:
    moved, gone = replace(WEIGHT, hi=1.0), quantizer_row(quantizer="gone")
    proposal = proposed(run(RESNET, moved), accepted(RESNET, WEIGHT, gone))
    assert proposal.baseline.quantizers == by_key([moved])
    assert changes_of(proposal) == [(WEIGHT, moved), (gone, None)]


def test_a_quantizer_of_one_point_is_replaced_without_its_namesake_at_the_other() -> None:
    lowered = quantizer_row(point="lowered")
    moved = replace(lowered, hi=1.0)
    request = Request("r", rows=("*/lowered/*",))
    proposal = proposed(run(replace(WEIGHT, hi=1.0), moved), accepted(WEIGHT, lowered), request)
    assert changes_of(proposal) == [(lowered, moved)]


def test_the_present_baseline_is_left_as_it_is() -> None:
    present = accepted(RESNET, accepted=[journal_entry()])
    proposed(run(BETTER, VIT), present)
    assert present == accepted(RESNET, accepted=[journal_entry()])


@pytest.mark.parametrize(
    "request_",
    [Request("r", models=("res*",)), Request("r", rows=("resnet/*/logits",)), Request("r", flows=("x86-*",))],
)
def test_only_the_rows_that_were_asked_for_change(request_: Request) -> None:
    other = output_row(model="vit", flow="arm")
    measured = run(BETTER, replace(other, sqnr_db=50.0))
    assert changes_of(proposed(measured, accepted(RESNET, other), request_)) == [(RESNET, BETTER)]


def test_a_row_accepted_by_name_takes_no_neighbour_along() -> None:
    first, second = output_row(output="a"), output_row(output="b")
    request = Request("r", rows=("*/a",))
    proposal = proposed(run(replace(first, sqnr_db=40.0)), accepted(first, second), request)
    assert [change.new.key[-1] if change.new else None for change in proposal.changes] == ["a"]


def test_a_whole_run_removes_the_rows_of_a_model_that_is_gone() -> None:
    removed = output_row(model="removed")
    assert changes_of(proposed(run(RESNET), accepted(RESNET, removed))) == [(removed, None)]


def test_a_run_leaves_what_another_suite_plans_alone() -> None:
    full = output_row(size="full", weights="seeded")
    measured = run(RESNET, any_suite=[case(), full.case])
    assert proposed(measured, accepted(RESNET, full)).changes == ()


def test_a_filtered_run_removes_no_row_of_what_it_did_not_plan() -> None:
    request = Request("r", flows=("*",))
    measured = run(BETTER, filtered=True, any_suite=[case()])
    assert changes_of(proposed(measured, accepted(RESNET, VIT), request)) == [(RESNET, BETTER)]


def test_a_run_that_did_not_finish_removes_no_row_it_did_not_reach() -> None:
    partial = run(BETTER, cases=[RESNET.case, VIT.case], status=INTERRUPTED)
    vits_weight = quantizer_row(model="vit")
    proposal = proposed(partial, accepted(RESNET, VIT, vits_weight), Request("r", models=("*",)))
    assert changes_of(proposal) == [(RESNET, BETTER)]


# Noise


def test_the_stored_noise_is_kept_when_none_was_measured() -> None:
    present = accepted(replace(RESNET, noise_db=0.25), replace(WEIGHT, noise_rel=0.125))
    baseline = proposed(run(BETTER, replace(WEIGHT, hi=1.0)), present).baseline
    assert baseline.outputs[RESNET.key] == replace(BETTER, noise_db=0.25)
    assert baseline.quantizers[WEIGHT.key] == replace(WEIGHT, hi=1.0, noise_rel=0.125)


def test_measured_noise_takes_the_place_of_the_stored_one_and_a_row_without_loses_it() -> None:
    present = accepted(replace(RESNET, noise_db=0.25), replace(VIT, noise_db=0.25), replace(WEIGHT, noise_rel=0.125))
    noise = NoiseFloor({RESNET.key: 0.5}, {WEIGHT.key: 0.75})
    baseline = proposed(run(RESNET, VIT, WEIGHT), present, noise=noise).baseline
    assert [baseline.outputs[row.key].noise_db for row in (RESNET, VIT)] == [0.5, None]
    assert baseline.quantizers[WEIGHT.key].noise_rel == 0.75


def test_rows_that_were_not_asked_for_keep_their_noise() -> None:
    present = accepted(replace(RESNET, noise_db=0.25), replace(VIT, noise_db=0.25))
    noise = NoiseFloor({RESNET.key: 0.5, VIT.key: 0.5}, {})
    baseline = proposed(run(RESNET, VIT), present, Request("r", models=("vit",)), noise).baseline
    assert [baseline.outputs[row.key].noise_db for row in (RESNET, VIT)] == [0.25, 0.5]


# The journal


def accept_into(root: Path, which: Run, request: Request, present: Baseline) -> Baseline:
    workspace = workspace_at(root)
    write(workspace, which, request, propose(which, request, present, None))
    return baselines.read(workspace.platform_baselines)


def test_an_accept_is_recorded_with_its_reason_its_subjects_and_the_stack(tmp_path: Path) -> None:
    written = accept_into(tmp_path, run(BETTER, VIT), ALL, accepted(RESNET, accepted=[journal_entry()]))
    assert written.outputs == by_key([BETTER, VIT])
    first, entry = written.accepted
    assert first == journal_entry()
    assert (entry["because"], entry["suite"], entry["rows"]) == ("better observer", "gate", 2)
    assert entry["subjects"] == ["resnet/small/trained", "vit/small/trained"]
    assert (entry["stack"], entry["cpu"]) == ({"torchao": "0.18"}, "a cpu")
    assert written.stack_of(case()) == {"torchao": "0.18"}


def test_the_journal_names_only_what_was_taken_over(tmp_path: Path) -> None:
    written = accept_into(tmp_path, run(BETTER, VIT), Request("r", models=("vit",)), Baseline())
    assert written.accepted[-1]["subjects"] == ["vit/small/trained"]


def test_accepting_a_single_quantizer_names_its_subject_too(tmp_path: Path) -> None:
    measured = run(RESNET, replace(WEIGHT, hi=1.0))
    written = accept_into(tmp_path, measured, Request("r", rows=("*/conv1*",)), accepted(RESNET, WEIGHT))
    assert written.accepted[-1]["rows"] == 1
    assert written.accepted[-1]["subjects"] == ["resnet/small/trained"]


def test_accepting_the_same_run_again_changes_no_row(tmp_path: Path) -> None:
    measured = run(BETTER, WEIGHT)
    written = accept_into(tmp_path, measured, ALL, Baseline())
    assert propose(measured, ALL, written, None).changes == ()
