"""Whose damage a quantizer does: the reader's alone, and everybody's behind it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers quantized_decomposed ops)
from torch.fx import GraphModule, Node

from harness.measure.layers import LayerReport, measure_layers
from harness.measure.metrics import sqnr_db
from tests.layer_graphs import Chain, exported, inputs, layer

OPS = torch.ops.quantized_decomposed
SCALE = 0.25
QPARAMS = (SCALE, 0, -128, 127, torch.int8)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """To quarters, halves to even; nothing here is as large as 32, where it would clip."""
    return torch.round(x / SCALE) * SCALE


def quantize(graph: GraphModule, node: Node) -> tuple[Node, Node]:
    """Put a quantizer between a node and its readers."""
    with graph.graph.inserting_after(node):
        codes = graph.graph.call_function(OPS.quantize_per_tensor.default, (node, *QPARAMS))
    with graph.graph.inserting_after(codes):
        values = graph.graph.call_function(OPS.dequantize_per_tensor.default, (codes, *QPARAMS))
    node.replace_all_uses_with(values, lambda user: user is not codes)
    return codes, values


def named(graph: GraphModule, name: str) -> Node:
    return next(node for node in graph.graph.nodes if node.name == name)


def measured(model: nn.Module, name: str, move: str = "") -> LayerReport:
    """With a quantizer behind node `name`; its dequantize op behind node `move`, if that is given."""
    reference = exported(model, inputs(1)[0][0])
    actual = copy.deepcopy(reference)
    codes, values = quantize(actual, named(actual, name))
    if move:
        moved = named(actual, move)
        values.replace_all_uses_with(codes)
        actual.graph.erase_node(values)
        with actual.graph.inserting_after(moved):
            values = actual.graph.call_function(OPS.dequantize_per_tensor.default, (moved, *QPARAMS))
        moved.replace_all_uses_with(values, lambda user: user is not values)
    actual.recompile()
    return measure_layers(reference=reference, actual=actual, batches=inputs(), local_every=1)


def test_a_quantizer_counts_in_the_value_of_its_producer_and_in_the_local_damage_of_its_reader() -> None:
    model = Chain()
    report = measured(model, "relu")
    x = torch.cat([batch[0] for batch in inputs()])
    with torch.no_grad():
        relu = torch.relu(model.first(x))
        want = sqnr_db(reference=relu, actual=rounded(relu))
        behind = sqnr_db(reference=model.second(relu), actual=model.second(rounded(relu)))
    assert layer(report, "first:linear").sqnr_db == 160.0
    assert layer(report, "relu").sqnr_db == pytest.approx(want, abs=1e-4)
    assert layer(report, "relu").local_db == 160.0
    assert layer(report, "second:linear").sqnr_db == pytest.approx(behind, abs=1e-4)
    assert layer(report, "second:linear").local_db == pytest.approx(behind, abs=1e-4)


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.neg(x.unsqueeze(0).flatten(0, 1)) + 1.0


def test_codes_that_views_pass_on_are_measured_as_what_they_stand_for() -> None:
    report = measured(Views(), "x", move="flatten")
    x = torch.cat([batch[0] for batch in inputs()])
    want = sqnr_db(reference=x, actual=rounded(x))
    for name in ("unsqueeze", "flatten"):
        assert layer(report, name).sqnr_db == pytest.approx(want, abs=1e-4)
        assert layer(report, name).local_db == pytest.approx(want, abs=1e-4)
    assert layer(report, "neg").sqnr_db == pytest.approx(want, abs=1e-4)
    assert (layer(report, "neg").local_db, layer(report, "add").local_db) == (160.0, 160.0)


def test_two_readers_with_quantizers_of_their_own_leave_the_value_as_it_was_computed() -> None:
    model = Chain()
    reference = exported(model, inputs(1)[0][0])
    actual = copy.deepcopy(reference)
    relu = named(actual, "relu")
    _, values = quantize(actual, relu)
    with actual.graph.inserting_before(named(actual, "linear_1")):
        coarse = actual.graph.call_function(OPS.quantize_per_tensor.default, (relu, 1.0, 0, -128, 127, torch.int8))
        other = actual.graph.call_function(OPS.dequantize_per_tensor.default, (coarse, 1.0, 0, -128, 127, torch.int8))
        actual.graph.call_function(torch.ops.aten.add.Tensor, (values, other))
    actual.recompile()
    report = measure_layers(reference=reference, actual=actual, batches=inputs(), local_every=1)
    assert layer(report, "relu").sqnr_db == 160.0
    assert layer(report, "second:linear").local_db < 40
    assert report.only_actual == ("add",)
