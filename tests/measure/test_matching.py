"""Which node of one graph is which of the other: made by hand, and in the graphs of every flow."""

from __future__ import annotations

import copy
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.fx import GraphModule, Node

from harness import flows
from harness.measure.layers import Layer, LayerReport, measure_layers
from harness.measure.matching import Matching, match_graphs
from harness.measure.qdq import op_name
from harness.records import Case, Stage, Status
from harness.workspace import load_module
from tests.lab import lab

CONVOLUTIONS, LINEARS = 21, 1
"""Of the small ResNet."""


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        return torch.relu(y + x) + y


IMAGE = (torch.zeros(2, 3, 4, 4),)


def exported() -> GraphModule:
    return torch.export.export(Residual().eval(), IMAGE, strict=True).module()


def matched(reference: GraphModule, actual: GraphModule) -> Matching:
    return match_graphs(reference=reference, actual=actual)


def forget(graph: GraphModule, *keys: str) -> GraphModule:
    for node in graph.graph.nodes:
        for key in keys:
            node.meta.pop(key, None)
    return graph


def calls(graph: GraphModule, op: str) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function" and op_name(node) == op]


def test_nodes_of_one_origin_are_one_layer_whatever_they_are_called() -> None:
    reference = exported()
    actual = copy.deepcopy(reference)
    for place, node in enumerate(calls(actual, "relu") + calls(actual, "add")):
        node.name = f"renamed_{place}"
    found = matched(reference, actual)
    assert [pair.name for pair in found.pairs] == ["conv:conv2d", "norm:batch_norm", "relu", "add", "relu#1", "add#1"]
    assert {pair.by for pair in found.pairs} == {"provenance"}
    assert not found.only_reference
    assert not found.only_actual
    order = [node for node in actual.graph.nodes if node.op == "call_function"]
    assert [pair.computed for pair in found.pairs] == order


def test_graphs_of_two_exports_are_matched_by_name() -> None:
    found = matched(exported(), exported())
    assert len(found.pairs) == 6
    assert {pair.by for pair in found.pairs} == {"name"}


def test_without_any_meta_names_of_ops_are_left() -> None:
    graphs = [forget(exported(), "from_node", "nn_module_stack", "stack_trace") for _ in range(2)]
    assert [pair.name for pair in matched(*graphs).pairs] == [
        "conv2d", "batch_norm", "relu", "add", "relu#1", "add#1"
    ]  # fmt: skip


def test_a_name_that_may_have_shifted_is_not_trusted() -> None:
    reference, actual = exported(), exported()
    for graph in (reference, actual):
        forget(graph, "from_node")
    last = calls(actual, "add")[-1]
    last.replace_all_uses_with(last.args[0])  # one of two adds is gone, and nothing says which
    actual.graph.erase_node(last)
    found = matched(reference, actual)
    assert [pair.name for pair in found.pairs if pair.op == "add" and pair.by == "name"] == []


def test_a_node_of_one_side_only_is_listed() -> None:
    reference = exported()
    actual = copy.deepcopy(reference)
    first = calls(actual, "relu")[0]
    with actual.graph.inserting_after(first):
        extra = actual.graph.call_function(torch.ops.aten.neg.default, (first,))
    first.replace_all_uses_with(extra, lambda user: user is not extra)
    gone = calls(actual, "relu")[1]
    gone.replace_all_uses_with(gone.args[0])
    actual.graph.erase_node(gone)
    actual.recompile()
    report = measure_layers(reference=reference, actual=actual, batches=[(torch.randn(2, 3, 4, 4),)])
    assert report.only_actual == ("neg",)
    # What is gone was folded into its producer for all that anyone can see, and that is where it shows.
    assert report.only_reference == ()
    add = next(one for one in report.layers if one.name == "add")
    assert (add.folded, add.status) == ("relu", Status.MEASURED)
    assert add.local_db is not None
    assert add.local_db < 60


def test_a_batchnorm_folded_into_its_convolution_gives_the_value_of_the_layer() -> None:
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_

    reference = exported()
    actual = copy.deepcopy(reference)
    _fuse_conv_bn_(actual)
    report = measure_layers(reference=reference, actual=actual, batches=[(torch.randn(2, 3, 4, 4),)])
    conv = report.layers[0]
    assert (conv.name, conv.op, conv.folded) == ("conv:conv2d", "conv2d", "batch_norm")
    assert conv.sqnr_db is not None
    assert conv.sqnr_db > 120
    assert (report.only_reference, report.only_actual) == ((), ())


