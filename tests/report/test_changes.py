"""What is not as accepted, as entries: which rows make one, what they lost, and which cases share an entry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.records import Row
from harness.report.changes import Change, changes
from harness.report.groups import groups
from tests.judgements import judged
from tests.rows import no_number, output_row, quantizer_row, with_nan


def found(old: Sequence[Row], new: Sequence[Row]) -> list[Change]:
    return changes(groups(*judged(old, new)))


def only(old: Sequence[Row], new: Sequence[Row]) -> Change:
    (change,) = found(old, new)
    return change


def test_rows_as_accepted_are_no_change() -> None:
    assert found([output_row(), quantizer_row()], [output_row(), quantizer_row()]) == []


def test_a_case_changes_at_each_point_by_itself() -> None:
    old = [output_row(point=point) for point in ("converted", "lowered")]
    new = [output_row(point="converted", sqnr_db=24.0), output_row(point="lowered", sqnr_db=10.0)]
    assert [(change.point, change.loss_db) for change in found(old, new)] == [("lowered", 20.0), ("converted", 6.0)]


def test_outputs_and_ranges_of_a_point_are_one_change() -> None:
    change = only([output_row(), quantizer_row(hi=2.0)], [output_row(sqnr_db=24.0), quantizer_row(hi=1.0)])
    assert (change.sign, change.outcome, change.loss) == ("✗", "regressed", "6.00")
    assert [str(delta) for delta in change.outputs] == ["logits 30.00 → 24.00 dB (-6.00)"]
    assert change.ranges == ("conv1:conv2d:0:input [0, 2] → [0, 1]",)
    assert change.cause == "the range of conv1:conv2d:0:input is 2 times narrower"


# What was lost


@pytest.mark.parametrize(
    ("levels", "loss_db", "text"),
    [
        ({"a": 24.0, "b": 10.0}, 20.0, "20.00"),
        ({"a": 28.0, "b": 45.0}, 2.0, "2.00"),
        ({"a": 31.0, "b": 45.0}, -15.0, "-15.00"),
        ({"a": 24.0, "b": None}, math.inf, "all"),
    ],
    ids=["the largest loss", "a loss beside a larger gain", "the largest gain", "a number that is gone"],
)
def test_the_loss_of_a_change(levels: dict[str, float | None], loss_db: float, text: str) -> None:
    """Both outputs were at 30 dB."""
    old = [output_row(output=name) for name in levels]
    new = [
        output_row(output=name, sqnr_db=level) if level else no_number("nonfinite_actual", output=name)
        for name, level in levels.items()
    ]
    change = only(old, new)
    assert (change.loss_db, change.loss) == (loss_db, text)


def test_nan_is_a_loss_of_all() -> None:
    change = only([output_row()], [with_nan(output_row(), "sqnr_db")])
    assert (change.outcome, change.loss_db, change.loss) == ("regressed", math.inf, "all")


def test_a_range_alone_loses_no_decibels() -> None:
    change = only([quantizer_row(hi=2.0)], [quantizer_row(hi=1.0)])
    assert (change.outcome, change.loss, change.outputs) == ("changed", "", ())


# Which cases share an entry


def test_cases_of_a_model_that_say_the_same_are_one_change_called_by_the_first() -> None:
    cases = [("x86-static", "+a+b"), ("x86-static", "+a"), ("x86-static", "released"), ("x86-dynamic", "released")]
    old = [output_row(flow=flow, variant=variant) for flow, variant in cases]
    change = only(old, [replace(row, sqnr_db=24.0) for row in old])
    assert str(change.case) == "resnet/small/trained x86-dynamic"
    assert change.alike == "alike with x86-static, x86-static +a, x86-static +a+b"


def test_variants_of_the_same_flow_are_told_by_their_names() -> None:
    old = [output_row(variant=variant) for variant in ("released", "+b", "+a")]
    change = only(old, [replace(row, sqnr_db=24.0) for row in old])
    assert (change.case.variant, change.alike) == ("released", "alike with +a, +b")


def test_many_alike_are_counted() -> None:
    old = [output_row(flow=f"flow{number}") for number in range(8)]
    change = only(old, [replace(row, sqnr_db=24.0) for row in old])
    assert change.alike == "alike with flow1, flow2, flow3, flow4, 3 more"


@pytest.mark.parametrize(
    "other", [{"model": "vit"}, {"size": "full"}, {"weights": "seeded"}, {"flow": "x", "sqnr_db": 23.0}]
)
def test_another_model_or_another_number_is_a_change_of_its_own(other: dict[str, object]) -> None:
    level = other.pop("sqnr_db", 24.0)
    old = [output_row(), output_row(**other)]
    new = [output_row(sqnr_db=24.0), output_row(**other, sqnr_db=level)]
    assert [change.alike for change in found(old, new)] == ["", ""]


def test_a_waived_change_is_not_one_with_a_firm_one() -> None:
    old = [output_row(), output_row(variant="+a")]
    run, judgement = judged(old, [replace(row, sqnr_db=24.0) for row in old])
    verdicts = tuple(
        replace(verdict, waived="until 0.19") if verdict.case.variant == "+a" else verdict
        for verdict in judgement.verdicts
    )
    both = changes(groups(run, replace(judgement, verdicts=verdicts)))
    assert [(change.case.variant, change.waived) for change in both] == [("released", ""), ("+a", "until 0.19")]


def test_cases_that_only_count_the_same_are_told_apart() -> None:
    """Of each flow one quantizer is of another type, but not the same one."""
    old = [quantizer_row(flow=flow, quantizer=name) for flow in ("a", "b") for name in ("query", "value")]
    other = {("a", "query"): "int4", ("b", "value"): "int4"}
    new = [replace(row, dtype=other.get((row.flow, row.quantizer), row.dtype)) for row in old]
    assert [change.case.flow for change in found(old, new)] == ["a", "b"]
