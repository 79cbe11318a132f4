"""The quantizers that a graph's annotations ask for, where no observers show them; and how to ask for fewer.

Upstream: `_get_edge_or_node_to_group_id` in `torchao/quantization/pt2e/prepare.py` decides which specs share one
quantizer, and NNCF's `TorchAOQuantizerAdapter` builds on it: in each group a value gets one quantizer, behind it where
all its readers are in the group, else one before each reader; a weight always gets one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule, Node

from harness.graphs import ANNOTATION
from harness.measure.sites import Sites, operands

Edge = tuple[Node, Node]
"""A value and an op that reads it."""
_LEFT = "sqnr_left_in_float"
"""In the `meta` of a graph: the node names of the edges that were taken off its annotations."""


def quantizers(graph: GraphModule) -> dict[str, frozenset[Edge]]:
    """The edges of each quantizer that the annotations of a graph ask for, by its name in quantizers.csv."""
    sites, order = Sites(graph), {node: place for place, node in enumerate(graph.graph.nodes)}
    found = {}
    for value, readers in _served(graph):
        first = min((reader for reader in readers if reader.op == "call_function"), key=order.__getitem__, default=None)
        operand = next((name for name, source in operands(first) if source is value), "output") if first else "output"
        found[sites.edge(first or value, operand)] = frozenset((value, reader) for reader in readers)
    return found


def _served(graph: GraphModule) -> Iterator[tuple[Node, list[Node]]]:
    """(value, the readers that one quantizer serves) for each quantizer."""
    joined: dict[tuple[int, Node], dict[Node, None]] = defaultdict(dict)
    for group, members in _groups(graph).items():
        if _root(members) is None:
            continue
        for member in members:
            for value, reader in _edges(member):
                joined[group, value][reader] = None
    for (_, value), readers in joined.items():
        if len(readers) == len(value.users) or _is_weight(value, next(iter(readers))):
            yield value, list(readers)
        else:
            yield from ((value, [reader]) for reader in readers)


def _is_weight(value: Node, reader: Node) -> bool:
    return value.op == "get_attr" and ("weight", value) in operands(reader)


def take_off(graph: GraphModule, edges: frozenset[Edge]) -> None:
    """Take the specs of some edges off a graph's annotations, and note that on the graph.

    What shared its qparams with one of them goes on sharing with the rest of the group: the first that is left takes
    over the group's spec, and the others refer to that one.
    """
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    for members in _groups(graph).values():
        gone = [member for member in members if edges.issuperset(_edges(member))]
        left = [member for member in members if member not in gone]
        root = _root(members)
        for member in gone:
            _set(member, None)
        for member in left if gone else ():
            _set(member, root if member == left[0] else SharedQuantizationSpec(left[0]))
    graph.meta[_LEFT] = frozenset((value.name, reader.name) for value, reader in edges)


def excluding(quantizer: Any, prepared: GraphModule) -> Any:
    """A torchao quantizer that leaves in float what was taken off `prepared`, for upstreams that annotate again.

    It is `quantizer` itself where nothing was.
    """
    from torchao.quantization.pt2e.quantizer import Quantizer

    left: frozenset[tuple[str, str]] = prepared.meta.get(_LEFT, frozenset())
    if not left:
        return quantizer

    class Excluding(Quantizer):  # type: ignore[misc]
        """Annotates as another quantizer does, but for some edges."""

        def transform_for_annotation(self, model: GraphModule) -> GraphModule:
            transformed: GraphModule = quantizer.transform_for_annotation(model)
            return transformed

        def annotate(self, model: GraphModule) -> GraphModule:
            annotated: GraphModule = quantizer.annotate(model)
            nodes = {node.name: node for node in annotated.graph.nodes}
            take_off(annotated, frozenset((nodes[value], nodes[reader]) for value, reader in left))
            return annotated

        def validate(self, model: GraphModule) -> None:
            quantizer.validate(model)

    return Excluding()


def _groups(graph: GraphModule) -> dict[int, dict[Any, Any]]:
    """The specs of each group that shares, by edge (value, reader) or by node, whose output it then is."""
    from torchao.quantization.pt2e.prepare import _get_edge_or_node_to_group_id, _get_edge_or_node_to_qspec

    asked = _get_edge_or_node_to_qspec(graph)
    groups: dict[int, dict[Any, Any]] = defaultdict(dict)
    for member, group in _get_edge_or_node_to_group_id(asked).items():
        groups[group][member] = asked[member]
    return groups


def _root(members: dict[Any, Any]) -> Any:
    """The spec that all members of a group share; None where it asks for nothing."""
    return next((spec for spec in members.values() if not hasattr(spec, "edge_or_node")), None)


def _edges(member: Node | Edge) -> list[Edge]:
    return [(member, reader) for reader in member.users] if isinstance(member, Node) else [member]


def _set(member: Node | Edge, spec: Any) -> None:
    """Give an edge or an output another spec or none, in a new annotation: several nodes may hold the same."""
    node = member if isinstance(member, Node) else member[1]
    old = node.meta[ANNOTATION]
    if isinstance(member, Node):
        node.meta[ANNOTATION] = replace(old, output_qspec=spec)
    else:
        inputs = {value: spec if value is member[0] else kept for value, kept in old.input_qspec_map.items()}
        kept = {value: one for value, one in inputs.items() if one is not None}
        node.meta[ANNOTATION] = replace(old, input_qspec_map=kept)
