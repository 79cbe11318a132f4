"""How many nodes of which kind a graph has: what a pass costs or saves, whatever it does to the numbers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from harness.measure.qdq import is_dequantize, is_quantize, op_name

_SLICES = frozenset({"slice", "slice_copy", "select", "select_copy"})


@dataclass(frozen=True, slots=True)
class Structure:
    """Node counts as in `harness.records.OutputRow`; slices are `slice` and `select` nodes."""

    quantize_nodes: int
    dequantize_nodes: int
    slice_nodes: int
    nodes: int


def count_nodes(graph: GraphModule) -> Structure:
    """Counts of a graph; placeholders, parameters and the output count as nodes too."""
    nodes = list(graph.graph.nodes)
    calls = [node for node in nodes if node.op == "call_function"]
    return Structure(
        quantize_nodes=sum(map(is_quantize, calls)),
        dequantize_nodes=sum(map(is_dequantize, calls)),
        slice_nodes=sum(op_name(node) in _SLICES for node in calls),
        nodes=len(nodes),
    )


def graph_digest(graph: GraphModule) -> str:
    """SHA-256 over ops, targets and arguments, nodes told by their place: two graphs of one digest compute alike.

    Constants count by their place alone; what they hold shows in the qparams and the outputs.
    """
    place: dict[Node, str] = {}
    text = hashlib.sha256()
    for index, node in enumerate(graph.graph.nodes):
        place[node] = f"%{index}"
        arguments = map_arg((node.args, node.kwargs), lambda argument: place[argument])
        target = node.target if node.op == "call_function" else node.op
        text.update(f"{target}{arguments}\n".encode())
    return text.hexdigest()
