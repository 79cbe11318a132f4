"""One graph of a lockstep run: executed node by node, each value dropped when its last reader is done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree

from harness.measure.dataflow import Dataflow, written_inputs


class Side:
    """Runs a graph over one batch after another.

    The graph's own readers see values as ATen has them, so an in-place op changes what they read. Measuring readers
    see each value as it was computed: one that is about to be overwritten is copied first, if any of them is still to
    come. Constants are computed once.
    """

    def __init__(self, graph: GraphModule, dataflow: Dataflow) -> None:
        self.nodes: list[Node] = [node for node in graph.graph.nodes if node.op != "output"]
        self.place = {node: place for place, node in enumerate(self.nodes)}
        self._graph = graph
        self._dataflow = dataflow
        self._written = {node: written_inputs(node) for node in self.nodes}
        self._last_reads: dict[Node, list[Node]] = defaultdict(list)
        for node in self.nodes:
            readers = [user for user in node.users if user in self.place]
            self._last_reads[max(readers, key=self.place.__getitem__, default=node)].append(node)
        self._placeholders = [node for node in self.nodes if node.op == "placeholder"]
        self._constants: dict[Node, Any] = {}
        self._values: dict[Node, Any] = {}
        self._measured: dict[Node, Any] = {}
        self._readers: Counter[Node] = Counter()
        self._inputs: dict[Node, Tensor] = {}
        self._done = 0

    def start(self, inputs: tuple[Tensor, ...], readers: Counter[Node]) -> None:
        """Begin a batch; `readers` says how often each value will be read by `measured`."""
        self._values.clear()
        self._measured.clear()
        self._readers = Counter(readers)
        self._inputs = dict(zip(self._placeholders, inputs, strict=True))
        self._done = 0

    def run_through(self, node: Node) -> None:
        """Run every node that has not run yet, up to this one."""
        for place in range(self._done, self.place[node] + 1):
            self._run(self.nodes[place])
        self._done = max(self._done, self.place[node] + 1)

    def finish(self) -> None:
        """Run what is left of the batch."""
        self.run_through(self.nodes[-1])
        self._values.clear()

    def measured(self, node: Node) -> Any:
        """A value as it was computed; one of the reads that were announced to `start`."""
        if node in self._dataflow.constants:
            return self.constant(node)
        self._readers[node] -= 1
        return self._measured[node] if self._readers[node] else self._measured.pop(node)

    def constant(self, node: Node) -> Any:
        """The value of a node that depends on parameters and buffers alone."""
        if node not in self._constants:
            self._constants[node] = self.attribute(node) if node.op == "get_attr" else call(node, self.constant)
        return self._constants[node]

    def is_constant(self, node: Node) -> bool:
        """Whether `constant` has a value for a node."""
        return node in self._dataflow.constants

    def attribute(self, node: Node) -> Any:
        """The parameter, buffer or constant behind a `get_attr` node, as it is now."""
        value: Any = self._graph
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, Tensor) else value

    def _run(self, node: Node) -> None:
        if node in self._dataflow.constants:
            return
        if self._written[node]:
            self._keep_apart(self._value(source) for source in self._written[node])
        if node.op == "placeholder":
            value: Any = self._inputs.pop(node).clone()  # the other graph gets the same tensors, and may write to them
        elif node.op == "get_attr":
            value = self.attribute(node).clone()  # written into by this graph: every batch begins with the same bits
        elif node.op == "call_module":
            module = self._graph.get_submodule(str(node.target))
            value = module(*map_arg(node.args, self._value), **map_arg(node.kwargs, self._value))
        else:
            value = call(node, self._value)
        self._values[node] = value
        if self._readers[node]:
            self._measured[node] = value
        for source in self._last_reads[node]:
            self._values.pop(source, None)

    def _value(self, node: Node) -> Any:
        return self.constant(node) if node in self._dataflow.constants else self._values[node]

    def _keep_apart(self, written: Iterable[Any]) -> None:
        """Copy what measuring readers still need of tensors that are about to be overwritten."""
        storages = {storage_of(tensor) for tensor in tensors_of(list(written))}
        for node, value in self._measured.items():
            if any(storage_of(tensor) in storages for tensor in tensors_of(value)):
                self._measured[node] = copied(value)


def call(node: Node, value: Any) -> Any:
    """Run a call_function node on the values that `value(node)` gives for its inputs."""
    return node.target(*map_arg(node.args, value), **map_arg(node.kwargs, value))  # type: ignore[operator]


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a node's value, which may be a tuple or list."""
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def copied(value: Any) -> Any:
    """A value with tensors of its own."""
    return _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def storage_of(tensor: Tensor) -> int:
    """What tells tensors that share memory."""
    return tensor.untyped_storage().data_ptr()
