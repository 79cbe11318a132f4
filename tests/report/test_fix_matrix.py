"""The fix matrix: a cell for each output, flow and variant, with its number, its sign and what it says in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.records import OutputRow
from harness.report.fix_matrix import LEGEND, fix_matrix
from tests.rows import no_number, output_row, repaired_row, with_nan


def cells(*rows: OutputRow, columns: tuple[str, ...] = ("flow", "variant", "text")) -> list[tuple[Any, ...]]:
    return list(fix_matrix(rows)[list(columns)].itertuples(index=False, name=None))


def repaired_cell(*rows: OutputRow) -> dict[str, Any]:
    """The cell of the one variant among `rows` that is not released."""
    (cell,) = (cell for cell in fix_matrix(rows).to_dict("records") if cell["variant"] != "released")
    return cell


def test_a_fix_gains_the_difference_to_released_code() -> None:
    cell = repaired_cell(output_row(sqnr_db=-4.25), repaired_row(sqnr_db=23.5))
    assert (cell["row"], cell["sqnr_db"], cell["gain_db"], cell["text"]) == ("resnet/small logits", 23.5, 27.75, "23.5")


def test_released_code_has_no_gain() -> None:
    released, _ = fix_matrix([output_row(), repaired_row()]).to_dict("records")
    assert math.isnan(released["gain_db"])


def test_flows_without_fixes_are_not_in_the_matrix() -> None:
    assert cells(output_row(), repaired_row(), output_row(flow="x86-dynamic")) == [
        ("x86-static", "released", "30.0"), ("x86-static", "+fix", "30.0")
    ]  # fmt: skip
    assert fix_matrix([output_row()]).empty


def test_a_model_that_no_variant_was_measured_on_still_shows_its_released_cell() -> None:
    rows = [output_row(), repaired_row(), output_row(model="vit", sqnr_db=20.0)]
    assert cells(*rows, columns=("row", "text"))[-1] == ("vit/small logits", "20.0")


@pytest.mark.parametrize("order", [1, -1])
def test_the_last_point_counts_in_whatever_order_rows_come(order: int) -> None:
    rows = [output_row(point=point, sqnr_db=level) for point, level in (("converted", 40.0), ("lowered", 0.5))]
    rows += [repaired_row(point=point, sqnr_db=level) for point, level in (("converted", 40.0), ("lowered", 39.5))]
    cell = repaired_cell(*rows[::order])
    assert (cell["point"], cell["sqnr_db"], cell["gain_db"]) == ("lowered", 39.5, 39.0)


@pytest.mark.parametrize(("state", "mark"), [("inert", "="), ("upstreamed", "↑"), ("unknown", "?"), ("needed", "")])
def test_what_a_fix_did_before_the_lowering_stands_at_the_last_point_too(state: str, mark: str) -> None:
    rows = [output_row(), output_row(point="lowered"), repaired_row(fix_state=state)]
    cell = repaired_cell(*rows, repaired_row(point="lowered", fix_state="", sqnr_db=29.0))
    assert (cell["point"], cell["mark"], cell["text"]) == ("lowered", mark, f"{mark} 29.0".strip())


def test_levels_at_different_points_are_not_subtracted() -> None:
    assert math.isnan(repaired_cell(output_row(), repaired_row(point="lowered"))["gain_db"])


def test_released_comes_first_then_single_fixes_then_combinations() -> None:
    variants = ["+a+b", "+b", "released", "+a"]
    assert [cell[0] for cell in cells(*(output_row(variant=v) for v in variants), columns=("variant",))] == [
        "released", "+a", "+b", "+a+b"
    ]  # fmt: skip


def test_rows_and_flows_are_in_natural_order() -> None:
    rows = [repaired_row(output=f"head{n}", flow=f"flow{n}") for n in (10, 9)]
    assert cells(*rows, columns=("row", "flow")) == [
        ("resnet/small head9", "flow9"), ("resnet/small head10", "flow10")
    ]  # fmt: skip


def test_weights_are_named_only_where_a_model_of_one_size_has_several() -> None:
    rows = [repaired_row(weights=weights) for weights in ("trained", "seeded")]
    rows += [repaired_row(size="full", weights="seeded"), repaired_row(model="vit")]
    assert [row for (row,) in cells(*rows, columns=("row",))] == [
        "resnet/full logits", "resnet/small/seeded logits", "resnet/small/trained logits", "vit/small logits"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "text"),
    [("needed", "30.0"), ("inert", "= 30.0"), ("upstreamed", "↑ 30.0"), ("unknown", "? 30.0"),
     ("not installed", "? 30.0"), ("", "30.0")],
)  # fmt: skip
def test_the_state_of_a_fix_is_a_sign_before_the_number(state: str, text: str) -> None:
    cell = repaired_cell(output_row(), repaired_row(fix_state=state))
    assert (cell["text"], cell["mark"]) == (text, text[:-4].strip())


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (no_number("failed:calibrate", variant="+fix", fix_state="unknown"), "! calibrate"),
        (no_number("nonfinite_actual", variant="+fix", fix_state="inert"), "! nonfinite actual"),
        (no_number("mismatch", variant="+fix"), "! mismatch"),
        (with_nan(repaired_row(), "sqnr_db"), "! measured"),
        (no_number("zero_signal", variant="+fix"), "zero signal"),
        (no_number("empty", variant="+fix"), "empty"),
    ],
)
def test_a_row_without_a_number_shows_why_and_what_ought_to_have_one_is_marked(row: OutputRow, text: str) -> None:
    cell = repaired_cell(output_row(), row)
    assert cell["text"] == text
    assert math.isnan(cell["sqnr_db"])
    assert math.isnan(cell["gain_db"])


def test_two_equal_tensors_are_exact_rather_than_at_the_cap() -> None:
    assert repaired_cell(output_row(), repaired_row(status="exact", sqnr_db=160.0))["text"] == "exact"


def test_every_sign_is_explained() -> None:
    states = ("inert", "upstreamed", "unknown", "not installed")
    rows = [output_row(), *(repaired_row(variant=f"+{state}", fix_state=state) for state in states)]
    assert set(fix_matrix([*rows, no_number("failed:lower")])["mark"]) - {""} == set(LEGEND)


def test_the_sentence_has_both_levels_the_gain_and_the_state() -> None:
    cell = repaired_cell(output_row(sqnr_db=12.5), repaired_row(sqnr_db=57.25))
    assert cell["hover"] == (
        "resnet/small logits through x86-static with +fix, converted: 12.50 dB as released, 57.25 dB repaired, "
        "gain +44.75 dB. The fix is needed: it changed the quantized graph."
    )


def test_the_sentence_of_a_failed_row_names_the_stage_and_the_error() -> None:
    failed = no_number("failed:export", variant="+fix", fix_state="unknown", error="IndexError: no <such> index")
    text = repaired_cell(failed)["hover"]
    assert "not measured as released, failed in export repaired. State unknown" in text
    assert text.endswith("Error: IndexError: no <such> index")


def test_names_that_pandas_cannot_hold_are_kept_as_escapes() -> None:
    cell = repaired_cell(repaired_row(output="a\ud800b", error="\ud800"))
    assert cell["row"] == "resnet/small a\\ud800b"


def test_without_rows_the_columns_are_there() -> None:
    assert list(fix_matrix([])) == [
        "row", "flow", "variant", "point", "sqnr_db", "gain_db", "mark", "text", "hover"
    ]  # fmt: skip
