"""Which node of a quantized graph computes what a node of the float graph computes.

By provenance first: passes and exports leave a chain of (node name, graph) in `node.meta["from_node"]`, and two nodes
that share a link come from the same one. Where there is none, by name (`harness.measure.sites`); else by what reads it,
as a fused op feeds what the op in its place fed. A node of the float graph that was folded into its producer, such as
a BatchNorm, then belongs to that producer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from harness.measure.dataflow import Dataflow, schema_of
from harness.measure.qdq import is_dequantize, is_qparams, is_quantize, op_name
from harness.measure.sites import Sites, is_observer

Origin = tuple[str, int]
Choose = Callable[[Node], Iterator[Node]]


@dataclass(frozen=True, slots=True)
class Pair:
    """One layer in both graphs.

    `source` is the float node that names the layer; `reference` gives its value: the same node, or the last one that
    was folded into it. `computed` is the node of the quantized graph and `actual` gives its value: the same node, or
    the dequantize op behind it where every reader takes the value through one quantizer. Where that one gives codes,
    `restore` is the dequantize op, behind other ops, that says what they mean. `by` says how they were matched:
    "provenance", "name" or "readers".
    """

    name: str
    op: str
    source: Node
    reference: Node
    computed: Node
    actual: Node
    by: str
    restore: Node | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """Pairs in the order of the float graph, and the computing nodes that only one graph has."""

    pairs: tuple[Pair, ...]
    only_reference: tuple[Node, ...]
    only_actual: tuple[Node, ...]


def is_transparent(node: Node) -> bool:
    """Whether a node belongs to a quantizer or observer."""
    return is_quantize(node) or is_dequantize(node) or is_observer(node) or is_qparams(node)


def is_layer(node: Node, dataflow: Dataflow) -> bool:
    """Whether a node computes something from the model's inputs; what depends on parameters alone is a constant."""
    schema = schema_of(node)
    computes = schema is None or bool(schema.returns)  # assertions do not
    return node.op == "call_function" and computes and not is_transparent(node) and node not in dataflow.constants


def match_graphs(*, reference: GraphModule, actual: GraphModule) -> Matching:
    """Match the layers of two graphs of one model."""
    ours, theirs = Dataflow(reference), Dataflow(actual)
    sites = Sites(reference)
    mine = [node for node in reference.graph.nodes if is_layer(node, ours)]
    others = [node for node in actual.graph.nodes if is_layer(node, theirs)]
    found: dict[Node, tuple[Node, str]] = {}
    taken: set[Node] = set()
    for by, choose in (("provenance", _by_origin(mine, others)), ("name", _by_name(reference, actual))):
        for node in mine:
            if node not in found:
                twin = next((other for other in choose(node) if other not in taken and _fit(node, other)), None)
                if twin is not None:
                    found[node] = twin, by
                    taken.add(twin)
    free = set(others) - taken
    for node in reversed(mine):
        if node not in found:
            twin = next(
                (one for one in _by_readers(node, found, ours, theirs) if one in free and _fit(node, one)), None
            )
            if twin is not None:
                found[node] = twin, "readers"
                free.remove(twin)
    value, folded = _fold(mine, found, ours, theirs)
    pairs = tuple(
        Pair(
            sites.site(node),
            op_name(node),
            node,
            value[node],
            twin,
            theirs.value(twin),
            by,
            theirs.restorer(theirs.value(twin)),
        )
        for node, (twin, by) in found.items()
    )
    order = {node: place for place, node in enumerate(mine)}
    return Matching(
        tuple(sorted(pairs, key=lambda pair: order[pair.source])),
        tuple(node for node in mine if node not in found and node not in folded),
        tuple(node for node in others if node in free),
    )


def origins(node: Node) -> Iterator[Origin]:
    """The nodes that a node comes from, the nearest first, itself before them."""
    yield node.name, id(node.graph)
    sources = node.meta.get("from_node")
    while sources:
        yield sources[-1].name, sources[-1].graph_id
        sources = sources[-1].from_node


def _by_origin(mine: list[Node], others: list[Node]) -> Choose:
    """For a node: the others that share its nearest link, those of the same op first and of them the last.

    A link may be that of one Python call which several float nodes came from; only the same op counts there.
    """
    index: dict[Origin, list[Node]] = defaultdict(list)
    for other in others:
        for origin in set(origins(other)):
            index[origin].append(other)
    owners = Counter(origin for node in mine for origin in set(origins(node)))

    def choose(node: Node) -> Iterator[Node]:
        for origin in origins(node):
            found = index.get(origin, [])[::-1]
            yield from (other for other in found if op_name(other) == op_name(node))
            if owners[origin] == 1:
                yield from (other for other in found if op_name(other) != op_name(node))

    return choose


