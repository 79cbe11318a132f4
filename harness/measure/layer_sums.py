"""Running sums of one layer's signal and noise, by channel, in one walk over both tensors.

Totals are the sums of the channels, so one pass gives both. Differences are taken in the tensors' own type, where they
round once, and are exact wherever the two are within a factor of two; squares and sums are float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm

from harness.measure.blocks import all_finite, numbers
from harness.measure.metrics import db
from harness.records import Status

_BLOCK = 1 << 16
"""Elements of a block: its float32 difference and float64 squares fit in the L2 cache."""


class LayerSums:
    """Sums of reference^2 and (reference - actual)^2 over batches, by channel along `axis`; one channel without it.

    What spoils one batch spoils the result, a mismatch before a non-finite reference before a non-finite actual.
    Memory is two floats for a channel, however many batches there are.
    """

    def __init__(self, axis: int | None = None) -> None:
        self._axis = axis
        self._sums: Tensor | None = None
        self._spoiled: set[Status] = set()
        self.numel = 0
        self.samples = 0

    def spoil(self, status: Status) -> None:
        """Note that a batch could not be compared."""
        self._spoiled.add(status)

    def update(self, *, reference: Tensor, actual: Tensor) -> None:
        """Add a batch whose first dimension counts samples. Precisions of float may differ, kinds of dtype may not."""
        kinds = reference.is_floating_point(), actual.is_floating_point()
        if reference.shape != actual.shape or kinds[0] != kinds[1] or reference.is_complex() != actual.is_complex():
            self.spoil(Status.MISMATCH)
            return
        if reference.numel() == 0:
            return
        self.numel += reference.numel()
        self.samples += len(reference) if reference.dim() else 1
        reference, actual = numbers(reference), numbers(actual)
        rank = reference.dim()
        axis = self._axis % rank if self._axis is not None and rank > 1 and -rank <= self._axis < rank else None
        sums = _by_channel(reference, actual, axis)
        if not bool(sums.sum().isfinite()):
            finite = all_finite(reference), all_finite(actual)
            # Finite values whose squares overflow cannot be told from infinite ones here, and are as useless.
            self.spoil(Status.NONFINITE_ACTUAL if finite[0] else Status.NONFINITE_REFERENCE)
        elif self._sums is None or self._sums.shape == sums.shape:
            self._sums = sums if self._sums is None else self._sums + sums
        else:
            self.spoil(Status.MISMATCH)

    @property
    def status(self) -> Status:
        """What the batches so far add up to."""
        for status in (Status.MISMATCH, Status.NONFINITE_REFERENCE, Status.NONFINITE_ACTUAL):
            if status in self._spoiled:
                return status
        if self._sums is None:
            return Status.EMPTY
        signal, noise = self._totals()
        return Status.EXACT if noise == 0 else Status.ZERO_SIGNAL if signal == 0 else Status.MEASURED

    def sqnr_db(self) -> float | None:
        """Over all elements, dB; None where the status leaves it undefined."""
        return db(*self._totals()) if self.status in (Status.EXACT, Status.MEASURED) else None

    def worst_channel_db(self) -> float | None:
        """SQNR of the worst channel that has a signal, dB; None where `sqnr_db` is."""
        total = self.sqnr_db()
        if total is None or self._sums is None:
            return None
        signal, noise = self._sums
        level = torch.where(signal > 0, signal / noise, math.inf).argmin()  # exact channels divide by 0: infinity
        worst = db(float(signal[level]), float(noise[level]))
        return total if worst is None else min(total, worst)

    def _totals(self) -> tuple[float, float]:
        assert self._sums is not None
        signal, noise = self._sums.sum(1).tolist()
        return signal, noise


def _by_channel(reference: Tensor, actual: Tensor, axis: int | None) -> Tensor:
    """(2, channels): signal and noise of each."""
    channels = reference.shape[axis] if axis is not None else 1
    inner = math.prod(reference.shape[axis + 1 :]) if axis is not None else reference.numel()
    if inner == 1:
        return _sums_of_columns(reference.reshape(-1, channels), actual.reshape(-1, channels))
    rows = _sums_of_rows(reference.reshape(-1, inner), actual.reshape(-1, inner))
    return rows.view(2, -1, channels).sum(1)


def _sums_of_rows(reference: Tensor, actual: Tensor) -> Tensor:
    """(2, rows) of tensors (rows, elements)."""
    rows, wide = reference.shape
    if wide > _BLOCK:
        pieces = [slice(left, left + _BLOCK) for left in range(0, wide, _BLOCK)]
        return torch.stack([_sums_of_rows(reference[:, piece], actual[:, piece]) for piece in pieces]).sum(0)
    norms = torch.empty((2, rows), dtype=torch.float64)
    high = max(1, _BLOCK // wide)
    plain = reference.dtype == actual.dtype == torch.float32
    spare = torch.empty(min(high, rows), wide) if plain else None  # a new one for each block costs page faults
    for top in range(0, rows, high):
        ref, act = reference[top : top + high], actual[top : top + high]
        ref, noise = (ref, torch.sub(act, ref, out=spare[: len(ref)])) if spare is not None else _pair(ref, act)
        vector_norm(ref, dim=1, dtype=torch.float64, out=norms[0, top : top + high])
        vector_norm(noise, dim=1, dtype=torch.float64, out=norms[1, top : top + high])
    return norms.square_()


def _sums_of_columns(reference: Tensor, actual: Tensor) -> Tensor:
    """(2, columns) of tensors (elements, columns)."""
    sums = torch.zeros((2, reference.shape[1]), dtype=torch.float64)
    high = max(1, _BLOCK // reference.shape[1])
    ones = torch.ones(min(high, len(reference)), dtype=torch.float64)
    for top in range(0, len(reference), high):
        pair = _pair(reference[top : top + high], actual[top : top + high])
        for row, values in zip(sums, pair, strict=True):
            squares = values.to(torch.float64)
            squares = squares * squares
            row += torch.mv(squares.t(), ones[: len(squares)])
    return sums


def _pair(reference: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
    """(reference, actual - reference), in floats wide enough for both."""
    if reference.dtype == actual.dtype == torch.float32:
        return reference, actual - reference
    reference = reference.to(torch.float64)
    return reference, actual.to(torch.float64) - reference
