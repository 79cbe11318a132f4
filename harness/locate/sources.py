"""Where right values are taken from: float, another variant, accepted qparams, or ranges fitted to float values.

A source says, for a unit of the graph under suspicion, what each of its dequantize nodes should give instead. A unit
that is already as the source has it is none of its business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import Node

from harness.locate.hybrid import Hybrid, Override, Overrides
from harness.locate.units import Quantizers, Unit
from harness.measure.prepared import PreparedFacts
from harness.measure.qdq import QParams, bind, is_dequantize, is_qparams, is_quantize
from harness.measure.side import call
from harness.records import Cause, Granularity, QuantizerRow
from harness.subject import tensor_bytes

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What puts a unit right: overrides, the range that it then has (None: left in float), and its noise then.

    `noise` is noise over signal of the replaced quantizer itself, 0 where it is left in float.
    """

    unit: Unit
    overrides: Overrides
    new: Range | None
    noise: float = 0.0


class Source(Protocol):
    """Where right values come from."""

    def replacement(self, unit: Unit) -> Replacement | None:
        """What puts a unit right; None where it is right already, or nothing better is known of it."""
        ...


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized graph that can be run under overrides, with its quantizers and what was measured of them."""

    hybrid: Hybrid
    quantizers: Quantizers
    facts: PreparedFacts
    rows: Mapping[str, QuantizerRow]

    def is_folded(self, dequantize: Node) -> bool:
        """Whether a dequantize node reads codes that were folded from a parameter."""
        return dequantize not in self.quantizers.source

    def row(self, dequantize: Node) -> QuantizerRow | None:
        """The row of the quantizer behind a dequantize node."""
        return self.rows.get(self.quantizers.names[self.quantizers.source.get(dequantize, dequantize)])

    def parameter(self, dequantize: Node) -> Tensor | None:
        """The float parameter that a folded quantizer quantized, as its op reads it; None where that is not known."""
        found = self.facts.weights.get(self.quantizers.names[dequantize])
        codes: Tensor = self.hybrid.side.constant(dequantize.all_input_nodes[0])
        return found if found is not None and found.shape == codes.shape else None

    def value(self, dequantize: Node) -> Tensor | None:
        """The float parameter behind a dequantize node, folded or not; None where it is none or not known."""
        if self.is_folded(dequantize):
            return self.parameter(dequantize)
        source = _input(self.quantizers.source[dequantize])
        found: Tensor | None = self.hybrid.side.constant(source) if self.hybrid.side.is_constant(source) else None
        return found

    def overrides(self, unit: Unit, each: Callable[[Node], Callable[[Tensor], Tensor] | None]) -> Overrides | None:
        """A unit with `each(dequantize node)` in the place of quantizing: a function of what was quantized.

        None if a value that one of them needs is not known, or `each` gives None for one.
        """
        overrides = {node: Override((_input(node),), _passed) for node in unit.quantize}
        for node in unit.dequantize:
            function = each(node)
            if function is None:
                return None
            if self.is_folded(node):
                parameter = self.parameter(node)
                if parameter is None:
                    return None
                overrides[node] = Override(
                    (), cache(partial(function, parameter))
                )  # computed for the first batch, and kept
            else:
                overrides[node] = Override((_input(node),), function)
        return overrides


class FloatSource:
    """Everything left in float."""

    def __init__(self, quantized: Quantized) -> None:
        self._quantized = quantized

    def replacement(self, unit: Unit) -> Replacement | None:
        """The unit in float."""
        keep = torch.clone if self._quantized.hybrid.writes else _passed
        overrides = self._quantized.overrides(unit, lambda _node: keep)
        return None if overrides is None else Replacement(unit, overrides, None)


class VariantSource:
    """The quantizers of another graph of the model: those at the same places, and float where it has none."""

    def __init__(self, quantized: Quantized, other: Quantized) -> None:
        self._quantized, self._other = quantized, other
        self._float = FloatSource(quantized)
        names = other.quantizers.names
        self._twins = {names[node]: node for node in reversed(names) if is_dequantize(node)}

    def replacement(self, unit: Unit) -> Replacement | None:
        """The unit as the other graph has it; None where that is the same to the last bit."""
        twins = {node: self._twins.get(self._quantized.quantizers.names[node]) for node in unit.dequantize}
        found = [twin for twin in twins.values() if twin is not None]
        if len(found) == len(twins) and all(_alike(self._quantized, n, self._other, t) for n, t in twins.items() if t):
            return None
        floats = self._float.replacement(unit)
        if floats is None:
            return self._constants(unit, twins)
        if not found:
            return floats
        overrides = dict(floats.overrides)
        for node, twin in twins.items():
            folded = self._quantized.is_folded(node)
            if twin is None or folded != self._other.is_folded(twin):
                continue
            if folded:
                overrides[node] = Override((), partial(self._other.hybrid.side.constant, twin))
            else:
                overrides[node] = Override((_input(node),), partial(_as_other, self._other, twin))
        rows = [self._other.row(twin) for twin in found]
        return Replacement(unit, overrides, span_of(rows), max(map(noise_of, rows)))

    def _constants(self, unit: Unit, twins: Mapping[Node, Node | None]) -> Replacement | None:
        """A unit of folded parameters whose float values are not known can still take the other graph's."""
        overrides: dict[Node, Override] = {}
        for node, twin in twins.items():
            if twin is None or not (self._quantized.is_folded(node) and self._other.is_folded(twin)):
                return None
            overrides[node] = Override((), partial(self._other.hybrid.side.constant, twin))
        rows = [self._other.row(twin) for twin in twins.values() if twin is not None]
        return Replacement(unit, overrides, span_of(rows), max(map(noise_of, rows)))