def test_shapes_that_differ_are_no_match() -> None:
    reference = exported()
    other = torch.export.export(Residual().eval(), (torch.zeros(2, 3, 5, 5),), strict=True).module()
    found = matched(reference, other)
    assert not found.pairs
    assert len(found.only_reference) == len(found.only_actual) == 6


@cache
def of_flow(model: str, flow: str, stage: Stage = Stage.CONVERT) -> LayerReport:
    bench = lab(load_module(Path(__file__).parents[2] / "models", model), weights="trained")
    loaded, case = flows.load(flow), Case(model, "small", "trained", flow)
    with torch.no_grad():
        stages = bench.pipeline._stages
        reference = stages.export(case, loaded)
        actual = stages.at(stage, case, loaded, ()).graph
        batches = [batch.inputs for batch, _ in bench.subject._evaluation()]
    return measure_layers(reference=reference, actual=actual, batches=batches)


def by_op(report: LayerReport, op: str) -> list[Layer]:
    return [layer for layer in report.layers if layer.op == op]


def upstream(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install 'sqnr-harness[upstream]'")


def test_every_convolution_of_a_static_resnet_is_measured_and_none_is_overwritten() -> None:
    report = of_flow("resnet", "x86-static")
    convolutions = by_op(report, "conv2d")
    assert len(convolutions) == CONVOLUTIONS
    assert len(by_op(report, "linear")) == LINEARS
    assert all(layer.sqnr_db > 25 and layer.local_db > 35 for layer in convolutions)
    assert all(layer.local_db >= layer.sqnr_db - 3 for layer in convolutions)
    assert (report.only_reference, report.only_actual) == ((), ())


def test_every_layer_of_bert_is_matched_static_and_dynamic() -> None:
    for flow in ("x86-static", "x86-dynamic"):
        report = of_flow("bert", flow)
        assert (report.only_reference, report.only_actual) == ((), ())
        assert all(layer.status in (Status.EXACT, Status.MEASURED) for layer in report.layers)
        linears = by_op(report, "linear")
        assert len(linears) == 14
        assert all(20 < layer.local_db < 70 for layer in linears)


def test_the_hoisted_quantizer_shows_in_its_reader_alone() -> None:
    upstream("executorch")
    report = of_flow("slices", "cadence-hoist", Stage.LOWER)
    assert (report.only_reference, report.only_actual) == ((), ())
    wide = by_op(report, "select")
    assert len(wide) == 2
    assert all(layer.sqnr_db < 1 and layer.local_db < 1 for layer in wide)
    others = [layer for layer in report.layers if layer.op != "select"]
    assert all(layer.local_db > 30 for layer in others)
    rows = next(layer for layer in others if layer.name == "rows:linear")
    assert rows.sqnr_db < 1 < 30 < rows.local_db  # inherited, not done here


def test_fused_linears_without_any_provenance_are_found_by_what_reads_them() -> None:
    upstream("executorch")
    report = of_flow("slices", "vulkan-4w", Stage.LOWER)
    assert report.only_reference == ()
    linears = by_op(report, "linear")
    assert len(linears) == 7
    assert all(layer.local_db < 25 for layer in linears)
    assert min(layer.local_db for layer in linears) < 0
    assert all(layer.local_db == 160 for layer in by_op(report, "relu"))


@pytest.mark.parametrize(
    ("model", "flow", "package", "stage"),
    [
        ("convnext", "nncf-mul", "nncf", Stage.CONVERT),
        ("convnext", "xnnpack", "executorch", Stage.CONVERT),
        ("vit", "arm-static-default", "torchao", Stage.CONVERT),
        ("resnet", "nncf-x86", "nncf", Stage.CONVERT),
        ("resnet", "cadence-hoist", "executorch", Stage.LOWER),
        pytest.param("vit", "cadence-hoist", "executorch", Stage.LOWER, marks=pytest.mark.slow),
        pytest.param("vit", "vulkan-8w", "executorch", Stage.LOWER, marks=pytest.mark.slow),
    ],
)
def test_no_float_layer_is_lost_in_any_flow(model: str, flow: str, package: str, stage: Stage) -> None:
    upstream(package)
    report = of_flow(model, flow, stage)
    assert report.only_reference == ()
    assert all(layer.status in (Status.EXACT, Status.MEASURED) for layer in report.layers)


def test_only_the_quantized_parameters_of_convnext_do_damage() -> None:
    upstream("nncf")
    report = of_flow("convnext", "nncf-mul")
    harmed = {layer.op for layer in report.layers if layer.local_db is None or layer.local_db < 100}
    assert harmed == {"mul"}
