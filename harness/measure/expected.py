"""The noise that a correct quantizer with these qparams would make of what it saw: a prediction, to hold against.

    noise = sum over clipped x of (x - bound)^2  +  sum over the others of (x - the nearest code's value)^2

The second sum is step^2 / 12 an element where values lie anywhere in their step. Many do not: zeros after a ReLU lie on
a code and make none, values within half a step of 0 make x^2, pixels and weights of few distinct values whatever each
of them makes. So the observed distribution is kept as it is: as values drawn from each batch, each held against the
grid. Neither the op's codes nor what it restores is looked at. Hence a kernel that restores with another scale or zero
point, rounds otherwise or takes scales along another axis than its qparams say is far from its prediction, while bad
qparams are as bad as predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from harness.measure.qdq import QParams, expand_groups

_SAMPLE = 1 << 12
"""Elements drawn from a larger batch: the mean square of that many rounding errors is known to 1.4 %, 0.06 dB."""
_AGREEMENT = 10**0.05
"""A batch whose noise is 0.5 dB off what its sample predicts is predicted anew, from all of its elements."""
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
        return float(torch.dot(past, past))


@dataclass(slots=True)
class Expected:
    """The predicted noise of one quantizer, as two sums of squares over all batches; two floats, however many."""

    clipping: float = 0.0
    rounding: float = 0.0

    @property
    def noise(self) -> float:
        """Sum of both."""
        return self.clipping + self.rounding

    def add(self, x: Tensor, limits: Limits, clipped: bool, measured: float) -> None:
        """Add a batch `x` of which elements are `clipped` or none are.

        `measured` is the noise that was seen in it. It decides only whether a sample is enough.
        """
        excess = limits.excess(x) if clipped else 0.0
        rounding = _rounding(x, limits.qparams, clipped, _drawn(x.numel()))
        near = (excess + rounding) / _AGREEMENT <= measured <= (excess + rounding) * _AGREEMENT
        if x.numel() > _SAMPLE and not near:
            rounding = _rounding(x, limits.qparams, clipped, None)
        self.clipping += excess
        self.rounding += rounding


@lru_cache(maxsize=64)
def _drawn(elements: int) -> Tensor | None:
    """Which elements are held against the grid; all of few. Drawn, as regular steps fall in line with channels."""
    if elements <= _SAMPLE:
        return None
    return torch.randint(elements, (_SAMPLE,), generator=torch.Generator().manual_seed(0))


def _rounding(x: Tensor, qparams: QParams, clipped: bool, drawn: Tensor | None) -> float:
    """Sum over `x` of the squared distance to the nearest code; from the drawn elements, scaled up, if there are any.

    Where elements are clipped, their distance to the bound is counted elsewhere, and a bound is a code.
    """

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
    steps = (x if drawn is None else torch.take(x, drawn)).to(torch.float64) / scale
    if clipped:
        steps = steps.clamp_(least, most)  # type: ignore[arg-type]
    error = steps.sub_(_nearest(steps, qparams.dtype).clamp_(least, most)).mul_(scale).reshape(-1)  # type: ignore[arg-type]
    return float(torch.dot(error, error)) * (x.numel() / error.numel())


def _nearest(steps: Tensor, dtype: str) -> Tensor:
    """The code nearest to each value, both in steps from the zero point; float types have fewer codes further out."""
    if not dtype.startswith("float"):
        return steps.round()
    info = torch.finfo(getattr(torch, dtype))
    exponent = torch.frexp(steps.abs().clamp(min=info.smallest_normal)).exponent - 1
    spacing = torch.ldexp(torch.full_like(steps, info.eps), exponent)
    return (steps / spacing).round_().mul_(spacing)
