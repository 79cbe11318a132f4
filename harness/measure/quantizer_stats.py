"""Running statistics of one quantizer: range bounds, clipping, used codes, its own error and the expected one."""

from __future__ import annotations

from dataclasses import replace

import torch

from harness.measure.cause import quantizer_cause
from harness.measure.expected import Expected, Limits
from harness.measure.metrics import ChannelSums, db
from harness.measure.qdq import QParams
from harness.records import Case, Granularity, Mode, QuantizerRow, QuantizerStatus, Role

_MOST_CODES = 1 << 16
"""Above 16 bit nobody asks which share of the codes is used."""


class QuantizerStats:
    """Statistics of one quantizer over all batches; memory does not grow with their number.

    A quantizer of a `constant` reads a parameter, so one update says everything (`done`). `output_axis` is the axis
    of a weight that counts its op's output channels, None where the op is not known.
    """

    def __init__(self, name: str, role: Role, *, constant: bool, mode: Mode, output_axis: int | None = None) -> None:
        self.name = name
        self.role = role
        self.done = False
        self._constant = constant
        self._mode = mode
        self._output_axis = output_axis
        self._widest: tuple[float, float, int, float, float] | None = None
        self._qparams: QParams | None = None
        self._finite = True
        self._observed: tuple[float, float] | None = None
        self._clipped = 0
        self._elements = 0
        self._used: torch.Tensor | None = None
        self._sums: ChannelSums | None = None
        self._noise = 0.0
        self._limits: Limits | None = None
        self._expected = Expected()

    @property
    def fixed_qparams(self) -> QParams | None:
        """Qparams that are the same for every batch, once they are known."""
        return self._qparams if self._mode is Mode.STATIC else None

    def update(
        self, x: torch.Tensor | None, codes: torch.Tensor, restored: torch.Tensor | None, qparams: QParams
    ) -> None:
        """Add one batch: input `x` (float, any shape), its `codes` and its `restored` qdq(x) of the same shape."""
        self.done = self._constant
        if qparams is not self.fixed_qparams:
            self._add_bounds(qparams)
        self._qparams = qparams
        self._add_codes(codes, qparams)
        if x is None or x.numel() == 0 or x.shape != codes.shape:
            return
        x = x.detach()
        clipped = self._add_values(x, qparams)
        if restored is None:
            return
        if self._sums is None:
            self._sums = ChannelSums(self._channel_axis(qparams) if x.ndim > 1 else None)
        self._sums.update(reference=x, actual=restored)
        before, self._noise = self._noise, self._sums.noise
        limits = self._limits_of(qparams, x.dtype)
        self._expected.add(x, restored, limits, clipped > 0, self._noise - before)

    def _channel_axis(self, qparams: QParams) -> int | None:
        """Along which a weight's worst channel is looked for: not the scales' own axis, which may be the mistake."""
        if self.role is not Role.WEIGHT:
            return None
        if self._output_axis is not None:
            return self._output_axis
        return qparams.axis if qparams.granularity is Granularity.PER_CHANNEL else 0

    def _add_bounds(self, qparams: QParams) -> None:
        lo, hi = qparams.lo.reshape(-1), qparams.hi.reshape(-1)
        # A scale of 0 makes NaN of every zero it divides.
        if not bool(torch.isfinite(lo).all() and torch.isfinite(hi).all() and qparams.scale.all()):
            self._finite = False
            return
        widest = int(torch.argmax(hi - lo))
        width = float(hi[widest] - lo[widest])
        if self._widest is None or width > self._widest[0]:
            scale = float(qparams.scale.reshape(-1)[widest])
            zero_point = int(qparams.zero_point.reshape(-1)[widest])
            self._widest = (width, scale, zero_point, float(lo[widest]), float(hi[widest]))

    def _add_codes(self, codes: torch.Tensor, qparams: QParams) -> None:
        count = qparams.quant_max - qparams.quant_min + 1
        if codes.dtype.is_floating_point or not 0 < count <= _MOST_CODES:
            return
        # Only which codes occur matters, so eight bits may be counted as they lie: no copy, no shift.
        flat = codes.contiguous().reshape(-1)
        indices = flat.view(torch.uint8) if flat.element_size() == 1 else flat.to(torch.int64) - qparams.quant_min
        used = torch.bincount(indices, minlength=256 if flat.element_size() == 1 else count) > 0
        self._used = used if self._used is None else self._used | used

    def _limits_of(self, qparams: QParams, dtype: torch.dtype) -> Limits:
        """The limits of these qparams, made once where they are the same for every batch."""
        if self._limits is None or self._limits.qparams is not qparams or self._limits.dtype is not dtype:
            self._limits = Limits(qparams, dtype)
        return self._limits

    def _add_values(self, x: torch.Tensor, qparams: QParams) -> int:
        """Add a batch to what is observed; returns how many of its elements are clipped."""
        low, high = (float(value) for value in torch.aminmax(x))
        clipped = self._limits_of(qparams, x.dtype).clipped(x, low, high)
        self._clipped += clipped
        self._elements += x.numel()
        if self._observed is not None:
            low, high = min(low, self._observed[0]), max(high, self._observed[1])
        self._observed = (low, high)
        return clipped

    def _utilisation(self) -> float | None:
        if self._used is None or self._qparams is None:
            return None
        return int(self._used.sum()) / (self._qparams.quant_max - self._qparams.quant_min + 1)

    def row(self, case: Case, point: str, share_group: str) -> QuantizerRow:
        """The measured row; everything that is not finite is left empty, and the status says so."""
        row = self._row(case, point, share_group)
        mean_square = self._sums.signal / self._elements if self._sums and self._elements else None
        return replace(row, cause=quantizer_cause(row, mean_square, self._output_axis, self._expected))

    def _row(self, case: Case, point: str, share_group: str) -> QuantizerRow:
        _, scale, zero_point, lo, hi = self._widest or (None, None, None, None, None)
        qparams = self._qparams
        finite = self._finite and self._widest is not None
        sums = self._sums
        observed = [value if abs(value) < float("inf") else None for value in self._observed or ()]
        return QuantizerRow(
            *(case.model, case.size, case.weights, case.flow, case.variant, point, self.name),
            status=QuantizerStatus.QUANTIZED if finite else QuantizerStatus.NONFINITE,
            role=self.role,
            mode=self._mode,
            dtype=qparams.dtype if qparams else "",
            granularity=qparams.granularity if qparams else "",
            axis=qparams.axis if qparams else None,
            quant_min=qparams.quant_min if qparams else None,
            quant_max=qparams.quant_max if qparams else None,
            scale=scale if finite else None,
            zero_point=zero_point if finite else None,
            lo=lo if finite else None,
            hi=hi if finite else None,
            observed_lo=observed[0] if observed else None,
            observed_hi=observed[1] if observed else None,
            clip_fraction=self._clipped / self._elements if self._elements else None,
            utilisation=self._utilisation(),
            sqnr_db=db(sums.signal, sums.noise) if sums else None,
            sqnr_min_db=sums.worst_db() if sums and self.role is Role.WEIGHT else None,
            expected_db=db(sums.signal, self._expected.noise) if sums else None,
            share_group=share_group,
        )
