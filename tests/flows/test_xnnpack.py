"""ExecuTorch's XNNPACKQuantizer on the small models."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from harness import flows
from harness.fixes.states import diagnose
from harness.fixes.xnnpack_integer_scalars import FIX
from harness.flows import xnnpack
from harness.measure.metrics import sqnr_db
from harness.measure.qdq import bind, is_dequantize, is_quantize, op_name
from harness.records import FixState
from harness.subject import flatten
from harness.workspace import load_module
from tests.upstream import needs

needs("executorch")

torch.set_num_threads(1)

FLOW = xnnpack.flow("xnnpack")
MODELS = Path(__file__).parents[2] / "models"


@cache
def converted(name: str):
    """A small model's converted graph, the first evaluation batch, and the float outputs for that."""
    adapter = load_module(MODELS, name)
    model = adapter.build("small", adapter.SIZES["small"].weights[0], 0)
    inputs = next(iter(adapter.evaluation("small", 0))).inputs
    with torch.no_grad(), FIX.repair():  # without it BERT cannot be prepared
        graph = FLOW.prepare(FLOW.export(model, inputs))
        FLOW.calibrate(graph, (batch.inputs for batch in adapter.calibration("small", 0)))
        return FLOW.convert(graph), inputs, flatten(model(*inputs))


def levels(reference: list[torch.Tensor], outputs) -> list[float]:
    """SQNR of each output, dB."""
    pairs = zip(reference, flatten(outputs), strict=True)
    return [sqnr_db(reference=expected, actual=actual) or 0.0 for expected, actual in pairs]


@pytest.mark.parametrize("name", ["bert", "convnext", "resnet", "slices", "vit"])
def test_every_small_model_keeps_25_db_with_int8_weights_per_channel(name):
    """8 bits leave 6.02 x 8 - 10 = 38 dB of a tensor spread over its range; a network of them loses some 10 more."""
    graph, inputs, reference = converted(name)
    with torch.no_grad():
        assert min(levels(reference, graph(*inputs))) > 25
    nodes = list(graph.graph.nodes)
    activations = [bind(node) for node in nodes if is_quantize(node)]
    weights = [bind(node) for node in nodes if is_dequantize(node) and op_name(node) == "dequantize_per_channel"]
    assert {(args["quant_min"], args["quant_max"], args["dtype"]) for args in activations} == {(-128, 127, torch.int8)}
    assert {(args["axis"], args["quant_min"], args["quant_max"]) for args in weights} == {(0, -127, 127)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "convnext", "resnet", "slices", "vit"])
def test_every_small_model_on_the_runtime_is_within_half_a_db_of_its_converted_graph(name):
    graph, inputs, reference = converted(name)
    with torch.no_grad():
        program = xnnpack.lower(xnnpack.export_again(graph, inputs))
        assert levels(reference, program.run(*inputs)) == pytest.approx(levels(reference, graph(*inputs)), abs=0.5)
    assert program.counts["delegated_nodes"] > program.counts["undelegated_nodes"]
    assert program.counts["quantize_nodes"] == program.counts["dequantize_nodes"] == 0


class IndexesWithIntegers(nn.Module):
    """As BERT indexes its attention mask."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 0.5)[:, torch.arange(4) + 0]


def test_released_the_index_becomes_a_float_and_the_prepared_graph_raises():
    x = torch.ones(2, 4)
    prepared = FLOW.prepare(FLOW.export(IndexesWithIntegers(), (x,)))
    with pytest.raises(IndexError, match="tensors used as indices must be long"):
        prepared(x)


def test_repaired_integer_arithmetic_stays_integer_and_float_arithmetic_as_released():
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    with FIX.repair():
        prepared = FLOW.prepare(FLOW.export(IndexesWithIntegers(), (x,)))
    assert torch.equal(prepared(x), x + 0.5)
    float_add, integer_add = (node for node in prepared.graph.nodes if op_name(node) == "add")
    assert float_add.target is torch.ops.aten.add.Tensor
    assert integer_add.target is torch.ops.aten.add.Scalar


def test_the_state_is_needed_and_the_repair_is_undone_after_an_exception():
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

    before = xnnpack_quantizer._convert_scalars_to_attrs
    found = diagnose(FIX)
    assert (found.state, found.released, found.repaired) == (FixState.NEEDED, "torch.float32", "torch.int64")
    with contextlib.suppress(RuntimeError), FIX.repair():
        assert xnnpack_quantizer._convert_scalars_to_attrs is not before
        raise RuntimeError
    assert xnnpack_quantizer._convert_scalars_to_attrs is before


def test_the_flow_shares_its_export_with_torchao_flows():
    assert FLOW.export is flows.load("x86-static").export
