"""What a graph says before it runs: which nodes are constants, codes, or write into their inputs."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node

from harness.measure.qdq import bind, is_dequantize, is_qparams, is_quantize


class Dataflow:
    """Static facts about one graph's nodes.

    `constants` depend on parameters and buffers alone, and nothing writes into them. `codes` hold the integers of a
    quantizer, also after ops that move or pick them.
    """

    def __init__(self, graph: GraphModule) -> None:
        self.graph = graph
        self.constants: set[Node] = set()
        self.codes: set[Node] = set()
        written = {node for call in graph.graph.nodes for node in written_inputs(call)}
        for node in graph.graph.nodes:
            inputs = node.all_input_nodes
            if node.op == "get_attr" or (node.op == "call_function" and self._is_fixed(node, inputs)):
                if node not in written:
                    self.constants.add(node)
            elif is_quantize(node) or (
                not is_dequantize(node) and not is_qparams(node) and any(source in self.codes for source in inputs)
            ):
                self.codes.add(node)

    def _is_fixed(self, node: Node, inputs: list[Node]) -> bool:
        tags = getattr(node.target, "tags", ())
        random = torch.Tag.nondeterministic_seeded in tags
        return not random and not written_inputs(node) and all(source in self.constants for source in inputs)

    def value(self, node: Node) -> Node:
        """The node that gives a layer's value: the dequantize op behind it, if every reader reads it through one.

        Readers with quantizers of their own each read another value; the layer's is then what it computed.
        """
        readers = list(node.users)
        if node not in self.codes:
            if not readers or not all(is_quantize(user) for user in readers) or not _alike(readers):
                return node
            readers = list(readers[0].users)
        restored = [user for user in readers if is_dequantize(user)]
        return restored[0] if restored and len(restored) == len(readers) and _alike(restored) else node

    def restorer(self, node: Node) -> Node | None:
        """For codes that go through more ops before they are restored: the dequantize op that says what they mean."""
        todo = [node] if node in self.codes else []
        for one in todo:
            for user in one.users:
                if is_dequantize(user) and len(user.all_input_nodes) == 1:
                    return user
                if user in self.codes and not is_quantize(user) and user not in todo:
                    todo.append(user)
        return None


def _alike(calls: list[Node]) -> bool:
    """Whether quantize or dequantize ops have the same qparams."""
    first = list(calls[0].args[1:]), dict(calls[0].kwargs)
    return all((list(call.args[1:]), dict(call.kwargs)) == first for call in calls)


def schema_of(node: Node) -> Any:
    """The ATen schema of a call, also behind the edge dialect's wrapper; None for a plain function."""
    return _schema(node.target)


def written_inputs(node: Node) -> list[Node]:
    """The inputs that a call writes into."""
    names = _written(node.target) if node.op == "call_function" else ()
    values = [bind(node).get(name) for name in names]
    return [value for value in values if isinstance(value, Node)]


@cache
def _written(target: Any) -> tuple[str, ...]:
    """Names of the arguments that an op writes into."""
    schema = _schema(target)
    return tuple(argument.name for argument in schema.arguments if argument.is_write) if schema else ()


def _schema(target: Any) -> Any:
    op = target if isinstance(target, torch._ops.OpOverload) else getattr(target, "_op", None)
    return op._schema if isinstance(op, torch._ops.OpOverload) else None
