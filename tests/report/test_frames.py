"""The tables of a report: what released code gives, what each fix changed, which bounds it moved, what is covered."""

from __future__ import annotations

from typing import Any

import pytest

from harness.records import OutputRow, QuantizerRow, Row
from harness.report.frames import bounds_frame, coverage_frame, fix_frame, idle_fixes, sqnr_table
from tests.report.matrices import cells
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row

# SQNR of released code


def test_the_table_holds_one_decimal_or_the_status_of_each_flow() -> None:
    rows = [
        output_row(sqnr_db=30.04),
        no_number("failed:export", flow="x86-dynamic"),
        output_row(point="float", sqnr_db=160.0),
        output_row(point="prepared", sqnr_db=150.0),
    ]
    assert cells(sqnr_table(rows)) == {
        ("x86-static", "resnet/small logits"): "30.0",
        ("x86-dynamic", "resnet/small logits"): "failed:export",
    }


def test_what_a_flow_does_not_measure_is_an_empty_cell() -> None:
    table = sqnr_table([output_row(sqnr_db=30.0), output_row(model="vit", flow="x86-dynamic", sqnr_db=20.0)])
    assert table.to_numpy().tolist() == [["x86-dynamic", "", "20.0"], ["x86-static", "30.0", ""]]


def test_a_flow_that_lowers_has_a_line_for_the_converted_graph_and_one_for_the_lowered() -> None:
    rows = [output_row(sqnr_db=40.0), output_row(point="lowered", sqnr_db=0.2)]
    assert cells(sqnr_table(rows)) == {
        ("x86-static", "resnet/small logits"): "40.0",
        ("x86-static lowered", "resnet/small logits"): "0.2",
    }


def test_the_table_is_about_released_code_only() -> None:
    assert cells(sqnr_table([output_row(sqnr_db=20.0), repaired_row(sqnr_db=31.0)])) == {
        ("x86-static", "resnet/small logits"): "20.0"
    }
    assert sqnr_table([repaired_row()]).empty


def test_a_table_of_more_than_a_dozen_outputs_is_turned_on_its_side() -> None:
    rows = [output_row(output=f"output {number:02d}") for number in range(13)]
    assert list(sqnr_table(rows[:12]).columns) == ["flow", *(f"resnet/small output {n:02d}" for n in range(12))]
    aside = sqnr_table(rows)
    assert list(aside.columns) == ["output", "x86-static"]
    assert list(aside["output"]) == [f"resnet/small output {n:02d}" for n in range(13)]


def test_without_rows_there_is_no_line() -> None:
    assert sqnr_table([]).empty


# With and without each fix


def fix_lines(*rows: OutputRow) -> list[list[str]]:
    """What the table shows after the names: released, repaired, gain."""
    return fix_frame(rows)[["released", "repaired", "gain, dB"]].to_numpy().tolist()


def test_a_fix_is_shown_with_what_was_what_is_and_the_difference() -> None:
    frame = fix_frame([output_row(sqnr_db=-4.25), repaired_row(sqnr_db=23.5)])
    assert frame.to_dict("records") == [
        {
            "model": "resnet/small", "flow": "x86-static", "fix": "+fix", "output": "logits",
            "released": "-4.25", "repaired": "23.50", "gain, dB": "+27.75",
        }
    ]  # fmt: skip


def test_a_fix_that_costs_quality_shows_a_negative_gain() -> None:
    assert fix_lines(output_row(sqnr_db=30.0), repaired_row(sqnr_db=29.0)) == [["30.00", "29.00", "-1.00"]]


@pytest.mark.parametrize("order", [1, -1])
def test_the_last_point_of_the_flow_counts(order: int) -> None:
    """The fix mends the lowering, so both have the same converted graph."""
    levels = {"float": (160.0, 160.0), "prepared": (150.0, 150.0), "converted": (40.0, 40.0), "lowered": (0.5, 39.5)}
    rows = []
    for point, (released, repaired) in levels.items():
        rows += [output_row(point=point, sqnr_db=released), repaired_row(point=point, sqnr_db=repaired)]
    assert fix_lines(*rows[::order]) == [["0.50", "39.50", "+39.00"]]


@pytest.mark.parametrize("state", ["inert", "upstreamed"])
def test_a_fix_that_changed_nothing_is_no_evidence_but_is_named(state: str) -> None:
    rows = [output_row(), repaired_row(fix_state=state)]
    assert fix_lines(*rows) == []
    assert idle_fixes(rows) == [f"x86-static +fix: {state} on resnet/small"]


@pytest.mark.parametrize("state", ["inert", "upstreamed"])
def test_what_was_lowered_after_a_fix_that_changed_nothing_is_no_evidence_either(state: str) -> None:
    rows = [output_row(), repaired_row(fix_state=state)]
    rows += [output_row(point="lowered"), repaired_row(point="lowered", fix_state="")]
    assert fix_lines(*rows) == []
    assert idle_fixes(rows) == [f"x86-static +fix: {state} on resnet/small"]


def test_a_fix_that_is_needed_by_one_model_and_inert_on_another_is_in_both_lists() -> None:
    rows = [output_row(sqnr_db=20.0), repaired_row(), output_row(model="vit")]
    rows += [repaired_row(model="vit", fix_state="inert"), repaired_row(model="vit", size="full", fix_state="inert")]
    assert list(fix_frame(rows)["model"]) == ["resnet/small"]
    assert idle_fixes(rows) == ["x86-static +fix: inert on vit/full, vit/small"]


def test_an_idle_fix_is_named_once_for_all_its_outputs_and_points() -> None:
    rows = [repaired_row(fix_state="inert", output=name, point=p) for name in "ab" for p in ("converted", "lowered")]
    assert len(idle_fixes(rows)) == 1
    assert idle_fixes([output_row(), repaired_row()]) == []


