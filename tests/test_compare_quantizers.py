"""The judgement on one quantizer: bounds, clipping, structure, its own error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import QuantizerRow, Row
from harness.verdicts import Finding, Outcome, Verdict
from tests.judging import CHANGED, MISSING, NEW, OK, REGRESSED, fields_of, judge, judge_all
from tests.rows import no_number, output_row, quantizer_row, with_nan

# Scale 1, zero point -128, int8: the representable range is 1 x (-128 + 128) = 0 to 1 x (127 + 128) = 255.
WIDE = quantizer_row(dtype="int8", quant_min=-128, quant_max=127, scale=1.0, zero_point=-128, lo=0.0, hi=255.0)


def judged(old: dict[str, Any], new: dict[str, Any], **options: Any) -> Verdict:
    """The verdict on a quantizer with these fields before and after; all else is equal."""
    return judge(quantizer_row(**old), quantizer_row(**new), **options)


def test_a_quantizer_that_did_not_move_is_ok() -> None:
    assert judge(WIDE, WIDE).outcome is OK


# Range bounds


@pytest.mark.parametrize(("now", "outcome"), [(1001.0, OK), (999.0, OK), (1001.1, CHANGED), (998.9, CHANGED)])
def test_a_bound_may_move_one_part_in_a_thousand_in_either_direction(now: float, outcome: Outcome) -> None:
    assert judged({"hi": 1000.0}, {"hi": now}).outcome is outcome


def test_a_small_bound_is_held_to_the_size_of_the_larger_one() -> None:
    before = {"lo": -1.0, "hi": 1000.0}
    assert judged(before, {"lo": -2.0, "hi": 1000.0}).outcome is OK  # 1 of 1000
    assert judged(before, {"lo": -2.1, "hi": 1000.0}).outcome is CHANGED


def test_a_moved_bound_says_which_and_by_how_much_it_might_have_moved() -> None:
    verdict = judged({"hi": 1.0}, {"hi": 0.5833333})
    assert verdict.findings == (Finding("hi", 1.0, 0.5833333, 1e-3),)
    assert (verdict.kind, verdict.label) == ("quantizer", "converted conv1:conv2d:0:input")


@pytest.mark.parametrize(("now", "outcome"), [(1003.0, OK), (997.0, OK), (1003.1, CHANGED)])
def test_three_times_the_noise_of_the_bounds_raises_the_allowance(now: float, outcome: Outcome) -> None:
    assert judged({"hi": 1000.0, "noise_rel": 0.001}, {"hi": now}).outcome is outcome


@pytest.mark.parametrize(("now", "outcome"), [(1010.0, OK), (990.0, OK), (1010.1, CHANGED), (989.9, CHANGED)])
def test_a_bound_chosen_from_each_batch_may_move_one_part_in_a_hundred(now: float, outcome: Outcome) -> None:
    assert judged({"mode": "dynamic", "hi": 1000.0}, {"mode": "dynamic", "hi": now}).outcome is outcome


def test_a_scale_a_tenth_larger_is_a_change_of_bounds() -> None:
    verdict = judge(WIDE, replace(WIDE, scale=1.1, hi=1.1 * 255))
    assert verdict.outcome is CHANGED
    assert fields_of(verdict) == ["hi"]


def test_a_zero_point_one_further_is_a_change_of_bounds() -> None:
    verdict = judge(WIDE, replace(WIDE, zero_point=-127, lo=-1.0, hi=254.0))
    assert verdict.outcome is CHANGED
    assert fields_of(verdict) == ["lo", "hi"]


def test_a_zero_point_that_moves_no_bound_by_more_than_a_thousandth_is_ok() -> None:
    # uint16 of step 1: one code of 65535 is far less than a thousandth.
    fine = quantizer_row(dtype="uint16", quant_max=65535, scale=1.0, lo=0.0, hi=65535.0)
    assert judge(fine, replace(fine, zero_point=1, lo=-1.0, hi=65534.0)).outcome is OK


@pytest.mark.parametrize("side", ["lo", "hi"])
def test_a_bound_that_comes_or_goes_is_a_change(side: str) -> None:
    assert fields_of(judged({}, {side: None})) == [side]
    assert fields_of(judged({side: None}, {})) == [side]


def test_bounds_of_zero_may_not_move_at_all() -> None:
    assert judged({"lo": 0.0, "hi": 0.0}, {"lo": 0.0, "hi": 0.0}).outcome is OK
    assert judged({"lo": 0.0, "hi": 0.0}, {"lo": 0.0, "hi": 1e-12}).outcome is CHANGED


# Clipping and the quantizer's own error


@pytest.mark.parametrize(("now", "outcome"), [(0.001, OK), (0.0011, REGRESSED), (None, REGRESSED), (0.0, OK)])
def test_the_clipped_share_may_rise_by_one_in_a_thousand(now: float | None, outcome: Outcome) -> None:
    verdict = judged({"clip_fraction": 0.0}, {"clip_fraction": now})
    assert verdict.outcome is outcome
    assert fields_of(verdict) == ([] if outcome is OK else ["clip_fraction"])


def test_clipping_less_is_ok() -> None:
    assert judged({"clip_fraction": 0.5}, {"clip_fraction": 0.0}).outcome is OK


@pytest.mark.parametrize("field", ["sqnr_db", "sqnr_min_db"])
@pytest.mark.parametrize(("now", "outcome"), [(38.5, OK), (38.4, REGRESSED), (50.0, OK), (None, REGRESSED)])
def test_a_quantizers_own_error_may_grow_by_a_decibel_and_a_half(
    field: str, now: float | None, outcome: Outcome
) -> None:
    assert judged({field: 40.0}, {field: now}).outcome is outcome


def test_the_worst_channel_counts_even_when_the_mean_is_better() -> None:
    before, after = {"sqnr_db": 40.0, "sqnr_min_db": 40.0}, {"sqnr_db": 45.0, "sqnr_min_db": 30.0}
    assert fields_of(judged(before, after)) == ["sqnr_min_db"]
    assert judged(before, after).loss_db == 10.0


# Structure


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "int8"),
        ("granularity", "per_channel"),
        ("axis", 1),
        ("quant_min", 1),
        ("quant_max", 127),
        ("role", "weight"),
        ("mode", "dynamic"),
        ("status", "unquantized"),
        ("share_group", "other"),
    ],
)
def test_any_change_of_structure_is_a_change(field: str, value: Any) -> None:
    for verdict in (judged({}, {field: value}), judged({field: value}, {})):
        assert verdict.outcome is CHANGED
        assert fields_of(verdict) == [field]


def test_a_swapped_channel_axis_is_a_change_and_names_both() -> None:
    weight = {"role": "weight", "granularity": "per_channel"}
    verdict = judged({**weight, "axis": 0}, {**weight, "axis": 1})
    assert verdict.findings == (Finding("axis", 0, 1),)


def test_what_a_change_of_structure_did_to_the_bounds_is_told_too() -> None:
    assert fields_of(judged({}, {"dtype": "int8", "hi": 1.27})) == ["dtype", "hi"]


def test_a_scale_or_a_share_of_codes_by_itself_is_no_change() -> None:
    assert judged({}, {"scale": 0.02, "zero_point": 3, "utilisation": 0.1, "observed_hi": 9.0}).outcome is OK


def test_another_cause_by_itself_is_no_change() -> None:
    assert judged({"cause": ""}, {"cause": "clipping"}).outcome is OK
    assert judged({"cause": "step_size"}, {"cause": ""}).outcome is OK


# The set of quantizers

CONVERTED, FIRST, SECOND = output_row(), quantizer_row(quantizer="a"), quantizer_row(quantizer="b")


def outcomes(old: list[Row], new: list[Row]) -> dict[str, Outcome]:
    """By name; that of a quantizer of the converted graph is `converted` and its own name."""
    return {verdict.name: verdict.outcome for verdict in judge_all(old, new)}


def test_a_quantizer_that_is_gone_from_a_measured_case_is_a_change() -> None:
    assert outcomes([CONVERTED, FIRST, SECOND], [CONVERTED, FIRST])["b"] is CHANGED


def test_a_quantizer_that_was_added_to_a_known_case_is_a_change() -> None:
    assert outcomes([CONVERTED, FIRST], [CONVERTED, FIRST, SECOND])["b"] is CHANGED


def test_losing_every_quantizer_is_a_change() -> None:
    assert outcomes([CONVERTED, FIRST], [CONVERTED])["a"] is CHANGED


def test_a_quantizer_with_another_name_is_one_gone_and_one_added() -> None:
    found = outcomes([CONVERTED, FIRST], [CONVERTED, SECOND])
    assert (found["a"], found["b"]) == (CHANGED, CHANGED)


def test_quantizers_of_a_case_that_failed_are_missing_and_not_called_changed() -> None:
    assert outcomes([CONVERTED, FIRST], [no_number("failed:convert")])["a"] is MISSING


def test_quantizers_of_a_case_that_was_not_measured_are_missing() -> None:
    assert outcomes([CONVERTED, FIRST], [])["a"] is MISSING


def test_quantizers_of_a_case_without_a_baseline_are_new() -> None:
    assert outcomes([], [CONVERTED, FIRST])["a"] is NEW


def test_a_change_in_one_case_is_none_in_its_neighbour() -> None:
    other = quantizer_row(quantizer="c", flow="x86-dynamic")
    found = outcomes([CONVERTED, FIRST, SECOND], [CONVERTED, FIRST, other])
    assert found == {"logits": OK, "a": OK, "b": CHANGED, "c": NEW}


# NaN, and anything at all


@pytest.mark.parametrize("field", ["lo", "hi", "clip_fraction", "sqnr_db", "sqnr_min_db"])
def test_nan_on_either_side_fails(field: str) -> None:
    good, bad = quantizer_row(), with_nan(quantizer_row(), field)
    for old, new in ((good, bad), (bad, good)):
        verdict = judge(old, new)
        assert verdict.outcome in (CHANGED, REGRESSED)
        assert field in fields_of(verdict)


NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ANY_QUANTIZER = st.builds(
    quantizer_row,
    status=st.sampled_from(["quantized", "unquantized", "nonfinite"]),
    lo=NUMBERS,
    hi=NUMBERS,
    clip_fraction=NUMBERS,
    sqnr_db=NUMBERS,
    sqnr_min_db=NUMBERS,
    noise_rel=NUMBERS,
)


@given(ANY_QUANTIZER, ANY_QUANTIZER)
def test_any_two_quantizers_can_be_judged(old: QuantizerRow, new: QuantizerRow) -> None:
    assert judge(old, new).outcome in (OK, CHANGED, REGRESSED)
    assert judge(old, old).outcome is (REGRESSED if old.status == "nonfinite" else OK)


def test_a_scale_that_is_not_finite_always_fails() -> None:
    spoiled = quantizer_row(status="nonfinite", lo=None, hi=None, scale=None)
    assert judge(spoiled, spoiled).outcome is REGRESSED


def test_a_parameters_own_error_is_held_to_half_a_decibel_and_an_activations_to_one_and_a_half() -> None:
    for role, worse, worst in (("weight", 0.5, 0.6), ("activation", 1.5, 1.6)):
        accepted = quantizer_row(role=role, sqnr_db=40.0)
        assert judge(accepted, quantizer_row(role=role, sqnr_db=40.0 - worse)).outcome is OK
        assert judge(accepted, quantizer_row(role=role, sqnr_db=40.0 - worst)).outcome is REGRESSED


@pytest.mark.parametrize("field", ["sqnr_db", "sqnr_min_db", "clip_fraction"])
def test_a_blanked_cell_does_not_switch_its_check_off(field: str) -> None:
    measured = quantizer_row(sqnr_db=40.0, sqnr_min_db=30.0, clip_fraction=0.0)
    assert judge(replace(measured, **{field: None}), measured).outcome is REGRESSED
