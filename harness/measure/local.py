"""A layer's own damage: its node of the quantized graph, with its own quantizers, run on what the float graph feeds it.

What runs is the part of the quantized graph between a layer and the layers that feed it, whose values are replaced by
the float graph's: the quantize and dequantize ops on its inputs and weights, and ops that only this graph has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from harness.measure.dataflow import Dataflow, schema_of, written_inputs
from harness.measure.layer_sums import LayerSums
from harness.measure.matching import Matching, Pair, is_transparent
from harness.measure.qdq import bind, is_dequantize, is_qparams, op_name
from harness.measure.side import Side, call, copied

_MOST_NODES = 64
"""A part this large is no layer: so much was not matched that its error says nothing of this one."""
_SAMPLEWISE = frozenset(
    {
        *("conv1d", "conv2d", "conv3d", "convolution", "linear", "conv_transpose2d", "batch_norm", "dropout"),
        *("add", "sub", "mul", "div", "relu", "relu6", "hardtanh", "gelu", "silu", "sigmoid", "tanh", "hardswish"),
        *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "linear_qcs4w", "_weight_int8pack_mm"),
    }
)
"""Ops each of whose samples can be computed alone, and which are costly or follow one that is."""
_PRODUCTS = frozenset({"matmul", "bmm", "scaled_dot_product_attention"})
"""The same of three dimensions and more."""


@dataclass(slots=True)
class LocalLayer:
    """The part of the quantized graph that is one layer.

    `nodes` in order, of which the last gives the value; `feeds` names the float node for each node at the border.
    `same` says that it computes what the float layer computes, from the same parameters: it then need not run.
    """

    pair: Pair
    nodes: tuple[Node, ...]
    feeds: dict[Node, Node]
    same: bool
    samplewise: bool
    sums: LayerSums = field(default_factory=LayerSums)


def local_layer(pair: Pair, border: Border, ours: Side, theirs: Side) -> LocalLayer | None:
    """The part of the quantized graph between a layer and those that feed it; None if none does or it is not small."""
    target = pair.actual if pair.computed in border.dataflow.codes else pair.computed
    feeds: dict[Node, Node] = {}
    nodes: dict[Node, None] = {}
    todo = [target]
    while todo:
        node = todo.pop()
        source = border.source(node) if node is not target else None
        if source is not None:
            feeds[node] = source
        elif node not in nodes and node not in border.dataflow.constants:
            if node.op != "call_function" or len(nodes) == _MOST_NODES:
                return None
            nodes[node] = None
            todo += node.all_input_nodes
    if not feeds:
        return None
    ordered = tuple(sorted(nodes, key=theirs.place.__getitem__))
    plain = ordered == (pair.computed,) and pair.reference is pair.source
    same = plain and _same_call(pair, feeds, ours, theirs)
    return LocalLayer(pair, ordered, feeds, same, all(_is_samplewise(node, border.dataflow) for node in ordered))


class Border:
    """Where the float graph's values can take the place of the quantized graph's."""

    def __init__(self, matching: Matching, dataflow: Dataflow, ours: Side, theirs: Side) -> None:
        self.dataflow = dataflow
        inputs = [[node for node in side.nodes if node.op == "placeholder"] for side in (theirs, ours)]
        self._sources: dict[Node, Node] = dict(zip(*inputs, strict=True))
        self._sources |= {pair.computed: pair.reference for pair in matching.pairs}
        self._restored = {pair.computed for pair in matching.pairs if pair.actual is not pair.computed}

    def source(self, node: Node) -> Node | None:
        """The float node whose value is this one's without any damage; None for a node that is no layer's value."""
        if is_dequantize(node):  # of codes that a layer gives: its value begins here
            codes = node.args[0]
            if isinstance(codes, Node) and codes in self._restored and codes in self.dataflow.codes:
                return self._sources[codes]
            return None
        return None if node in self.dataflow.codes else self._sources.get(node)


def run_local(layer: LocalLayer, feeds: dict[Node, Any], theirs: Side, rows: slice) -> tuple[Any, slice]:
    """The layer's value on the float graph's values, and the samples that were run: `rows`, or all of them."""
    tensors = [value for value in feeds.values() if isinstance(value, Tensor)]
    rank = max((tensor.dim() for tensor in tensors), default=0)
    count = max((len(tensor) for tensor in tensors if tensor.dim() == rank > 0), default=0)
    whole = slice(None)
    if not layer.samplewise or rank < 2 or count <= (rows.start or 0) + 1 or len(tensors) < len(feeds):
        rows = whole
    picked = {}
    for node, value in feeds.items():
        broadcast = rows == whole or value.dim() < rank or len(value) == 1
        if not broadcast and len(value) != count:
            return run_local(layer, feeds, theirs, whole)
        picked[node] = value if broadcast else value[rows]
    if rank < 3 and len(picked) > 1 and rows != whole and any(op_name(node) in _PRODUCTS for node in layer.nodes):
        return run_local(layer, feeds, theirs, whole)
    for node in layer.nodes:
        values = {source: picked[source] if source in picked else theirs.constant(source)
                  for source in node.all_input_nodes}  # fmt: skip
        for source in written_inputs(node):
            values[source] = copied(values[source])
        picked[node] = call(node, values.__getitem__)
    return picked[layer.nodes[-1]], rows


def _is_samplewise(node: Node, dataflow: Dataflow) -> bool:
    if is_qparams(node):
        return False
    if is_transparent(node):
        fixed = all(source in dataflow.constants for source in node.all_input_nodes[1:])
        return fixed and not {"axis", "block_size", "group_size"} & set(bind(node))
    return op_name(node) in _SAMPLEWISE | _PRODUCTS


def _same_call(pair: Pair, feeds: dict[Node, Node], ours: Side, theirs: Side) -> bool:
    """Whether both graphs make the same call: op, literals, parameters to the last bit, and matched inputs."""
    mine, other = (schema_of(node) for node in (pair.source, pair.computed))
    if mine is None or other is None:
        if pair.source.target is not pair.computed.target:
            return False
        calls = [[*node.args, *node.kwargs.items()] for node in (pair.source, pair.computed)]
    else:
        if _stem(mine) != _stem(other):
            return False
        calls = [list(bind(node).values()) for node in (pair.source, pair.computed)]
    return len(calls[0]) == len(calls[1]) and all(
        _same(left, right, feeds, ours, theirs) for left, right in zip(*calls, strict=True)
    )


def _stem(schema: Any) -> tuple[str, str]:
    """Op and overload; the in-place and the copying form of an op compute alike."""
    return str(schema.name).rstrip("_").removesuffix("_copy"), str(schema.overload_name)


def _same(left: Any, right: Any, feeds: dict[Node, Node], ours: Side, theirs: Side) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(
            _same(one, two, feeds, ours, theirs) for one, two in zip(left, right, strict=True)
        )
    if not (isinstance(left, Node) and isinstance(right, Node)):
        return type(left) is type(right) and bool(left == right)
    if right in feeds:
        return feeds[right] is left
    if not (ours.is_constant(left) and theirs.is_constant(right)):
        return False
    values = ours.constant(left), theirs.constant(right)
    return all(isinstance(value, Tensor) for value in values) and torch.equal(*values)
