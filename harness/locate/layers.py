"""Layers left in float: the float graph's op and parameters, on what the quantized graph feeds the layer."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.fx import Node

from harness.locate.hybrid import Hybrid, Override
from harness.measure.dataflow import written_inputs
from harness.measure.matching import Matching, Pair
from harness.measure.side import Side, call, copied

_MOST_NODES = 64
"""So many float nodes between a layer and the matched ones before it are no layer: too little was matched."""


class FloatLayers:
    """Overrides that leave one layer of a quantized graph in float."""

    def __init__(self, matching: Matching, reference: Side, hybrid: Hybrid) -> None:
        self._reference = reference
        self._hybrid = hybrid
        inputs = [[node for node in side.nodes if node.op == "placeholder"] for side in (reference, hybrid.side)]
        self._twins: dict[Node, Node] = dict(zip(*inputs, strict=True))
        self._twins |= {pair.reference: pair.actual for pair in matching.pairs}

    def override(self, pair: Pair) -> dict[Node, Override] | None:
        """What leaves a layer in float; None where its value is codes, or its inputs are not those of matched nodes."""
        if pair.restore is not None or pair.actual in self._hybrid.dataflow.codes:
            return None
        found = self._fragment(pair)
        if found is None:
            return None
        nodes, feeds = found
        reads = tuple(self._twins[feed] for feed in feeds)
        place = self._hybrid.place
        if any(place[node] >= place[pair.actual] for node in reads):
            return None
        replaced = {pair.actual: Override(reads, partial(_run, tuple(nodes), tuple(feeds), self._reference))}
        written = written_inputs(pair.computed)
        if written and pair.computed is not pair.actual:  # it would write before its input is read in its place
            replaced[pair.computed] = Override(tuple(written[:1]), _passed)
        return replaced

    def _fragment(self, pair: Pair) -> tuple[list[Node], list[Node]] | None:
        """The float nodes of a layer, in order, and those before it."""
        nodes: dict[Node, None] = {}
        feeds: dict[Node, None] = {}
        todo = [pair.reference]
        while todo:
            node = todo.pop()
            if node is not pair.reference and node in self._twins:
                feeds[node] = None
            elif node not in nodes and not self._reference.is_constant(node):
                if node.op != "call_function" or len(nodes) == _MOST_NODES:
                    return None
                nodes[node] = None
                todo += node.all_input_nodes
        return sorted(nodes, key=self._reference.place.__getitem__), list(feeds)


def _passed(value: Any) -> Any:
    return value


def _run(nodes: tuple[Node, ...], feeds: tuple[Node, ...], reference: Side, *inputs: Any) -> Any:
    values: dict[Node, Any] = dict(zip(feeds, inputs, strict=True))

    def value(node: Node) -> Any:
        return values[node] if node in values else reference.constant(node)

    for node in nodes:
        for source in written_inputs(node):
            values[source] = copied(value(source))
        values[node] = call(node, value)
    return values[nodes[-1]]
