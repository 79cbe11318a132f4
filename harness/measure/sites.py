"""Stable names for the places in a graph: module path, op, occurrence, operand.

`layer1.0.conv1:conv2d.weight` is the weight operand of the convolution in module `layer1.0.conv1`; a second `add` in
one module is `block:add#1`. Node names such as `conv2d_7` count over the whole graph and shift with every unrelated
edit; these do not, and they are the same in the float, prepared and converted graph of one model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from harness.measure.qdq import is_dequantize, is_qparams, is_quantize, op_name

VIEW_OPS = frozenset(
    {
        *("t", "transpose", "transpose_copy", "permute", "permute_copy", "view", "view_copy", "reshape", "flatten"),
        *("unsqueeze", "unsqueeze_copy", "squeeze", "squeeze_copy", "expand", "expand_copy", "contiguous", "clone"),
        *("slice", "slice_copy", "select", "select_copy", "chunk", "split", "split_with_sizes", "unbind", "unflatten"),
        *("alias", "detach", "_to_copy", "to", "getitem", "numpy_T", "mT", "_unsafe_view"),
    }
)
"""Ops through which a parameter is still itself: they move or pick elements, and compute nothing."""


def is_observer(node: Node) -> bool:
    """A call of an observer or fake-quantize module, as `prepare_pt2e` inserts them."""
    return node.op == "call_module" and "post_process" in str(node.target)


def _is_transparent(node: Node) -> bool:
    return is_observer(node) or is_quantize(node) or is_dequantize(node)


def module_path(node: Node) -> str:
    """Path of the innermost module a node was traced from; empty at the top of the model."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return path.replace("L['self'].", "").replace("L__self__.", "").removeprefix("L__self__")


def trace_source(node: Node) -> Node:
    """Walk up through view ops to the node that holds the values."""
    while node.op == "call_function" and op_name(node) in VIEW_OPS and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def operands(node: Node) -> Iterator[tuple[str, Node]]:
    """Each tensor operand of a node as (name in the op's schema, node); elements of a list as `tensors[0]`."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    labelled = [(names[i] if i < len(names) else f"arg{i}", value) for i, value in enumerate(node.args)]
    for name, value in [*labelled, *node.kwargs.items()]:
        if isinstance(value, Node):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value) if isinstance(item, Node))


class Sites:
    """The names of one graph's nodes."""

    def __init__(self, graph: GraphModule) -> None:
        self._order = {node: i for i, node in enumerate(graph.graph.nodes)}
        self._names: dict[Node, str] = {}
        seen: Counter[tuple[str, str]] = Counter()
        for node in graph.graph.nodes:
            if node.op != "call_function" or _is_transparent(node) or is_qparams(node):
                continue
            place = (module_path(node), op_name(node))
            occurrence = f"#{seen[place]}" if seen[place] else ""
            self._names[node] = f"{place[0]}:{place[1]}{occurrence}".removeprefix(":")
            seen[place] += 1

    def site(self, node: Node) -> str:
        """Name of a computing node."""
        return self._names.get(node, node.name)

    def edge(self, node: Node, operand: str) -> str:
        """Name of one operand of a node."""
        return f"{self.site(node)}.{operand}"

    def quantizer(self, node: Node) -> tuple[str, str, Node]:
        """(name, operand, reader) of an observer, quantize or dequantize node, by the first place that reads its value.

        A value that is quantized again before anything computes with it gets `~1` (`~2`, ...) behind that place's
        name; a value that only leaves the graph is named by the node that produced it.
        """
        readers = sorted(self._readers(node), key=lambda reader: (reader[0], self._order[reader[1]]))
        for hops, reader, source in readers:
            for operand, value in operands(reader) if reader.op == "call_function" else ():
                if value is source:
                    return self.edge(reader, operand) + (f"~{hops}" if hops else ""), operand, reader
        producer = node
        while _is_transparent(producer) and isinstance(producer.args[0], Node):
            producer = producer.args[0]
        return self.edge(producer, "output"), "output", producer

    def _readers(self, node: Node, hops: int = 0) -> Iterator[tuple[int, Node, Node]]:
        for user in node.users:
            if not _is_transparent(user):
                yield hops, user, node
            elif is_dequantize(user):
                yield from self._readers(user, hops)
            else:
                yield from self._readers(user, hops + 1)


def constant(graph: GraphModule, node: Node) -> torch.Tensor | None:
    """The tensor behind a `get_attr` node, or None for any other node."""
    if node.op != "get_attr":
        return None
    value: object = graph
    for part in str(node.target).split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, torch.Tensor) else None
