"""A part of a graph as a module of its own: a few nodes on recorded values, as they are or put right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.fx import Node

from harness.locate.hybrid import Override
from harness.measure.dataflow import written_inputs
from harness.measure.qdq import is_dequantize, is_quantize
from harness.measure.side import Side, call, copied


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes of one graph in order, of which the last gives the value, and the nodes whose values they are given."""

    nodes: tuple[Node, ...]
    feeds: tuple[Node, ...]


def part_between(side: Side, target: Node, feeds: tuple[Node, ...]) -> Part | None:
    """What computes a node from `feeds` and constants; None if it takes anything else."""
    nodes: set[Node] = set()
    todo = [target]
    while todo:
        node = todo.pop()
        if node is not target and node in feeds:
            continue
        if node not in nodes and not side.is_constant(node):
            if node.op != "call_function":
                return None
            nodes.add(node)
            todo += node.all_input_nodes
    return Part(tuple(sorted(nodes, key=side.place.__getitem__)), feeds)


def with_quantizers(side: Side, part: Part) -> Part:
    """The part with the quantize and dequantize ops of its parameters, which are constants too."""
    nodes = dict.fromkeys(part.nodes)
    todo = [source for node in part.nodes for source in node.all_input_nodes]
    while todo:
        node = todo.pop()
        if node not in nodes and node not in part.feeds and (is_quantize(node) or is_dequantize(node)):
            nodes[node] = None
            todo += node.all_input_nodes
    return Part(tuple(sorted(nodes, key=side.place.__getitem__)), part.feeds)


class Fragment(nn.Module):
    """A part as a function of its feeds' values; under `overrides` the part put right.

    Constants are what they are when it is made.
    """

    def __init__(self, side: Side, part: Part, overrides: Mapping[Node, Override] | None = None) -> None:
        super().__init__()
        self._part = part
        self._overrides = {node: one for node, one in (overrides or {}).items() if node in part.nodes}
        self._names: dict[Node, str] = {}
        for node in part.nodes:
            for source in self._overrides[node].reads if node in self._overrides else node.all_input_nodes:
                if source in part.nodes or source in part.feeds or source in self._names:
                    continue
                fixed = overrides[source].compute() if overrides and source in overrides else side.constant(source)
                self._names[source] = f"constant{len(self._names)}"
                if isinstance(fixed, Tensor):
                    self.register_buffer(self._names[source], fixed.detach().clone())
                else:
                    setattr(self, self._names[source], fixed)

    def forward(self, *inputs: Tensor) -> Any:
        """The value of the part's last node, with memory of its own."""
        values: dict[Node, Any] = dict(zip(self._part.feeds, inputs, strict=True))

        def value(node: Node) -> Any:
            return values[node] if node in values else getattr(self, self._names[node])

        for node in self._part.nodes:
            if node in self._overrides:
                values[node] = self._overrides[node].compute(*map(value, self._overrides[node].reads))
                continue
            for source in written_inputs(node):
                values[source] = copied(value(source))
            values[node] = call(node, value)
        return copied(values[self._part.nodes[-1]])
