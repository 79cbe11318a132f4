"""The judgement on one output: each rule with numbers a reader can check in the head."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.records import STATUSES, OutputRow
from harness.verdicts import NEVER_GOOD, Finding, Outcome, Verdict
from tests.judging import CHANGED, FAILED, IMPROVED, MISSING, NEW, OK, REGRESSED, fields_of, judge
from tests.rows import no_number, output_row, with_nan


def judged(old: dict[str, Any], new: dict[str, Any], **options: Any) -> Verdict:
    """The verdict on an output with these fields before and after; all else is equal."""
    return judge(output_row(**old), output_row(**new), **options)


def test_an_output_that_did_not_move_is_ok() -> None:
    verdict = judge(output_row(), output_row())
    assert (verdict.outcome, verdict.findings) == (OK, ())


# Drops


@pytest.mark.parametrize(
    ("now", "outcome"), [(29.5, OK), (29.499, REGRESSED), (0.0, REGRESSED), (30.5, OK), (30.501, IMPROVED)]
)
def test_half_a_decibel_of_the_mean_is_allowed_and_not_a_hair_more(now: float, outcome: Outcome) -> None:
    assert judged({"sqnr_db": 30.0}, {"sqnr_db": now}).outcome is outcome


def test_a_regression_says_what_it_was_what_it_is_what_was_allowed_and_what_was_lost() -> None:
    verdict = judged({"sqnr_db": 30.0}, {"sqnr_db": 24.0})
    assert verdict.findings == (Finding("sqnr_db", 30.0, 24.0, 0.5),)
    assert verdict.loss_db == 6.0
    assert (verdict.kind, verdict.label) == ("output", "converted logits")


@pytest.mark.parametrize(("noise", "now", "outcome"), [(0.5, 28.5, OK), (0.5, 28.4, REGRESSED), (0.1, 29.4, REGRESSED)])
def test_three_times_the_noise_floor_raises_the_allowance_but_never_lowers_it(
    noise: float, now: float, outcome: Outcome
) -> None:
    assert judged({"sqnr_db": 30.0, "noise_db": noise}, {"sqnr_db": now}).outcome is outcome


def test_an_improvement_has_to_leave_the_noise_too() -> None:
    assert judged({"sqnr_db": 30.0, "noise_db": 0.5}, {"sqnr_db": 31.5}).outcome is OK
    assert judged({"sqnr_db": 30.0, "noise_db": 0.5}, {"sqnr_db": 31.6}).outcome is IMPROVED


@pytest.mark.parametrize(("now", "outcome"), [(18.5, OK), (18.4, REGRESSED), (40.0, OK)])
def test_the_worst_sample_may_drop_a_decibel_and_a_half(now: float, outcome: Outcome) -> None:
    assert judged({"sqnr_min_db": 20.0}, {"sqnr_min_db": now}).outcome is outcome


def test_a_better_mean_does_not_make_up_for_a_worse_worst_sample() -> None:
    verdict = judged({"sqnr_db": 30.0, "sqnr_min_db": 20.0}, {"sqnr_db": 35.0, "sqnr_min_db": 15.0})
    assert verdict.outcome is REGRESSED
    assert fields_of(verdict) == ["sqnr_min_db"]


@pytest.mark.parametrize(("suite", "outcome"), [("nightly", REGRESSED), ("gate", OK), ("ad-hoc", OK)])
def test_nightly_allows_a_quarter_of_a_decibel(suite: str, outcome: Outcome) -> None:
    assert judged({"sqnr_db": 30.0}, {"sqnr_db": 29.75}, suite=suite).outcome is OK
    assert judged({"sqnr_db": 30.0}, {"sqnr_db": 29.625}, suite=suite).outcome is outcome


@pytest.mark.parametrize(
    ("old", "new", "outcome"), [(160.0, 81.0, OK), (81.0, 160.0, OK), (160.0, 80.0, REGRESSED), (80.0, 160.0, IMPROVED)]
)
def test_above_80_db_on_both_sides_a_difference_is_rounding(old: float, new: float, outcome: Outcome) -> None:
    assert judged({"sqnr_db": old}, {"sqnr_db": new}).outcome is outcome


@pytest.mark.parametrize(("now", "outcome"), [(0.875, OK), (0.86, REGRESSED), (1.0, OK)])
def test_top_1_may_drop_one_point_in_a_hundred(now: float, outcome: Outcome) -> None:
    verdict = judged({"task_metric": 0.875}, {"task_metric": now})
    assert verdict.outcome is outcome
    assert fields_of(verdict) == ([] if outcome is OK else ["task_metric"])


# Controls, which need no baseline


def test_a_prepared_graph_that_is_not_the_float_model_fails_even_when_new() -> None:
    row = output_row(point="prepared", sqnr_db=99.0)
    assert judge(None, row).outcome is REGRESSED
    assert judge(row, row).outcome is REGRESSED
    assert judge(None, output_row(point="prepared", sqnr_db=100.0)).outcome is NEW


def test_a_float_control_that_is_not_float_fails_even_when_new() -> None:
    assert judge(None, output_row(point="float", sqnr_db=99.0)).outcome is REGRESSED
    assert judge(None, output_row(point="float", status="exact", sqnr_db=160.0)).outcome is NEW


@pytest.mark.parametrize(("point", "now", "outcome"), [
    ("float", 1.0001, OK), ("float", 1.0002, CHANGED), ("float", 0.9998, CHANGED), ("converted", 2.0, OK)
])  # fmt: skip
def test_the_fp32_reference_may_move_one_part_in_ten_thousand(point: str, now: float, outcome: Outcome) -> None:
    verdict = judged(*({"point": point, "sqnr_db": 160.0, "ref_rms": rms} for rms in (1.0, now)))
    assert verdict.outcome is outcome


@pytest.mark.parametrize("field", ["numel", "quantize_nodes", "dequantize_nodes"])
def test_another_number_of_elements_or_of_quantizers_is_a_change_in_either_direction(field: str) -> None:
    for old, new in ((7, 8), (8, 7), (None, 7), (7, None)):
        verdict = judged({field: old}, {field: new})
        assert verdict.outcome is CHANGED
        assert verdict.findings == (Finding(field, old, new),)


@pytest.mark.parametrize("field", ["slice_nodes", "nodes"])
def test_how_many_other_nodes_there_are_is_recorded_and_not_judged(field: str) -> None:
    assert judged({field: 7}, {field: 8}).outcome is OK


def test_all_that_changed_is_told_and_outranks_what_was_lost() -> None:
    verdict = judged({"quantize_nodes": 2, "dequantize_nodes": 3}, {"quantize_nodes": 1, "dequantize_nodes": 4})
    assert fields_of(verdict) == ["quantize_nodes", "dequantize_nodes"]
    assert judged({"quantize_nodes": 2}, {"quantize_nodes": 1, "sqnr_db": 1.0}).outcome is CHANGED


def test_another_cause_by_itself_is_no_change() -> None:
    """The cause explains numbers; what is judged is the numbers."""
    assert judged({"cause": ""}, {"cause": "clipping"}).outcome is OK


# Statuses


@pytest.mark.parametrize("status", sorted(NEVER_GOOD))
def test_what_is_not_finite_or_has_another_shape_fails_even_if_the_baseline_says_the_same(status: str) -> None:
    bad = no_number(status)
    assert [judge(old, bad).outcome for old in (bad, None, output_row())] == [REGRESSED] * 3
    assert judge(bad, bad).loss_db == math.inf


def test_a_known_failure_is_ok_and_a_new_one_is_not() -> None:
    known = no_number("failed:convert", error="unsupported op")
    assert judge(known, no_number("failed:convert", error="another wording")).outcome is OK
    assert judge(output_row(), known).outcome is FAILED
    assert judge(None, known).outcome is FAILED


def test_a_failure_at_another_stage_is_a_new_failure() -> None:
    for other in ("failed:export", "failed:edge", "failed:lower"):
        verdict = judge(no_number("failed:convert"), no_number(other))
        assert verdict.outcome is FAILED
        assert verdict.findings == (Finding("status", "failed:convert", other),)


def test_a_known_failure_that_now_measures_is_not_passed_over() -> None:
    verdict = judge(no_number("failed:convert"), output_row())
    assert verdict.outcome in (CHANGED, IMPROVED)
    assert verdict.findings[0] == Finding("status", "failed:convert", "measured")


@pytest.mark.parametrize("status", ["zero_signal", "empty"])
def test_a_number_that_comes_or_goes_is_a_change(status: str) -> None:
    without = no_number(status, max_abs_err=0.25)
    assert judge(output_row(), without).outcome is CHANGED
    assert judge(without, output_row()).outcome is CHANGED


def test_exact_and_measured_are_judged_by_their_numbers() -> None:
    exact = output_row(status="exact", sqnr_db=160.0, sqnr_min_db=160.0)
    near = output_row(sqnr_db=150.0, sqnr_min_db=140.0)
    assert judge(exact, near).outcome is OK
    assert judge(near, exact).outcome is OK
    assert judge(exact, output_row(sqnr_db=79.0, sqnr_min_db=79.0)).outcome is REGRESSED


@pytest.mark.parametrize(("now", "outcome"), [(1.0, OK), (0.5, OK), (1.05, OK), (1.06, REGRESSED), (10.0, REGRESSED)])
def test_without_a_signal_the_largest_error_may_rise_by_the_same_half_decibel(now: float, outcome: Outcome) -> None:
    old, new = (no_number("zero_signal", max_abs_err=error) for error in (1.0, now))  # 0.5 dB is a factor of 1.059
    assert judge(old, new).outcome is outcome


def test_without_a_signal_an_error_where_there_was_none_fails() -> None:
    old, new = (no_number("zero_signal", max_abs_err=error) for error in (0.0, 1e-3))
    assert judge(old, new).outcome is REGRESSED
    assert judge(old, old).outcome is OK


@pytest.mark.parametrize("field", ["sqnr_db", "sqnr_min_db", "task_metric"])
def test_a_number_that_is_gone_does_not_pass(field: str) -> None:
    verdict = judged({}, {field: None})
    assert verdict.outcome in (REGRESSED, CHANGED)
    assert field in fields_of(verdict)


def test_a_largest_error_that_is_gone_does_not_pass() -> None:
    old, new = (no_number("zero_signal", max_abs_err=error) for error in (1.0, None))
    assert judge(old, new).outcome in (REGRESSED, CHANGED)


def test_a_reference_that_is_gone_does_not_pass() -> None:
    rows = [output_row(point="float", sqnr_db=160.0, ref_rms=rms) for rms in (1.0, None)]
    assert judge(*rows).outcome is CHANGED


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("sqnr_db", {}),
        ("sqnr_db", {"point": "prepared", "sqnr_db": 160.0}),
        ("sqnr_db", {"variant": "+fix", "fix_state": "needed"}),
        ("sqnr_min_db", {}),
        ("task_metric", {}),
        ("ref_rms", {"point": "float", "sqnr_db": 160.0}),
        ("max_abs_err", {"status": "zero_signal", "sqnr_db": None, "sqnr_min_db": None}),
    ],
)
def test_nan_on_either_side_fails(field: str, fields: dict[str, Any]) -> None:
    good = output_row(**fields)
    assert judge(good, good).outcome is OK
    assert judge(good, with_nan(good, field)).outcome in (REGRESSED, CHANGED)
    if fields.get("point") != "prepared" and "variant" not in fields:
        assert judge(with_nan(good, field), good).outcome in (REGRESSED, CHANGED)


# One side only


def test_a_row_without_a_baseline_is_new_and_a_planned_row_that_was_not_measured_is_missing() -> None:
    assert judge(None, output_row()).outcome is NEW
    assert judge(output_row(), None).outcome is MISSING


NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
SIZES = st.none() | st.floats(min_value=0, allow_nan=False, allow_infinity=False)
ANY_OUTPUT = st.builds(
    output_row,
    status=st.sampled_from(sorted(STATUSES)),
    sqnr_db=NUMBERS,
    sqnr_min_db=NUMBERS,
    max_abs_err=SIZES,
    ref_rms=SIZES,
    noise_db=SIZES,
    task_metric=SIZES,
    quantize_nodes=st.none() | st.integers(0),
    fix_state=st.sampled_from(["", "needed", "inert"]),
) | st.builds(no_number, status=st.just("zero_signal"), max_abs_err=SIZES)


POINTS, VARIANTS = st.sampled_from(["float", "prepared", "converted", "lowered"]), st.sampled_from(["released", "+fix"])
FAINT, HUGE = (no_number("zero_signal", max_abs_err=error) for error in (5e-324, 1e300))


@given(ANY_OUTPUT, ANY_OUTPUT, POINTS, VARIANTS)
@example(HUGE, FAINT, "converted", "released")
def test_any_two_outputs_can_be_judged(old: OutputRow, new: OutputRow, point: str, variant: str) -> None:
    verdict = judge(*(replace(row, point=point, variant=variant) for row in (old, new)))
    assert verdict.outcome in set(Outcome) - {NEW, MISSING}
