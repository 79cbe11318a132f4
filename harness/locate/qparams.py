"""Sources of other qparams for the same quantizers: those that were accepted, and those that fit the float values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.fx import Node

from harness.locate.hybrid import Override, Overrides
from harness.locate.sources import FloatSource, Quantized, Replacement, noise_of, qdq, span_of
from harness.locate.units import Unit
from harness.measure.qdq import QParams, bind, read_qparams
from harness.measure.ranges import output_axis
from harness.records import Granularity, Mode, QuantizerRow, QuantizerStatus

_SAME = 1e-6
"""Relative difference of two scales that is no difference: what jittered inputs do to a calibrated range."""
_BETTER = 1.05
"""A range is fitted where the present one makes this many times the noise: less is the last bit of its scale."""
_QPARAMS = ("mode", "dtype", "granularity", "axis", "quant_min", "quant_max", "zero_point")


class AcceptedSource:
    """The qparams of accepted rows.

    A row holds the scale of its widest channel only: the other channels' scales change by the same factor, or are
    fitted to it where the scales lay along another axis.
    """

    def __init__(self, quantized: Quantized, accepted: Mapping[str, QuantizerRow]) -> None:
        self._quantized = quantized
        self._accepted = accepted
        self._float = FloatSource(quantized)

    def replacement(self, unit: Unit) -> Replacement | None:
        """The unit with its accepted qparams, in float if it had no quantizer; None if they are what it has."""
        rows = {node: self._quantized.row(node) for node in unit.dequantize}
        before = {node: self._accepted.get(row.quantizer) for node, row in rows.items() if row is not None}
        if len(before) < len(rows) or all(_unchanged(rows[node], old) for node, old in before.items()):
            return None
        if any(old is None or old.status != QuantizerStatus.QUANTIZED for old in before.values()):
            return self._float.replacement(unit)
        overrides = self._quantized.overrides(unit, lambda node: self._with(node, before[node]))
        if overrides is None:
            return None
        old = [row for row in before.values() if row is not None]
        return Replacement(unit, overrides, span_of(old), max(map(noise_of, old)))

    def _with(self, node: Node, old: QuantizerRow | None) -> partial[Tensor] | None:
        """A function that quantizes as an accepted row says; None where the row does not say enough."""
        if old is None or old.scale is None or old.quant_min is None or old.quant_max is None:
            return None
        wanted = QParams(
            scale=torch.tensor(old.scale, dtype=torch.float64),
            zero_point=torch.tensor(old.zero_point or 0),
            quant_min=old.quant_min,
            quant_max=old.quant_max,
            dtype=old.dtype,
            granularity=Granularity(old.granularity),
            axis=old.axis,
        )
        if old.granularity == Granularity.PER_TENSOR:
            return partial(qdq, wanted)
        if old.granularity != Granularity.PER_CHANNEL or old.axis is None:
            return None
        found = self._channels(node, wanted, old.axis)
        if found is None:
            return None
        scale, zero_point = found
        return partial(qdq, replace(wanted, scale=scale * (old.scale / float(scale.max())), zero_point=zero_point))

    def _channels(self, node: Node, wanted: QParams, axis: int) -> tuple[Tensor, Tensor] | None:
        """Scales, to a common factor, and zero points of the channels along an axis: those there are, or fitted."""
        now = qparams_of(self._quantized, node)
        if now is not None and now.axis == axis and bool(torch.isfinite(now.scale).all() and (now.scale > 0).all()):
            return now.scale, now.zero_point
        value = self._quantized.value(node)
        if value is None or not -value.dim() <= axis < value.dim():
            return None
        fitted = fit(wanted, *_extremes(value, axis))
        return fitted.scale, fitted.zero_point


def _unchanged(now: QuantizerRow | None, old: QuantizerRow | None) -> bool:
    if now is None or old is None or any(getattr(now, name) != getattr(old, name) for name in _QPARAMS):
        return False
    if now.mode == Mode.DYNAMIC:
        return True  # chosen from each batch by the same rule
    if now.scale is None or old.scale is None:
        return now.scale == old.scale
    return abs(now.scale - old.scale) <= _SAME * abs(old.scale)


@dataclass(slots=True)
class Observed:
    """What the float graph has in the place of a quantizer's input."""

    low: float = math.inf
    high: float = -math.inf
    squares: float = 0.0
    numel: int = 0

    def see(self, x: Tensor) -> None:
        """Add a batch."""
        low, high = torch.aminmax(x.detach())
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))
        self.squares += float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
        self.numel += x.numel()


def watched(quantized: Quantized, floats: Mapping[Node, Override], seen: dict[Node, Observed]) -> Overrides:
    """Overrides that leave everything in float, and note what each run-time quantizer would see."""

    def watching(override: Override, observed: Observed) -> Override:
        def watch(x: Tensor) -> Tensor:
            observed.see(x)
            result: Tensor = override.compute(x)
            return result

        return Override(override.reads, watch)

    watching_too = {}
    for node, override in floats.items():
        if node in quantized.quantizers.source:
            seen[node] = Observed()
            watching_too[node] = watching(override, seen[node])
    return {**floats, **watching_too}


