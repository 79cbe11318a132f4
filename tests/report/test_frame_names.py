"""Names and numbers that the tables of a report must stand: any text, several weights, damaged rows."""

from __future__ import annotations

import pytest

from harness.report.frames import bounds_frame, coverage_frame, fix_frame, idle_fixes, sqnr_table
from tests.report.matrices import cells
from tests.rows import output_row, quantizer_row, repaired_row


@pytest.mark.parametrize("flow", ["", "flow", "output", "index"])
@pytest.mark.parametrize("outputs", [1, 13])
def test_a_flow_may_have_any_name(flow: str, outputs: int) -> None:
    rows = [output_row(flow=name, output=f"o{n}", sqnr_db=20.0) for name in (flow, "x86") for n in range(outputs)]
    found = cells(sqnr_table(rows))
    assert found == {(name, f"resnet/small o{n}"): "20.0" for name in (flow, "x86") for n in range(outputs)}


def test_names_that_read_alike_are_two_lines_and_two_columns() -> None:
    """A flow called as another's lowered graph, and two outputs whose names hold a blank."""
    rows = [output_row(flow="a", point="lowered", sqnr_db=1.0), output_row(flow="a lowered", sqnr_db=2.0)]
    assert sqnr_table(rows).to_numpy().tolist() == [["a lowered", "1.0"], ["a lowered", "2.0"]]
    rows = [output_row(size="s", output="x y", sqnr_db=1.0), output_row(size="s x", output="y", sqnr_db=2.0)]
    table = sqnr_table(rows)
    assert list(table.columns) == ["flow", "resnet/s x y", "resnet/s x y"]
    assert table.to_numpy().tolist() == [["x86-static", "1.0", "2.0"]]


def test_names_that_pandas_cannot_hold_stand_as_escapes() -> None:
    odd = {"model": "\udcff", "flow": "\udcfe"}
    assert cells(sqnr_table([output_row(**odd, sqnr_db=20.0)])) == {("\\udcfe", "\\udcff/small logits"): "20.0"}
    assert list(fix_frame([repaired_row(**odd)])["model"]) == ["\\udcff/small"]
    assert list(coverage_frame([quantizer_row(**odd)])["flow"]) == ["\\udcfe"]


# Several kinds of weights in one run


def test_weights_are_named_where_a_model_of_one_size_has_several() -> None:
    both = [output_row(sqnr_db=30.0), output_row(weights="seeded", sqnr_db=20.0)]
    alone = output_row(size="full", weights="seeded", sqnr_db=10.0)
    assert cells(sqnr_table([*both, alone])) == {
        ("x86-static", "resnet/small/trained logits"): "30.0",
        ("x86-static", "resnet/small/seeded logits"): "20.0",
        ("x86-static", "resnet/full logits"): "10.0",
    }


def test_fixes_of_several_weights_are_told_apart() -> None:
    rows = [row(weights=kind) for kind in ("trained", "seeded") for row in (output_row, repaired_row)]
    assert list(fix_frame(rows)["model"]) == ["resnet/small/seeded", "resnet/small/trained"]
    idle = [output_row(), output_row(weights="seeded"), repaired_row(fix_state="inert")]
    assert idle_fixes(idle) == ["x86-static +fix: inert on resnet/small/trained"]


def test_bounds_of_several_weights_are_told_apart() -> None:
    rows = [quantizer_row(hi=1.0), quantizer_row(variant="+fix", hi=2.0)]
    assert list(bounds_frame(rows)["model"]) == ["resnet/small"]
    assert list(bounds_frame([*rows, quantizer_row(weights="seeded")])["model"]) == ["resnet/small/trained"]


def test_levels_of_damaged_rows_stay_short() -> None:
    rows = [output_row(sqnr_db=-1e300), repaired_row(sqnr_db=30.0)]
    assert cells(sqnr_table(rows)) == {("x86-static", "resnet/small logits"): "-1.00e+300"}
    fixes = fix_frame(rows)[["released", "repaired", "gain, dB"]]
    assert fixes.to_numpy().tolist() == [["-1.00e+300", "30.00", "+1.00e+300"]]
