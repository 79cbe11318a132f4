"""The table of what runs after lowering: counts of kernels, and the output that they cost most."""

from __future__ import annotations

from harness.report.kernels import kernel_frame
from tests.rows import output_row

FLOW = "x86-static"
COUNTS = {
    "int8_convs": 52,
    "int8_linears": 1,
    "float_convs": 0,
    "float_linears": 0,
    "quantize_nodes": 2,
    "dequantize_nodes": 0,
}
KERNELS = "52 int8 convs, 1 int8 linear, 2 quantize ops"


def pair(output: str, converted_db: float, lowered_db: float, kernel_db: float, **values):
    converted = output_row(flow=FLOW, point="converted", output=output, sqnr_db=converted_db)
    lowered = output_row(
        flow=FLOW, point="lowered", output=output, sqnr_db=lowered_db, kernel_db=kernel_db, **COUNTS, **values
    )
    return converted, lowered


def test_a_case_is_a_line_with_what_runs_and_its_output_farthest_from_the_converted_graph():
    rows = [*pair("near", 31.0, 30.9, 62.04), *pair("far", 38.72, 24.71, 29.76, cause="saturation")]
    frame = kernel_frame(rows)
    assert list(frame.columns) == ["model", "flow", "fix", "cause", "what runs", "converted", "lowered", "kernels"]
    assert frame.to_numpy().tolist() == [
        ["resnet/small", FLOW, "", "saturation", KERNELS, "38.7", "24.7", "29.8"],
    ]


def test_a_program_without_int8_kernels_says_so():
    float_kernels = {
        "int8_convs": 0,
        "int8_linears": 0,
        "float_convs": 1,
        "float_linears": 24,
        "quantize_nodes": 0,
        "dequantize_nodes": 50,
    }
    row = output_row(flow=FLOW, point="lowered", output="logits", kernel_db=160.0, **float_kernels)
    [line] = kernel_frame([row]).to_dict("records")
    assert line["what runs"] == "no int8 kernel, 1 float conv, 24 float matmuls, 50 dequantize ops"


def test_a_program_for_a_runtime_tells_its_ops_and_bytes():
    row = output_row(
        flow="xnnpack", point="lowered", kernel_db=36.5, delegated_nodes=1160, undelegated_nodes=8, quantize_nodes=0,
        dequantize_nodes=1, program_bytes=1234567,
    )  # fmt: skip
    [line] = kernel_frame([row]).to_dict("records")
    assert line["what runs"] == "1,160 ops delegated, 8 not, 1 dequantize op, 1,234,567 bytes"


def failed(**values):
    return output_row(flow=FLOW, point="lowered", output="logits", status="failed:lower", sqnr_db=None, **values)


def test_a_lowering_that_failed_says_so_beside_those_that_did_not():
    good = pair("logits", 31.0, 30.9, 62.0)
    lines = kernel_frame([*good, failed(variant="+mends")]).to_dict("records")
    assert [(line["fix"], line["lowered"], line["what runs"]) for line in lines] == [
        ("", "30.9", KERNELS),
        ("+mends", "failed:lower", ""),
    ]


def test_a_flow_of_which_every_lowering_failed_is_told_too():
    [line] = kernel_frame([failed()]).to_dict("records")
    assert (line["flow"], line["lowered"], line["what runs"]) == (FLOW, "failed:lower", "")


def test_a_graph_that_was_lowered_to_a_graph_is_no_line_nor_are_its_failures():
    graph = output_row(point="lowered", kernel_db=60.0, nodes=12)
    assert kernel_frame([graph]).empty
    assert kernel_frame([graph, output_row(point="lowered", variant="+mends", status="failed:lower")]).empty
