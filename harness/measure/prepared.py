"""What only the prepared graph knows: the float values behind folded weights, shared observers, annotated edges.

Upstreams that insert no observers (NNCF) leave annotations alone; weights are then those of the annotated edges.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from harness.graphs import ANNOTATION
from harness.measure.sites import Sites, constant, is_observer, operands, trace_source

_OBSERVER_CHAIN_END = 8


@dataclass(frozen=True, slots=True)
class PreparedFacts:
    """Facts read off a prepared graph, keyed by quantizer name.

    `weights` are the float parameters (after any folding the upstream did), `groups` the observers that several
    quantizers share, `annotated` the edges for which the quantizer's annotation asks for integer values.
    """

    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    annotated: dict[str, bool] = field(default_factory=dict)
    """Edge name -> whether a parameter or buffer feeds it."""


def read_prepared(graph: GraphModule) -> PreparedFacts:
    """Read a prepared graph. Tensors are referenced, not copied."""
    sites = Sites(graph)
    facts = PreparedFacts()
    sharing: dict[int, list[str]] = defaultdict(list)
    for node in graph.graph.nodes:
        if is_observer(node):
            name, _, _ = sites.quantizer(node)
            sharing[id(graph.get_submodule(str(node.target)))].append(name)
            source = node.args[0]
            value = constant(graph, source) if isinstance(source, Node) else None
            if value is not None:
                facts.weights[name] = value.detach()
        elif node.op == "call_function":
            _read_annotation(graph, node, sites, facts)
    for names in sharing.values():
        if len(names) > 1:
            facts.groups.update(dict.fromkeys(names, names[0]))
    return facts


def _read_annotation(graph: GraphModule, node: Node, sites: Sites, facts: PreparedFacts) -> None:
    annotation = node.meta.get(ANNOTATION)
    wanted = {
        source: spec
        for source, spec in (getattr(annotation, "input_qspec_map", None) or {}).items()
        if spec is not None and not getattr(getattr(spec, "dtype", None), "is_floating_point", False)
    }
    for operand, value in operands(node) if wanted else ():
        source = value
        for _ in range(_OBSERVER_CHAIN_END):
            if source in wanted or not is_observer(source) or not isinstance(source.args[0], Node):
                break
            source = source.args[0]
        if source in wanted:
            edge, parameter = sites.edge(node, operand), trace_source(source).op == "get_attr"
            facts.annotated[edge] = parameter
            weight = constant(graph, source)
            if weight is not None:
                facts.weights.setdefault(edge, weight.detach())
