"""The table of what runs after lowering: counts of kernels, and the output that they cost most."""

from __future__ import annotations

from harness.report.kernels import kernel_frame
from tests.rows import output_row

FLOW = "x86-static"
COUNTS = {"int8_convs": 52, "int8_linears": 1, "float_convs": 0, "float_linears": 0, "quantize_nodes": 2}


def pair(output: str, converted_db: float, lowered_db: float, kernel_db: float, **values):
    converted = output_row(flow=FLOW, point="converted", output=output, sqnr_db=converted_db)
    lowered = output_row(
        flow=FLOW, point="lowered", output=output, sqnr_db=lowered_db, kernel_db=kernel_db, **COUNTS, **values
    )
    return converted, lowered


def test_a_case_is_a_line_with_its_counts_and_its_output_farthest_from_the_converted_graph():
    rows = [*pair("near", 31.0, 30.9, 62.04), *pair("far", 38.72, 24.71, 29.76, cause="saturation")]
    [line] = kernel_frame(rows).to_dict("records")
    assert [line[name] for name in ("int8 convs", "int8 linears", "float convs", "quantize ops")] == [
        *("52", "1", "0", "2"),
    ]
    assert [line[name] for name in ("converted", "lowered", "kernels", "cause")] == [
        *("38.7", "24.7", "29.8", "saturation"),
    ]


def test_columns_that_no_program_has_are_left_out_and_the_names_stay():
    columns = list(kernel_frame(pair("logits", 31.0, 30.9, 62.0)).columns)
    assert columns[:3] == ["model", "flow", "fix"]
    assert not {"delegated", "not delegated", "bytes", "cause"} & set(columns)


def test_a_lowering_that_failed_says_so_beside_those_that_did_not():
    good = pair("logits", 31.0, 30.9, 62.0)
    bad = output_row(flow=FLOW, variant="+mends", point="lowered", output="logits", status="failed:lower", sqnr_db=None)
    lines = kernel_frame([*good, bad]).to_dict("records")
    assert [(line["fix"], line["lowered"], line["int8 convs"]) for line in lines] == [
        ("", "30.9", "52"),
        ("+mends", "failed:lower", ""),
    ]


def test_a_graph_that_was_lowered_to_a_graph_is_no_line():
    assert kernel_frame([output_row(point="lowered", kernel_db=60.0)]).empty


def test_bytes_are_told_in_groups_of_three_digits():
    converted, lowered = pair("logits", 31.0, 30.9, 62.0, delegated_nodes=9, undelegated_nodes=2, program_bytes=1234567)
    [line] = kernel_frame([converted, lowered]).to_dict("records")
    assert (line["delegated"], line["not delegated"], line["bytes"]) == ("9", "2", "1,234,567")
