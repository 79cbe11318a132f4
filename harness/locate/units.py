"""The quantizers of a graph as they can be put right: those that share an observer, or codes, together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from harness.measure.dataflow import Dataflow
from harness.measure.matching import Matching
from harness.measure.prepared import PreparedFacts
from harness.measure.qdq import is_dequantize, is_quantize, op_name
from harness.measure.sites import VIEW_OPS, Sites

_MOVES = VIEW_OPS | {"cat", "stack", "max_pool2d", "index_select", "repeat"}
"""Ops that do with codes what they would do with the floats these stand for: they move them or pick the largest."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Quantizers that share qparams, by their names in `quantizers.csv`, and the nodes that do their work.

    A quantizer of a parameter that was folded to codes has a dequantize node alone.
    """

    names: tuple[str, ...]
    quantize: tuple[Node, ...]
    dequantize: tuple[Node, ...]


class Quantizers:
    """The units of a graph, in its order, and the name of each dequantize node by the place that reads it."""

    def __init__(self, graph: GraphModule, facts: PreparedFacts, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        sites = Sites(graph)
        self.names: dict[Node, str] = {}
        self.readers: dict[Node, tuple[str, Node]] = {}
        """(operand, node) of the first place that reads each one's value."""
        self.source: dict[Node, Node] = {}
        """The quantize node behind a dequantize node; none of a folded parameter."""
        rows: dict[Node, str] = {}
        groups = dict(facts.groups)
        opaque: set[Node] = set()
        for node in graph.graph.nodes:
            if is_quantize(node) or is_dequantize(node):
                name, operand, reader = sites.quantizer(node)
                self.names[node], self.readers[node] = name, (operand, reader)
            if is_quantize(node):
                rows[node] = self.names[node]
                found = self._restored(node)
                if found is None:
                    opaque.add(node)
                for restored in found or ():
                    first = self.source.setdefault(restored, node)
                    if first is not node:  # codes of two quantizers in one tensor: both are floats, or neither
                        groups[rows[node]] = groups.setdefault(rows[first], rows[first])
            elif is_dequantize(node) and node not in self.source and node.all_input_nodes[0] in dataflow.constants:
                rows[node] = self.names[node]
        self.units = _united(rows, self.source, opaque, groups)

    def _restored(self, quantize: Node) -> list[Node] | None:
        """The dequantize nodes that read a quantize node's codes; None where something else computes with them."""
        found: dict[Node, None] = {}  # a set of nodes would have the order of their addresses
        todo, seen = [quantize], {quantize}
        while todo:
            for user in todo.pop().users:
                if is_dequantize(user):
                    found[user] = None
                elif op_name(user) not in _MOVES or user.op != "call_function":
                    return None
                elif user not in seen:
                    seen.add(user)
                    todo.append(user)
        return list(found)


def readers_of(unit: Unit, matching: Matching) -> tuple[str, ...]:
    """The layers that take a unit's values, or its codes where they pick from these, in the order of the graph.

    A quantizer's name says its first reader only; a quantize op that a pass hoisted above several has more.
    """
    names = {pair.computed: pair.name for pair in matching.pairs}
    first = [node for node in unit.dequantize if node.args[0] in unit.quantize or not unit.quantize]
    users = (user for node in (*unit.quantize, *first) for user in node.users)
    return tuple(dict.fromkeys(names[user] for user in users if user in names))


def _united(
    rows: dict[Node, str], source: dict[Node, Node], opaque: set[Node], groups: dict[str, str]
) -> tuple[Unit, ...]:
    """Units by shared observer. One of whose members something else reads as codes cannot be put right, and is none."""
    restored: dict[Node, list[Node]] = defaultdict(list)
    for dequantize, quantize in source.items():
        restored[quantize].append(dequantize)
    members: dict[str, list[Node]] = defaultdict(list)
    for node, name in rows.items():
        members[groups.get(name, name)].append(node)
    units = []
    for nodes in members.values():
        if opaque.intersection(nodes):
            continue
        quantizing = tuple(node for node in nodes if is_quantize(node))
        folded = [node for node in nodes if not is_quantize(node)]
        behind = (*folded, *(one for node in quantizing for one in restored[node]))
        if behind:
            units.append(Unit(tuple(dict.fromkeys(rows[node] for node in nodes)), quantizing, behind))
    return tuple(units)