def test_a_variant_that_failed_shows_where_and_has_no_gain() -> None:
    failed = no_number("failed:lower", variant="+fix", fix_state="unknown", point="lowered")
    released = output_row(point="lowered", sqnr_db=0.5)
    assert fix_lines(released, repaired_row(), failed) == [["0.50", "failed:lower", ""]]


def test_a_fix_of_released_code_that_fails_shows_the_failure_and_no_gain() -> None:
    broken = no_number("failed:lower", point="lowered")
    assert fix_lines(broken, repaired_row(point="lowered", sqnr_db=23.5)) == [["failed:lower", "23.50", ""]]


def test_a_variant_measured_alone_has_nothing_to_be_compared_with() -> None:
    assert fix_lines(repaired_row(sqnr_db=30.0)) == [["none", "30.00", ""]]


def test_each_variant_and_output_has_a_line_of_its_own() -> None:
    rows = [output_row(output=name, sqnr_db=10.0) for name in "ab"]
    rows += [repaired_row(variant=v, output=name, sqnr_db=20.0) for v in ("+x", "+x+y", "+y") for name in "ab"]
    frame = fix_frame(rows)
    assert list(zip(frame["fix"], frame["output"], strict=True)) == [(v, o) for v in ("+x", "+x+y", "+y") for o in "ab"]


# Range bounds that a fix moved


def bounds(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, str]]:
    """The lines of the table for one quantizer, released and repaired."""
    rows: list[QuantizerRow] = [quantizer_row(**old), quantizer_row(variant="+fix", **new)]
    return bounds_frame(rows).to_dict("records")


def test_a_moved_bound_is_shown_beside_the_largest_observed_value_and_both_errors() -> None:
    seen = {"observed_lo": -0.5, "observed_hi": 0.25}
    (line,) = bounds(
        {**seen, "lo": 0.0, "hi": 0.25, "sqnr_db": 3.0}, {**seen, "lo": -0.5, "hi": 0.49609375, "sqnr_db": 43.0}
    )
    assert line == {
        "model": "resnet/small", "flow": "x86-static", "fix": "+fix", "point": "converted",
        "quantizer": "conv1:conv2d:0:input",
        "absmax": "0.5", "released range": "[0, 0.25]", "repaired range": "[-0.5, 0.49609375]",
        "released": "3.00 dB", "repaired": "43.00 dB",
    }  # fmt: skip


def test_bounds_are_shown_to_nine_digits() -> None:
    """As many as tell one float32 from the next."""
    (line,) = bounds({"lo": 0.0, "hi": 0.0924553071}, {"lo": 0.0, "hi": 0.2266329451})
    assert (line["released range"], line["repaired range"]) == ("[0, 0.0924553071]", "[0, 0.226632945]")


@pytest.mark.parametrize(("lo", "hi", "listed"), [
    (-1.0, 100.0, False), (-1.0, 101.0, False), (-1.0, 99.0, False), (-2.0, 100.0, False),
    (-1.0, 101.1, True), (-1.0, 98.9, True), (-2.1, 100.0, True),
])  # fmt: skip
def test_a_bound_moved_by_one_percent_of_the_larger_bound_or_less_is_not_listed(
    lo: float, hi: float, listed: bool
) -> None:
    assert bool(bounds({"lo": -1.0, "hi": 100.0}, {"lo": lo, "hi": hi})) is listed


def test_a_quantizer_that_a_fix_adds_or_takes_away_is_shown_by_its_status() -> None:
    quantized, lost = quantizer_row(hi=1.0), lost_edge(variant="+fix")
    (line,) = bounds_frame([quantized, lost]).to_dict("records")
    assert (line["released range"], line["repaired range"], line["repaired"]) == ("[0, 1]", "unquantized", "none")
    (line,) = bounds_frame([lost_edge(), quantizer_row(variant="+fix", hi=1.0)]).to_dict("records")
    assert (line["released range"], line["repaired range"]) == ("unquantized", "[0, 1]")


def test_what_neither_side_quantizes_is_not_listed() -> None:
    assert bounds_frame([lost_edge(), lost_edge(variant="+fix")]).empty


def test_bounds_are_compared_at_the_same_point_and_with_released_code_only() -> None:
    rows = [quantizer_row(hi=1.0), quantizer_row(point="lowered", hi=9.0)]
    rows += [quantizer_row(variant="+a", hi=1.0), quantizer_row(variant="+a", point="lowered", hi=9.0)]
    rows += [quantizer_row(variant="+b", hi=2.0), quantizer_row(variant="+c", quantizer="of its own")]
    assert list(bounds_frame(rows)["fix"]) == ["+b"]


# Coverage


def test_coverage_has_a_line_for_each_case_and_counts_the_converted_graph() -> None:
    rest = quantizer_row(quantizer="c", role="weight", status="unquantized")
    other = quantizer_row(role="weight", flow="x86-dynamic")
    repaired = quantizer_row(role="weight", variant="+fix")
    lowered = quantizer_row(role="weight", point="lowered")
    rows: list[Row] = [rest, quantizer_row(role="weight"), lowered, other, repaired]
    lines = coverage_frame(rows).to_dict("records")
    assert [(x["flow"], x["variant"], x["quantized"], x["quantizable"], x["in float"]) for x in lines] == [
        ("x86-dynamic", "released", 1, 1, ""), ("x86-static", "+fix", 1, 1, ""), ("x86-static", "released", 1, 2, "c")
    ]  # fmt: skip
    assert coverage_frame([]).empty
