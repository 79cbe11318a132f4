"""The likely cause of a row group: each rule, in the order in which they speak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.records import Cause, Row
from harness.report.causes import likely_cause, moved_bounds
from harness.report.changes import siblings
from harness.report.groups import Group, groups
from tests.judgements import judged
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row


def group_of(old: Sequence[Row], new: Sequence[Row], point: str = "converted") -> tuple[Group, dict[str, Group]]:
    """The group of the one case at a point, and all groups of that case."""
    ((_, found),) = siblings(groups(*judged(old, new))).items()
    return found[point], found


def cause(old: Sequence[Row], new: Sequence[Row], point: str = "converted") -> str:
    return likely_cause(*group_of(old, new, point))


def worse(**changes: Any) -> Row:
    """The output at 24 dB instead of 30."""
    return output_row(sqnr_db=24.0, **changes)


def control(**changes: Any) -> Row:
    return output_row(point="float", status="exact", sqnr_db=160.0, sqnr_min_db=160.0, **changes)


# What needs no explanation, or has its own


def test_rows_as_accepted_and_new_ones_need_no_cause() -> None:
    assert cause([output_row()], [output_row()]) == ""
    assert cause([], [output_row()]) == ""


def test_what_was_not_measured_says_that() -> None:
    assert cause([output_row(), quantizer_row()], []) == "not measured"


def test_a_failure_is_told_by_its_stage_and_error_whatever_else_changed() -> None:
    failed = no_number("failed:lower", output="second", error="boom")
    assert cause([output_row(), output_row(output="second")], [worse(), failed]) == "failed:lower: boom"


def test_a_failure_without_a_word_is_told_by_its_stage() -> None:
    assert cause([output_row()], [no_number("failed:lower")]) == "failed:lower"


# Void comparisons


def test_another_float_model_speaks_before_what_the_fix_did() -> None:
    old, new = [control(), repaired_row(variant="released")], [control(ref_rms=2.0), output_row(sqnr_db=24.0)]
    moved = "the float model or its data changed: fp32 reference RMS 1 → 2"
    assert cause(old, new) == f"{moved}; the fix is none, was needed"
    assert cause(old, new, "float") == "the float model or its data changed: fp32 reference RMS 1 → 2"


def test_other_data_are_told_by_the_number_of_elements() -> None:
    old, new = [control(), output_row()], [control(numel=50), worse(numel=50)]
    assert cause(old, new) == "the float model or its data changed: numel 100 → 50"


@pytest.mark.parametrize("point", ["float", "prepared"])
def test_a_control_below_its_limit_no_longer_equals_the_eager_model(point: str) -> None:
    old, new = control(), output_row(point=point, sqnr_db=50.0)
    assert cause([old], [new], point) == f"the {point} graph no longer equals the eager model"


# What changed in the graph


def test_another_state_of_the_fix_speaks_before_a_status() -> None:
    old = [repaired_row(), repaired_row(output="b")]
    new = [repaired_row(fix_state="upstreamed"), no_number("mismatch", output="b", variant="+fix")]
    assert cause(old, new) == "the fix is upstreamed, was needed"
    assert cause([repaired_row(fix_state="")], [repaired_row()]) == "the fix is needed, was none"


def test_a_status_speaks_before_the_structure() -> None:
    old, new = [output_row(), quantizer_row()], [no_number("nonfinite_actual"), quantizer_row(dtype="int8")]
    assert cause(old, new) == "logits is nonfinite_actual, was measured"
    assert cause([], [no_number("mismatch")]) == "logits is mismatch, was not there"


def test_a_stage_that_works_again_is_told_though_its_quantizers_are_new() -> None:
    assert cause([no_number("failed:lower")], [output_row(), quantizer_row()]) == "logits is measured, was failed:lower"


def test_a_scale_that_is_not_finite_speaks_before_a_lost_quantizer_before_one_gone_before_one_new() -> None:
    names = ("a", "b", "c")
    old: list[Row] = [output_row(), *(quantizer_row(quantizer=name) for name in names)]
    broken = quantizer_row(quantizer="a", status="nonfinite", scale=None, lo=None, hi=None)
    lost = quantizer_row(quantizer="b", status="unquantized", lo=None, hi=None)
    come = quantizer_row(quantizer="d")
    assert cause(old, [worse(), broken, lost, come]) == "a: the scale is not finite"
    assert cause(old, [worse(), old[1], lost, come]) == "b: not quantized"
    assert cause(old, [worse(), old[1], old[2], come]) == "c: gone"
    assert cause(old, [worse(), *old[1:], come]) == "d: new"


def test_several_lost_quantizers_are_counted() -> None:
    old = [output_row(), *(quantizer_row(quantizer=name) for name in "abc")]
    assert cause(old, [worse()]) == "a and 2 more: gone"


def test_an_edge_that_never_had_a_quantizer_did_not_lose_one() -> None:
    assert cause([repaired_row()], [repaired_row(), lost_edge(variant="+fix")]) == "conv1:conv2d:0:input: not quantized"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"dtype": "int8"}, "dtype uint8 → int8"),
        ({"granularity": "per_channel"}, "granularity per_tensor → per_channel"),
        ({"axis": 0}, "axis none → 0"),
        ({"mode": "dynamic"}, "mode static → dynamic"),
        ({"quant_max": 127}, "quant_max 255 → 127"),
        ({"share_group": "g"}, "share_group none → g"),
    ],
)
def test_another_kind_of_quantizer_speaks_before_its_range(changes: dict[str, Any], text: str) -> None:
    old, new = [output_row(), quantizer_row()], [worse(), quantizer_row(**{"hi": 9.0, **changes})]
    assert cause(old, new) == f"conv1:conv2d:0:input: {text}"


def test_an_edge_that_is_quantized_now_is_a_change_of_status_and_of_no_range() -> None:
    old = quantizer_row(status="unquantized", lo=None, hi=None)
    assert cause([output_row(), old], [output_row(), quantizer_row()]) == (
        "conv1:conv2d:0:input: status unquantized → quantized"
    )


# Ranges


def test_the_quantizer_that_clips_most_speaks_before_the_range_that_moved_most() -> None:
    old = [output_row(), *(quantizer_row(quantizer=name) for name in "abc")]
    new = [worse(), quantizer_row(quantizer="a", hi=25.5), quantizer_row(quantizer="b", clip_fraction=0.25)]
    new.append(quantizer_row(quantizer="c", clip_fraction=0.125))
    assert cause(old, new) == "b clips 0.00 % → 25.00 %"


@pytest.mark.parametrize(
    ("lo", "hi", "text"),
    [
        (0.0, 5.1, "is 2 times as wide"),
        (0.0, 0.255, "is 10 times narrower"),
        (0.0, 0.0, "is empty"),
        (-1.0, 1.55, "moved from [0, 2.55] to [-1, 1.55]"),
    ],
)
def test_a_range_is_told_by_its_width_or_else_by_where_it_moved(lo: float, hi: float, text: str) -> None:
    old, new = [output_row(), quantizer_row(hi=2.55)], [worse(), quantizer_row(lo=lo, hi=hi)]
    assert cause(old, new) == f"the range of conv1:conv2d:0:input {text}"


def test_the_range_that_moved_most_comes_first_be_it_narrower_or_wider() -> None:
    bounds = {"a": 2.0, "b": 0.01, "c": 4.0, "same": 1.0}
    old = [output_row(), *(quantizer_row(quantizer=name, hi=1.0) for name in bounds)]
    new = [worse(), *(quantizer_row(quantizer=name, hi=hi) for name, hi in bounds.items())]
    assert [after.quantizer for _, after in moved_bounds(group_of(old, new)[0])] == ["b", "c", "a"]
    assert cause(old, new) == "the range of b is 100 times narrower"


def test_a_range_within_its_allowance_did_not_move() -> None:
    group, _ = group_of([quantizer_row(hi=1.0)], [quantizer_row(hi=1.0009)])  # 1e-3 of the larger bound is allowed
    assert moved_bounds(group) == []


# What is left


def test_what_a_row_newly_says_of_itself_speaks_where_no_range_moved() -> None:
    assert cause([output_row()], [worse(cause="folding")]) == "logits: folding moved the float graph"


@pytest.mark.parametrize("told", Cause)
def test_every_cause_has_words(told: Cause) -> None:
    said = cause([output_row()], [worse(cause=told)])
    assert said.startswith("logits: ")
    assert len(said.split()) > 3


def test_what_a_row_said_before_explains_no_change() -> None:
    before = [output_row(cause="numerics")]
    assert cause(before, [worse(cause="numerics")]) == "no range or structure moved: arithmetic"


def test_where_only_the_lowered_graph_is_worse_the_upstreams_pass_is() -> None:
    old = [output_row(), output_row(point="lowered")]
    assert cause(old, [output_row(), worse(point="lowered", quantize_nodes=9)], "lowered") == (
        "the upstream's pass: the converted graph is as accepted"
    )


def test_where_the_converted_graph_is_worse_too_the_lowered_one_is_told_by_its_nodes() -> None:
    old = [output_row(), output_row(point="lowered")]
    new = [worse(), worse(point="lowered", quantize_nodes=9)]
    assert cause(old, new, "lowered") == "quantize nodes 2 → 9"


def test_arithmetic_is_left_where_nothing_else_moved() -> None:
    assert cause([output_row(), quantizer_row()], [worse(), quantizer_row()]) == (
        "no range or structure moved: arithmetic"
    )