def qdq(qparams: QParams, x: Tensor) -> Tensor:
    """What PT2E's own ops make of floats with these qparams, per tensor or per channel, in their float32 arithmetic.

    Other granularities, and codes that no integer type of torch holds, by the same formula in float64.
    """
    scale, zero_point = qparams.scale.to(torch.float64), qparams.zero_point
    dtype = getattr(torch, qparams.dtype, None)
    ops = torch.ops.quantized_decomposed
    limits = (qparams.quant_min, qparams.quant_max, dtype)
    value = x.to(torch.float32)
    if qparams.granularity == Granularity.PER_TENSOR and dtype is not None:
        given = (float(scale), int(zero_point), *limits)
        codes = ops.quantize_per_tensor.default(value, *given)
        return ops.dequantize_per_tensor.default(codes, *given).to(x.dtype)  # type: ignore[no-any-return]
    if qparams.granularity == Granularity.PER_CHANNEL and dtype is not None and qparams.axis is not None:
        each = (scale.reshape(-1).to(torch.float32), zero_point.reshape(-1), qparams.axis, *limits)
        codes = ops.quantize_per_channel.default(value, *each)
        return ops.dequantize_per_channel.default(codes, *each).to(x.dtype)  # type: ignore[no-any-return]
    codes = (torch.round(x.to(torch.float64) / scale) + zero_point).clamp(qparams.quant_min, qparams.quant_max)
    return ((codes - zero_point) * scale).to(x.dtype)


def noise_of(row: QuantizerRow | None) -> float:
    """Noise over signal of a quantizer, of its worst channel where the axis is wrong; 0 where it was not measured."""
    if row is None:
        return 0.0
    level = row.sqnr_min_db if row.cause == Cause.AXIS else row.sqnr_db
    return 0.0 if level is None else float(10 ** (-level / 10))


def range_of(row: QuantizerRow | None) -> Range | None:
    """Its range bounds."""
    return None if row is None or row.lo is None or row.hi is None else (row.lo, row.hi)


def span_of(rows: Iterable[QuantizerRow | None]) -> Range | None:
    """The range that holds all of theirs; None if none has one."""
    ranges = [found for found in map(range_of, rows) if found is not None]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def _input(node: Node) -> Node:
    return node.all_input_nodes[0]


def _passed(x: Any) -> Any:
    return x


def _as_other(other: Quantized, twin: Node, x: Tensor) -> Tensor:
    """What the other graph's quantize op, and its dequantize op `twin`, make of `x`.

    Ops between the two move codes, which `x` has already been through.
    """
    start = _input(other.quantizers.source[twin])
    values: dict[Node, Any] = {start: x}

    def value(node: Node) -> Any:
        if node in values:
            return values[node]
        if other.hybrid.side.is_constant(node):
            return other.hybrid.side.constant(node)
        if is_quantize(node) or is_dequantize(node) or is_qparams(node):
            values[node] = call(node, value)
            return values[node]
        return value(_input(node))

    result: Tensor = value(twin)
    return result


def _alike(mine: Quantized, node: Node, other: Quantized, twin: Node) -> bool:
    """Whether two dequantize nodes, and the quantize nodes behind them, do the same."""
    return _described(mine, node) == _described(other, twin)


def _described(quantized: Quantized, node: Node) -> list[object]:
    if quantized.is_folded(node):
        value: Tensor = quantized.hybrid.side.constant(node)
        return [tuple(value.shape), _digest(value)]
    told: list[object] = []
    for one in (quantized.quantizers.source[node], node):
        told.append(str(one.target))
        for name, argument in bind(one).items():
            if isinstance(argument, Node):
                constant = quantized.hybrid.side.is_constant(argument)
                told.append((name, _digest(quantized.hybrid.side.constant(argument)) if constant else "at run time"))
            else:
                told.append((name, argument))
    return told


def _digest(value: Tensor) -> str:
    return hashlib.sha256(tensor_bytes(value)).hexdigest()