class FittedSource:
    """Static quantizers of the same type and granularity whose ranges are those of the float graph's own values.

    A weight's scales lie along its op's output channels. Every reader of a shared range gets its own. Where the range
    there is does as well, nothing is replaced.
    """

    def __init__(self, quantized: Quantized, observed: Mapping[Node, Observed]) -> None:
        self._quantized = quantized
        self._observed = observed

    def replacement(self, unit: Unit) -> Replacement | None:
        """The unit fitted; None for dynamic ones, and where that would be no better."""
        rows = [self._quantized.row(node) for node in unit.dequantize]
        if any(row is None or row.mode == Mode.DYNAMIC for row in rows):
            return None
        fits = {node: self._fit(node) for node in unit.dequantize}
        found = [fit for fit in fits.values() if fit is not None]
        if len(found) < len(fits):
            return None
        noise = max(level for _, level in found)
        broken = any(row is not None and row.status == QuantizerStatus.NONFINITE for row in rows)
        if not broken and max(map(noise_of, rows)) <= _BETTER * noise:
            return None
        overrides = self._quantized.overrides(unit, lambda node: partial(qdq, fits[node][0]))  # type: ignore[index]
        if overrides is None:
            return None
        low = min(float(qparams.lo.min()) for qparams, _ in found)
        high = max(float(qparams.hi.max()) for qparams, _ in found)
        return Replacement(unit, overrides, (low, high), noise)

    def _fit(self, node: Node) -> tuple[QParams, float] | None:
        """Fitted qparams, and noise over signal with them."""
        found = qparams_of(self._quantized, node)
        if found is None:
            return None
        quantize = self._quantized.quantizers.source.get(node, node)
        if self._quantized.is_folded(node) or self._quantized.hybrid.side.is_constant(quantize):
            return self._fit_parameter(node, found, self._quantized.value(node))
        observed = self._observed.get(node)
        if observed is None or not 0 < observed.squares < math.inf or found.granularity != Granularity.PER_TENSOR:
            return None
        low, high = (torch.tensor(value, dtype=torch.float64) for value in (observed.low, observed.high))
        fitted = fit(found, low, high)
        return fitted, float(fitted.scale) ** 2 / 12 * observed.numel / observed.squares

    def _fit_parameter(self, node: Node, found: QParams, value: Tensor | None) -> tuple[QParams, float] | None:
        if (
            value is None
            or not bool(value.isfinite().all())
            or found.granularity not in (Granularity.PER_TENSOR, Granularity.PER_CHANNEL)
        ):
            return None
        axis = None
        if found.granularity == Granularity.PER_CHANNEL:
            operand, reader = self._quantized.quantizers.readers[node]
            known = output_axis(reader, operand)
            axis = found.axis if known is None else known
        wide = value.detach().to(torch.float64)
        fitted = replace(fit(found, *_extremes(value, axis)), axis=axis)
        signal = float(wide.square().sum())
        return fitted, float((qdq(fitted, wide) - wide).square().sum()) / signal if signal else 0.0


def fit(like: QParams, low: Tensor, high: Tensor) -> QParams:
    """Qparams of the same integers whose range just holds [low, high]; symmetric ones stay symmetric."""
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)  # 0 must have a code
    count = like.quant_max - like.quant_min
    if not bool(like.zero_point.any()) and like.quant_min < 0:
        scale = torch.maximum(low / like.quant_min, high / like.quant_max)
        zero_point = torch.zeros_like(scale, dtype=torch.int64)
    else:
        scale = (high - low) / count
        safe = scale.clamp(min=torch.finfo(torch.float64).tiny)
        zero_point = (like.quant_min - torch.round(low / safe)).to(torch.int64)
        zero_point = zero_point.clamp(like.quant_min, like.quant_max)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # all zero: any scale will do
    return replace(like, scale=scale, zero_point=zero_point)


def _extremes(value: Tensor, axis: int | None) -> tuple[Tensor, Tensor]:
    """Smallest and largest values, float64, of each channel along an axis, broadcastable."""
    wide = value.detach().to(torch.float64)
    others = [one for one in range(wide.dim()) if axis is None or one != axis % wide.dim()]
    return (wide.amin(others, keepdim=True), wide.amax(others, keepdim=True)) if others else (wide, wide)


def qparams_of(quantized: Quantized, node: Node) -> QParams | None:
    """The qparams of a static quantizer by its dequantize node; None for dynamic ones and what is not integer."""
    side = quantized.hybrid.side
    quantize = quantized.quantizers.source.get(node, node)
    bound = bind(quantize, lambda value: side.constant(value) if _fixed(quantized, value) else value)
    if any(isinstance(bound.get(name), Node) for name in ("scale", "scales", "zero_point", "zero_points")):
        return None
    if quantized.is_folded(node):
        codes: Tensor = side.constant(node.all_input_nodes[0])
    elif side.is_constant(quantize):
        codes = side.constant(quantize)
    elif any(bound.get(name) is not None for name in ("axis", "block_size", "group_size")):
        return None
    else:
        codes = torch.empty((), dtype=bound.get("dtype") or bound.get("output_dtype") or torch.int8)
    return None if codes.dtype.is_floating_point else read_qparams(bound, codes)


def _fixed(quantized: Quantized, value: object) -> bool:
    return isinstance(value, Node) and quantized.hybrid.side.is_constant(value)
