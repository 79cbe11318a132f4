"""What cannot be compared is a status of its layer, and never an exception."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from harness.measure.layers import measure_layers
from harness.records import Status
from tests.layer_graphs import Branches, Chain, exported, inputs, layer, twins


@pytest.mark.parametrize(
    ("side", "status"), [(0, Status.NONFINITE_REFERENCE), (1, Status.NONFINITE_ACTUAL)], ids=["float", "quantized"]
)
def test_nan_is_a_status_of_the_layers_behind_it(side: int, status: Status) -> None:
    graphs = [exported(Branches(), inputs(1)[0][0]) for _ in range(2)]
    graphs[1] = copy.deepcopy(graphs[0])
    graphs[side].get_parameter("left.weight").data[0, 0] = math.nan
    report = measure_layers(reference=graphs[0], actual=graphs[1], batches=inputs())
    for name in ("left:linear", "cat", "head:linear"):
        found = layer(report, name)
        assert (found.status, found.sqnr_db, found.worst_channel_db) == (status, None, None)
    assert layer(report, "left:linear").local_status == status
    assert layer(report, "right:linear").status == Status.EXACT


def test_another_dtype_is_a_mismatch() -> None:
    def change(graph: GraphModule) -> None:
        relu = next(node for node in graph.graph.nodes if node.name == "relu")
        relu.target = torch.ops.aten.gt.Scalar
        relu.args = (relu.args[0], 0)
        with graph.graph.inserting_after(relu):
            back = graph.graph.call_function(torch.ops.aten.to.dtype, (relu, torch.float32))
        relu.replace_all_uses_with(back, lambda user: user is not back)

    report = twins(Chain(), change)
    assert (layer(report, "relu").status, layer(report, "relu").sqnr_db) == (Status.MISMATCH, None)
    assert layer(report, "second:linear").status == Status.MEASURED


def test_no_signal_and_no_elements_are_statuses() -> None:
    model = Chain()
    nn.init.zeros_(model.first.weight)

    def change(graph: GraphModule) -> None:
        graph.get_parameter("first.weight").data.fill_(1.0)

    assert twins(model, change).layers[0].status == Status.ZERO_SIGNAL
    graph = exported(Chain(), inputs(1)[0][0])
    empty = measure_layers(reference=graph, actual=copy.deepcopy(graph), batches=[])
    assert {(one.status, one.local_db if one.op == "linear" else None) for one in empty.layers} == {
        (Status.EMPTY, None)
    }


def test_a_layer_that_does_not_take_the_float_graphs_shapes_is_a_mismatch_alone() -> None:
    def change(graph: GraphModule) -> None:
        relu = next(node for node in graph.graph.nodes if node.name == "relu")
        relu.target, relu.args = torch.ops.aten.constant_pad_nd.default, (relu.args[0], [0, 2])
        graph.second.weight = nn.Parameter(torch.ones(3, 5))

    report = twins(Chain(), change)
    assert layer(report, "relu").status == Status.MISMATCH
    second = layer(report, "second:linear")
    assert second.status == Status.MEASURED
    assert (second.local_status, second.local_db, second.local_numel) == (Status.MISMATCH, None, 0)
