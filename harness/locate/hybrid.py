"""A quantized graph run with some of its values computed in another way: what the outputs were if these were right.

Nothing is edited or copied: an override stands in for a node while the graph runs, so that the hundred graphs of a
search share one graph, its weights, and whatever of them is computed from parameters alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from harness.measure.dataflow import Dataflow, written_inputs
from harness.measure.side import Side, call


@dataclass(frozen=True, slots=True)
class Override:
    """What stands in for a node: `compute` of the values of `reads`, nodes of the same graph that come before it.

    The value must have memory of its own, or be one that nothing writes into: see `Hybrid.writes`.
    """

    reads: tuple[Node, ...]
    compute: Callable[..., Any]


Overrides = Mapping[Node, Override]


class Hybrid:
    """One graph, to be run under many sets of overrides."""

    def __init__(self, graph: GraphModule) -> None:
        self.dataflow = Dataflow(graph)
        self.side = Side(graph, self.dataflow)
        self._graph = graph
        self._nodes = list(graph.graph.nodes)
        self.place = {node: place for place, node in enumerate(self._nodes)}
        self.writes = any(written_inputs(node) for node in self._nodes)
        """Whether any op writes into its input: a value that is passed on must then be copied."""

    def under(self, overrides: Overrides) -> Callable[..., Any]:
        """The graph with these overrides, as a function of the model's inputs that gives the model's outputs.

        What neither an output nor a write into memory needs any more is not run.
        """
        reads = {node: overrides[node].reads if node in overrides else node.all_input_nodes for node in self._nodes}
        steps = self._needed(reads)
        moved = self._moved(overrides, reads)
        drops: dict[Node, list[Node]] = defaultdict(list)
        seen: set[Node] = set()
        for node in reversed(steps):
            last = [source for source in dict.fromkeys(reads[node]) if source not in seen]
            drops[node] = last
            seen.update(last)

        def run(*inputs: Any) -> Any:
            waiting = iter(inputs)
            values: dict[Node, Any] = {}

            def value(node: Node) -> Any:
                return values[node] if node in values else self.side.constant(node)

            for node in steps:
                if node.op == "output":
                    return map_arg(node.args[0], value)
                if node.op == "placeholder":
                    values[node] = next(waiting).clone()  # the graph may write into its inputs
                elif node in overrides:
                    values[node] = overrides[node].compute(*map(value, reads[node]))
                elif node.op == "get_attr" and node not in self.dataflow.constants:
                    values[node] = self.side.attribute(node).clone()  # written into: each batch begins with these bits
                elif node not in self.dataflow.constants or node in moved:
                    values[node] = self._call(node, value)
                for source in drops[node]:
                    values.pop(source, None)
            raise AssertionError("a graph has an output")

        return run

    def _call(self, node: Node, value: Callable[[Node], Any]) -> Any:
        if node.op == "call_module":
            module = self._graph.get_submodule(str(node.target))
            return module(*map_arg(node.args, value), **map_arg(node.kwargs, value))
        return call(node, value)

    def _needed(self, reads: Mapping[Node, Any]) -> list[Node]:
        """The nodes to run, in order. Placeholders are, so that inputs stay counted."""
        needed: set[Node] = set()
        todo = [node for node in self._nodes if node.op in ("output", "placeholder") or written_inputs(node)]
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += reads[node]
        return [node for node in self._nodes if node in needed]

    def _moved(self, overrides: Overrides, reads: Mapping[Node, Any]) -> set[Node]:
        """Constants that depend on an override."""
        moved = set(overrides)
        for node in self._nodes:
            if node in self.dataflow.constants and any(source in moved for source in reads[node]):
                moved.add(node)
        return moved
