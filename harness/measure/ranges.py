"""Range bounds and local error of every quantizer, read off the converted or lowered graph.

One reader serves every upstream: it knows the quantize and dequantize ops (`qdq`), not the observers that chose their
qparams. Activations are measured while the graph runs over the evaluation set, statistics streamed; weights once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from harness.measure.prepared import PreparedFacts
from harness.measure.qdq import QParams, bind, input_of, is_dequantize, is_qparams, is_quantize, op_name, read_qparams
from harness.measure.quantizer_stats import QuantizerStats
from harness.measure.sites import Sites, constant, operands, trace_source
from harness.records import Case, Cause, Mode, Point, QuantizerRow, QuantizerStatus, Role

_WEIGHT_OPERANDS = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "linear"), ("weight",)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), ("weight",)),
    **dict.fromkeys(("addmm", "baddbmm"), ("mat1", "mat2", "batch1", "batch2")),
    **dict.fromkeys(("matmul", "mm", "bmm"), ("self", "other", "mat2")),
}
"""Operands whose parameters an integer kernel could take; a float one counts against the case's coverage."""


class RangeReader(Interpreter):
    """Runs a converted graph batch by batch and measures each of its quantizers.

    `run` takes the model's inputs and returns its outputs, as calling the graph would.
    """

    def __init__(self, graph: GraphModule, facts: PreparedFacts) -> None:
        super().__init__(graph)
        self._facts = facts
        self._graph = graph
        self._sites = Sites(graph)
        self._stats: dict[Node, QuantizerStats] = {}
        for node in graph.graph.nodes:
            folded = is_dequantize(node) and not _is_quantized_at_run_time(node)
            if is_quantize(node) or folded:
                name, operand, reader = self._sites.quantizer(node)
                parameter = folded or trace_source(node.args[0]).op == "get_attr"
                role = Role.BIAS if operand == "bias" else Role.WEIGHT if parameter else Role.ACTIVATION
                mode = Mode.DYNAMIC if _has_dynamic_qparams(node) else Mode.STATIC
                axis = output_axis(reader, operand) if parameter else None
                self._stats[node] = QuantizerStats(name, role, constant=parameter, mode=mode, output_axis=axis)
            if folded:
                self._measure_folded(node)

    def run_node(self, n: Node) -> Any:
        """Run one node; a quantize node is measured on the way."""
        result = super().run_node(n)
        stats = self._stats.get(n)
        if stats is not None and is_quantize(n) and not stats.done:
            bound = bind(n, self._value)
            codes = result
            qparams = stats.fixed_qparams or read_qparams(bound, codes)
            stats.update(input_of(bound), codes, self._dequantized(n, codes, qparams), qparams)
        return result

    def _value(self, argument: Any) -> Any:
        return self.env[argument] if isinstance(argument, Node) else argument

    def _dequantized(self, quantize: Node, codes: torch.Tensor, qparams: QParams) -> torch.Tensor:
        """What the graph makes of the codes; by arithmetic where it slices or moves them first."""
        for user in quantize.users:
            if is_dequantize(user):
                bound = bind(user, lambda value: codes if value is quantize else self._value(value))
                result: torch.Tensor = user.target(**bound)  # type: ignore[operator]
                return result
        return qparams.dequantize(codes)

    def _measure_folded(self, node: Node) -> None:
        bound = bind(node, lambda value: constant(self._graph, value) if isinstance(value, Node) else value)
        if any(bound.get(name, 0) is None for name in ("input", "tensor", "scale", "scales")):
            return
        codes = input_of(bound)
        stats = self._stats[node]
        restored = node.target(**bound)  # type: ignore[operator]
        stats.update(self._facts.weights.get(stats.name), codes, restored, read_qparams(bound, codes))

    def rows(self, case: Case, point: Point) -> list[QuantizerRow]:
        """The rows of all quantizers, and of all places of a converted graph that should have one and have none.

        Names are unique. Lowering may fuse a quantizer away, so a lowered graph has no such places.
        """
        found = [stats.row(case, point, self._facts.groups.get(stats.name, "")) for stats in self._stats.values()]
        absent = dict(self._unquantized()) if point is Point.CONVERTED else {}
        absent = {name: role for name, role in absent.items() if name not in {row.quantizer for row in found}}
        for name, role in absent.items():
            # A weight that the flow never asked for is its choice; an edge that it did ask for is a defect.
            cause = Cause.UNQUANTIZED if name in self._facts.annotated else ""
            key = (case.model, case.size, case.weights, case.flow, case.variant, point, name)
            found.append(QuantizerRow(*key, QuantizerStatus.UNQUANTIZED, role, cause=cause))
        return sorted(found, key=lambda row: row.quantizer)

    def behind_outputs(self) -> list[frozenset[str]]:
        """For each output of the graph, in order: the names of the quantizers that its value went through."""
        behind: dict[Node, frozenset[str]] = {}
        for node in self._graph.graph.nodes:
            if node.op == "output":
                leaves: list[Node] = []
                map_arg(node.args, leaves.append)
                return [behind[leaf] for leaf in leaves]
            own = frozenset({self._stats[node].name}) if node in self._stats else frozenset[str]()
            behind[node] = own.union(*(behind[source] for source in node.all_input_nodes))
        return []

    def _unquantized(self) -> Iterator[tuple[str, Role]]:
        """Annotated edges without a quantizer, and float parameters of convs, linears and matmuls."""
        edges = {}
        for node in self._graph.graph.nodes:
            if node.op == "call_function" and not is_quantize(node) and not is_dequantize(node):
                for operand, value in operands(node):
                    edges[self._sites.edge(node, operand)] = value
                    source = trace_source(value)
                    if operand in _WEIGHT_OPERANDS.get(op_name(node), ()) and source.op == "get_attr":
                        yield self._sites.edge(node, operand), Role.WEIGHT
        for name, parameter in self._facts.annotated.items():
            if name not in edges or not is_dequantize(edges[name]):
                yield name, Role.WEIGHT if parameter else Role.ACTIVATION


def _is_quantized_at_run_time(dequantize: Node) -> bool:
    return isinstance(dequantize.args[0], Node) and is_quantize(trace_source(dequantize.args[0]))


def _has_dynamic_qparams(node: Node) -> bool:
    return any(is_qparams(source) for source in node.all_input_nodes)


def output_axis(reader: Node, operand: str) -> int | None:
    """Axis of a weight that counts the output channels of the op which reads it; None for ops without such an axis."""
    if operand != "weight":
        return None
    transposed = op_name(reader).startswith("conv_transpose") or (
        op_name(reader) == "convolution" and bool(bind(reader)["transposed"])
    )
    return 1 if transposed else 0 if _WEIGHT_OPERANDS.get(op_name(reader)) == ("weight",) else None
