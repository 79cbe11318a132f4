"""Copies of graphs that upstream cannot tell from the original."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch.fx import GraphModule

ANNOTATION = "quantization_annotation"
"""Where PT2E quantizers leave a node's quantization specs; they are keyed by other nodes of the graph."""


def copy_graph(graph: GraphModule, memo: dict[int, Any] | None = None) -> GraphModule:
    """A deep copy whose annotations speak of the copy's own nodes.

    `copy.deepcopy` alone copies a node's `meta` by reference, so annotations of the copy still name the original's
    nodes; torchao 0.18's convert then raises "No chose qparams node found" for dynamic specs, and silently writes no
    port metadata for static ones. `memo` is deepcopy's, for objects to be shared with another copy.
    """
    memo = {} if memo is None else memo
    copied: GraphModule = copy.deepcopy(graph, memo)
    memo.update({id(old): new for old, new in zip(graph.graph.nodes, copied.graph.nodes, strict=True)})
    for node in copied.graph.nodes:
        if ANNOTATION in node.meta:
            node.meta[ANNOTATION] = copy.deepcopy(node.meta[ANNOTATION], memo)
    return copied


def copied_tensors(tensors: Mapping[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    """The copies that `copy_graph` made of some of a graph's tensors, found in its `memo`."""
    return {name: memo.get(id(tensor), tensor) for name, tensor in tensors.items()}