def _by_name(reference: GraphModule, actual: GraphModule) -> Choose:
    """For a node: the other of its name, where as many nodes of that module and op are in either graph."""
    names = [Sites(graph) for graph in (reference, actual)]
    counts: list[dict[str, int]] = [defaultdict(int), defaultdict(int)]
    index = {}
    for graph, site, count in zip((reference, actual), names, counts, strict=True):
        for node in graph.graph.nodes:
            if node.op == "call_function" and not is_transparent(node):
                count[site.site(node).split("#")[0]] += 1
                if graph is actual:
                    index[site.site(node)] = node

    def choose(node: Node) -> Iterator[Node]:
        name = names[0].site(node)
        place = name.split("#")[0]
        if name in index and counts[0][place] == counts[1][place]:
            yield index[name]

    return choose


def _fit(node: Node, other: Node) -> bool:
    """Whether the shapes agree, as far as the graphs know them."""
    values = node.meta.get("val"), other.meta.get("val")
    if all(isinstance(value, torch.Tensor) for value in values):
        return bool(values[0].shape == values[1].shape)  # type: ignore[union-attr]
    return type(values[0]) is type(values[1]) or None in values


def _fold(
    mine: list[Node], found: dict[Node, tuple[Node, str]], dataflow: Dataflow, theirs: Dataflow
) -> tuple[dict[Node, Node], set[Node]]:
    """For each matched float node the one that gives its value: itself, or what was folded into it; and all of those.

    A node is folded into its only producer if the other graph's readers take the producer's value in its place.
    """
    value = {node: node for node in found}
    chains = {node: [node] for node in found}  # by its last node: what may have become one node of the other graph
    folded: set[Node] = set()
    twins = {twin for twin, _ in found.values()}
    leaves = list(zip(_output_leaves(dataflow.graph), _output_leaves(theirs.graph), strict=False))
    for node in mine:
        producers = [source for source in node.all_input_nodes if source not in dataflow.constants]
        if node in found or len(producers) != 1 or producers[0] not in chains or len(producers[0].users) != 1:
            continue
        first = chains[producers[0]][0]
        twin = found[first][0]
        if not _fit(node, twin):
            continue
        chains[node] = [*chains[producers[0]], node]
        readers = [found[user][0] for user in node.users if user in found]
        if any(twin in _sources(reader, twins) for reader in readers) or any(
            leaf is node and _holder(other) is twin for leaf, other in leaves
        ):
            value[first] = node
            folded.update(chains[node][1:])
    return value, folded


def _by_readers(
    node: Node, found: dict[Node, tuple[Node, str]], dataflow: Dataflow, theirs: Dataflow
) -> Iterator[Node]:
    """What the matched readers of a node, or the graph's outputs, read in its place in the other graph."""
    for leaf, other in zip(_output_leaves(dataflow.graph), _output_leaves(theirs.graph), strict=False):
        if leaf is node:
            yield _holder(other)
    for reader in node.users:
        if reader in found:
            operands = _inputs(reader, dataflow), _inputs(found[reader][0], theirs)
            if len(operands[0]) == len(operands[1]):
                yield from (other for mine, other in zip(*operands, strict=True) if mine is node)


def _inputs(node: Node, dataflow: Dataflow) -> list[Node]:
    """The computing nodes a node reads, through quantizers, in order; no constants."""
    return [_holder(source) for source in node.all_input_nodes if source not in dataflow.constants]


def _holder(node: Node) -> Node:
    """The computing node whose value a node passes on through quantizers."""
    while is_transparent(node) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _sources(node: Node, among: set[Node]) -> set[Node]:
    """The nearest nodes of `among` that a node reads, through quantizers and other nodes."""
    sources: set[Node] = set()
    seen: set[Node] = set()
    todo = list(node.all_input_nodes)
    while todo:
        one = todo.pop()
        if one in among:
            sources.add(one)
        elif one not in seen:
            seen.add(one)
            todo += one.all_input_nodes
    return sources


def _output_leaves(graph: GraphModule) -> list[Node]:
    leaves: list[Node] = []
    map_arg(next(node for node in graph.graph.nodes if node.op == "output").args, leaves.append)
    return leaves
