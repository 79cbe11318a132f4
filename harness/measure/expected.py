"""The noise that a correct quantizer with these qparams would make of what it saw: a prediction, to hold against.

    noise = sum over clipped x of (x - bound)^2  +  sum over the others of (x - the nearest code's value)^2

The second sum is step^2 / 12 an element where values lie anywhere in their step. Many do not: zeros after a ReLU lie on
a code and make none, values within half a step of 0 make x^2, pixels and weights of few distinct values whatever each
of them makes. So the observed distribution is kept as it is: as values drawn from each batch, each held against the
grid. Neither the op's codes nor what it restores changes the prediction. Hence a kernel that restores with another
scale or zero point, rounds otherwise or takes scales along another axis than its qparams say is far from it, while bad
qparams are as bad as predicted.

Where bounds clip much, clipping outweighs all that a kernel can do wrong to the rest. So of batches with clipped
elements the noise of these and of the others is kept apart too, as predicted and as measured, of the same drawn
elements: if the kernel is correct these agree, however few they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from harness.measure.qdq import QParams, expand_groups

_SAMPLE = 1 << 12
"""Elements drawn from a larger batch: the mean square of that many rounding errors is known to 1.4 %, 0.06 dB."""
_AGREEMENT = 10**0.05
"""A batch whose noise is 0.5 dB off what its sample predicts is predicted anew, from all of its elements."""
_BLOCK = 1 << 15
"""Elements squared in float64 at a time: few enough for the cache, and no copy of a whole activation."""
_HALF_STEP = 0.5 + 1e-3
"""Steps by which a value may pass a bound unclipped: its error is then no larger than rounding's anywhere else.

Without it the share jumps with the last bit of a scale wherever many values lie on the bound (a background of -1.0
that dynamic quantization puts at -0.995), and with absmax / 127.5 every symmetric weight would clip its largest value.
"""


class Limits:
    """The bounds of some qparams in their input's own type, and how far a value may pass them.

    In that type, as promoting a whole activation to float64 only to compare it costs more than the comparison.
    """

    def __init__(self, qparams: QParams, dtype: torch.dtype) -> None:
        self.qparams = qparams
        self.dtype = dtype
        slack = qparams.scale.abs() * _HALF_STEP
        self.lo, self.hi = qparams.lo, qparams.hi
        self._below, self._above = (self.lo - slack).to(dtype), (self.hi + slack).to(dtype)
        self._least, self._most = float(self._below.max()), float(self._above.min())

    def clipped(self, x: Tensor, low: float, high: float) -> int:
        """How many elements of `x`, whose extremes are `low` and `high`, lie more than half a step outside."""
        count = 0
        if not low >= self._least:
            count += int(torch.count_nonzero(x < expand_groups(self._below, x.shape)))
        if not high <= self._most:
            count += int(torch.count_nonzero(x > expand_groups(self._above, x.shape)))
        return count

    def excess(self, x: Tensor) -> float:
        """Sum over `x` of the squared distance to the bound that an element passes; inf where that overflows."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # half a number's bits would make no sum
        if self.lo.numel() == 1:
            inside = x.clamp(self.lo.item(), self.hi.item())
        else:
            inside = x.clamp(*(expand_groups(bound, x.shape).to(x.dtype) for bound in (self.lo, self.hi)))
        past = inside.sub_(x).reshape(-1)
        # Squares of float32 values around 1e-30 are 0 in float32, of those around 1e30 inf.
        blocks = (block.to(torch.float64) for block in torch.split(past, _BLOCK))
        return sum(float(torch.dot(block, block)) for block in blocks)


@dataclass(slots=True)
class Part:
    """Some of a quantizer's elements, those that are clipped or the others: three sums of squares.

    `signal` of their values, `expected` of a correct quantizer's errors, `measured` of the errors that were seen.
    """

    signal: float = 0.0
    expected: float = 0.0
    measured: float = 0.0

    def add(self, sums: list[float], times: float) -> None:
        """Add a batch's three sums, each so many `times`."""
        signal, expected, measured = sums
        self.signal += signal * times
        self.expected += expected * times
        self.measured += measured * times


