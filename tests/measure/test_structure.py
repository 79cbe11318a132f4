"""Counts and digests of graphs."""

from __future__ import annotations

import torch
from torch import nn

from harness.flows.pt2e import export_strict
from harness.measure.structure import Structure, count_nodes, graph_digest
from tests.measure.test_ranges import quantize


class Halves(nn.Module):
    """Reads both halves of its input, and one row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :2] + x[:, 2:] + x.select(0, 0)[:2]


def test_slices_and_selects_are_counted():
    graph = export_strict(Halves().eval(), (torch.ones(2, 4),))
    counts = count_nodes(graph)
    assert counts.slice_nodes == sum("slice" in node.name or "select" in node.name for node in graph.graph.nodes) >= 4
    assert (counts.quantize_nodes, counts.dequantize_nodes) == (0, 0)


def test_a_linear_has_its_input_and_its_output_side_counted_once_each():
    """Input: one quantize, one dequantize. Weight: folded to codes, so a dequantize alone."""
    graph, _ = quantize(nn.Linear(4, 2), (torch.randn(3, 4),))
    assert count_nodes(graph) == Structure(1, 2, 0, len(graph.graph.nodes))


def test_a_digest_tells_graphs_by_ops_and_arguments_not_by_names():
    def graph(dim: int, name: str) -> torch.fx.GraphModule:
        made = torch.fx.Graph()
        x = made.placeholder(name)
        made.output(made.call_function(torch.ops.aten.softmax.int, (x, dim)))
        return torch.fx.GraphModule({}, made)

    assert graph_digest(graph(0, "x")) == graph_digest(graph(0, "y"))
    assert graph_digest(graph(0, "x")) != graph_digest(graph(1, "x"))