@dataclass(slots=True)
class Expected:
    """The predicted noise of one quantizer, as two sums of squares over all batches; eight floats, however many.

    `outside` and `inside` are the elements that are clipped and those that are not, of the batches in which any are.
    """

    clipping: float = 0.0
    rounding: float = 0.0
    outside: Part = field(default_factory=Part)
    inside: Part = field(default_factory=Part)

    @property
    def noise(self) -> float:
        """Sum of both terms, over all elements."""
        return self.clipping + self.rounding

    def add(self, x: Tensor, restored: Tensor, limits: Limits, clipped: bool, measured: float) -> None:
        """Add a batch `x` of which elements are `clipped` or none are, and what was `restored` of it.

        `measured` is the noise that was seen in it. It decides only whether a sample is enough. A `restored` of another
        shape has no noise, and is not split.
        """
        excess = limits.excess(x) if clipped else 0.0
        nearest = _Nearest(x, limits.qparams, clipped, _drawn(x.numel()))
        rounding = nearest.rounding()
        if clipped and restored.shape == x.shape:
            outside, inside = nearest.parts(restored)
            self.outside.add(outside, nearest.times)
            self.inside.add(inside, nearest.times)
        near = (excess + rounding) / _AGREEMENT <= measured <= (excess + rounding) * _AGREEMENT
        if x.numel() > _SAMPLE and not near:
            rounding = _Nearest(x, limits.qparams, clipped, None).rounding()
        self.clipping += excess
        self.rounding += rounding


@lru_cache(maxsize=64)
def _drawn(elements: int) -> Tensor | None:
    """Which elements are held against the grid; all of few. Drawn, as regular steps fall in line with channels."""
    if elements <= _SAMPLE:
        return None
    return torch.randint(elements, (_SAMPLE,), generator=torch.Generator().manual_seed(0))


class _Nearest:
    """Elements of a batch `x`, those `drawn` or all, and the codes nearest to them, in steps from the zero point.

    Each stands for so many `times` of the batch. Where none is `clipped`, none lies more than half a step outside.
    """

    def __init__(self, x: Tensor, qparams: QParams, clipped: bool, drawn: Tensor | None) -> None:
        def part(values: Tensor) -> Tensor:
            values = expand_groups(values, x.shape)
            return values if drawn is None else torch.take(values.expand(x.shape), drawn)

        scale: Tensor | float
        least: Tensor | float
        most: Tensor | float
        if qparams.scale.numel() == 1:  # as plain numbers: most tensors have one scale, and tensor ops cost their calls
            scale, zero = qparams.scale.item(), qparams.zero_point.item()
            least, most = qparams.quant_min - zero, qparams.quant_max - zero
        else:
            scale, zeros = part(qparams.scale), part(qparams.zero_point)
            least, most = qparams.quant_min - zeros, qparams.quant_max - zeros
        self._scale, self._drawn = scale, drawn
        self._values = (x if drawn is None else torch.take(x, drawn)).to(torch.float64)
        self._steps = self._values / scale
        self._within = self._steps.clamp(least, most) if clipped else self._steps  # type: ignore[arg-type]
        self._codes = _code(self._within, qparams.dtype).clamp_(least, most)  # type: ignore[arg-type]
        self.times = x.numel() / self._values.numel()

    def rounding(self) -> float:
        """Sum over the batch of the squared distance to the nearest code.

        Where elements are clipped, their distance to the bound is counted elsewhere, and a bound is a code.
        """
        error = (self._within - self._codes).mul_(self._scale).reshape(-1)
        return float(torch.dot(error, error)) * self.times

    def parts(self, restored: Tensor) -> list[list[float]]:
        """The sums of a `Part`, first of the clipped elements and then of the others; `restored` is shaped as `x`.

        A correct op rounds what it restores to the type of its output, and bfloat16 may be as coarse as the codes.
        """
        seen = (restored if self._drawn is None else torch.take(restored, self._drawn)).to(torch.float64)
        right = (self._codes * self._scale).to(restored.dtype)
        squares = torch.stack((self._values, self._values - right, self._values - seen)).square_().reshape(3, -1)
        outside = ((self._steps - self._within).abs_() > _HALF_STEP).reshape(-1)
        sums: list[list[float]] = (torch.stack((outside, ~outside)).to(torch.float64) @ squares.t()).tolist()
        return sums


def _code(steps: Tensor, dtype: str) -> Tensor:
    """The code nearest to each value, both in steps from the zero point; float types have fewer codes further out."""
    if not dtype.startswith("float"):
        return steps.round()
    info = torch.finfo(getattr(torch, dtype))
    exponent = torch.frexp(steps.abs().clamp(min=info.smallest_normal)).exponent - 1
    spacing = torch.ldexp(torch.full_like(steps, info.eps), exponent)
    return (steps / spacing).round_().mul_(spacing)
