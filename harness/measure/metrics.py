"""SQNR and its companions: float64, streamed, and with a value for every edge.

The reference is the *signal* and always passed by name. Some upstream helpers swap the two, sum in float32, answer
None for float64 or turn NaN into 0, hence our own. How tensors are read is in `harness.measure.blocks`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.measure.blocks import all_finite, exponent_of, numbers, row_sums, signal_and_noise
from harness.measure.bootstrap import Array, interval_db
from harness.measure.decibels import db as db
from harness.records import SQNR_CAP_DB, Status


@dataclass(frozen=True, slots=True)
class Measurement:
    """One output against its reference; the fields are those of `harness.records.OutputRow`.

    `sqnr_db` is over all elements and `sqnr_min_db` of the worst sample (dB, higher is better, at most 160);
    `max_abs_err` the largest |reference - actual|; `cosine` in [-1, 1], None if either side is all zero; `ref_rms`
    the root mean square of the reference; `numel` the elements compared; `sqnr_lo_db` to `sqnr_hi_db` the 95 %
    bootstrap interval of `sqnr_db` over samples, None for a single sample. What the status leaves undefined is None; no
    value is NaN or infinite.
    """

    status: Status
    sqnr_db: float | None = None
    sqnr_min_db: float | None = None
    max_abs_err: float | None = None
    cosine: float | None = None
    ref_rms: float | None = None
    numel: int = 0
    sqnr_lo_db: float | None = None
    sqnr_hi_db: float | None = None


def sqnr_db(*, reference: Tensor, actual: Tensor) -> float | None:
    """10 log10(sum(ref^2) / sum((ref - actual)^2)) over all elements, in dB, higher is better, at most 160.

    None where it is undefined: noise without signal, NaN or infinity, no elements, shapes or dtypes that differ
    (`measure` says which). Where squares of float64 values would overflow or underflow, both sides are first scaled
    by one power of two; values under 1e-100 of the largest may then count as zero.
    """
    if not _alike(reference, actual) or reference.numel() == 0:
        return None
    reference, actual = numbers(reference), numbers(actual)
    return db(*signal_and_noise(reference, actual, exponent_of(reference, actual)))


def measure(*, reference: Tensor, actual: Tensor) -> Measurement:
    """Everything about one pair of tensors whose first dimension counts samples; see `OutputStats`."""
    stats = OutputStats()
    stats.update(reference=reference, actual=actual)
    return stats.result()


class OutputStats:
    """Measures one output batch by batch; holds two floats a sample, whatever their size.

    The first dimension counts samples; a 0-dim tensor is one sample. A sample with noise and no signal has no SQNR
    of its own (its limit is minus infinity), so it is never the worst sample; its noise counts in `sqnr_db` and
    `max_abs_err`. What spoils one batch spoils the result: a mismatch before a non-finite reference before a
    non-finite actual, in whatever order they came. float64 is scaled as in `sqnr_db`, by batch.
    """

    def __init__(self) -> None:
        self._spoiled: set[Status] = set()
        self._numel = 0
        self._exponent = 0
        self._sums = [0.0, 0.0, 0.0, 0.0]  # of ref^2, err^2, actual^2, ref x actual; each times 4^exponent
        self._max_abs_err = 0.0
        self._worst_db = SQNR_CAP_DB
        self._samples: list[tuple[Tensor, int]] = []  # (2, rows) sums of ref^2 and err^2, each times 4^exponent

    def update(self, *, reference: Tensor, actual: Tensor) -> None:
        """Add a batch."""
        if not _alike(reference, actual):
            self._spoiled.add(Status.MISMATCH)
            return
        if reference.numel() == 0:
            return
        self._numel += reference.numel()
        reference, actual = numbers(reference), numbers(actual)
        exponent = exponent_of(reference, actual)
        for rows in row_sums(reference, actual, exponent):
            if not bool(rows.sum().isfinite()):  # finite values stay finite: see `exponent_of`
                self._spoiled.add(Status.NONFINITE_ACTUAL if all_finite(reference) else Status.NONFINITE_REFERENCE)
                return
            self._add(rows, exponent)

    def _add(self, rows: Tensor, exponent: int) -> None:
        signal, noise, _, _, peak = rows
        self._samples.append((rows[:2].clone(), exponent))
        sums: list[float] = rows[:4].sum(1).tolist()
        if any(sums):
            unit = min(exponent, self._exponent) if any(self._sums) else exponent
            mine, theirs = 2 * (unit - self._exponent), 2 * (unit - exponent)
            self._sums = [
                math.ldexp(old, mine) + math.ldexp(new, theirs) for old, new in zip(self._sums, sums, strict=True)
            ]
            self._exponent = unit
        self._max_abs_err = max(self._max_abs_err, _times_power_of_two(float(peak.max()), -exponent))
        ratio = torch.where((signal > 0) & (noise > 0), signal / noise, math.inf)
        worst = int(ratio.argmin())
        level = db(float(signal[worst]), float(noise[worst]))
        if level is not None:
            self._worst_db = min(self._worst_db, level)

    def result(self) -> Measurement:
        """What the batches so far add up to."""
        for status in (Status.MISMATCH, Status.NONFINITE_REFERENCE, Status.NONFINITE_ACTUAL):
            if status in self._spoiled:
                return Measurement(status, numel=self._numel)
        if self._numel == 0:
            return Measurement(Status.EMPTY)
        signal, noise, power, product = self._sums
        norms = math.sqrt(signal) * math.sqrt(power)
        cosine = max(-1.0, min(1.0, product / norms)) if norms > 0 else None
        ref_rms = _times_power_of_two(math.sqrt(signal / self._numel), -self._exponent)
        level: float | None = db(signal, noise)
        worst: float | None = self._worst_db
        status = Status.MEASURED
        if self._max_abs_err == 0:
            status = Status.EXACT
        elif level is None:
            status, worst = Status.ZERO_SIGNAL, None
        samples = None if level is None else self.samples()
        lower, upper = (samples is not None and interval_db(samples)) or (None, None)
        return Measurement(status, level, worst, self._max_abs_err, cosine, ref_rms, self._numel, lower, upper)

    def samples(self) -> Array | None:
        """Sums of signal (first) and noise of each sample, in order: (2, samples) float64.

        All are times one power of four, 1 but for extreme float64, so that ratios are those of the values. None
        without a sample, or where a batch spoiled the result.
        """
        if self._spoiled or not self._samples:
            return None
        unit = min((exponent for rows, exponent in self._samples if rows.any()), default=0)
        scaled = [np.ldexp(rows.numpy(), 2 * (unit - exponent)) for rows, exponent in self._samples]
        return np.concatenate(scaled, axis=1)


class ChannelSums:
    """Sums of signal and noise over batches, by channel along `axis`: of one quantizer, x against qdq(x).

    Without an axis the tensor is one channel. float64 sums, not scaled; dtypes may differ, and a shape or a number of
    channels that differs makes every sum NaN, hence `db` None. Memory is two floats for a channel.
    """

    def __init__(self, axis: int | None = None) -> None:
        self._axis = axis
        self._sums = torch.zeros((2, 1), dtype=torch.float64)

    def update(self, *, reference: Tensor, actual: Tensor) -> None:
        """Add a batch; one without elements adds nothing."""
        if reference.shape != actual.shape:
            self._sums = torch.full_like(self._sums, math.nan)
            return
        if reference.numel() == 0:
            return
        axis, reference, actual = self._axis, numbers(reference), numbers(actual)
        if axis is None:
            sums = torch.tensor(signal_and_noise(reference, actual), dtype=torch.float64).unsqueeze(1)
        else:
            sums = torch.cat([rows[:2] for rows in row_sums(reference.movedim(axis, 0), actual.movedim(axis, 0))], 1)
        fits = self._sums.shape == sums.shape or not self._sums.any()
        self._sums = self._sums + sums if fits else torch.full_like(self._sums, math.nan)

    @property
    def signal(self) -> float:
        """Sum of reference^2."""
        return float(self._sums[0].sum())

    @property
    def noise(self) -> float:
        """Sum of (reference - actual)^2."""
        return float(self._sums[1].sum())

    def worst_db(self) -> float | None:
        """SQNR of the worst channel that has a signal, dB; None if there is none, or where the total is None."""
        if db(self.signal, self.noise) is None:
            return None
        levels = (db(signal, noise) for signal, noise in self._sums.t().tolist())
        return min((level for level in levels if level is not None), default=None)


class Top1:
    """Share of samples whose largest score is at the label, in [0, 1], higher is better.

    A sample with a NaN among its scores is wrong; of equal scores the first counts, as in `torch.argmax`.
    """

    def __init__(self) -> None:
        self._correct = 0
        self._samples = 0

    def update(self, *, scores: Tensor, labels: Tensor) -> None:
        """Add a batch of scores (..., classes) and labels (...); ValueError if the shapes do not fit."""
        if scores.dim() == 0 or scores.shape[:-1] != labels.shape:
            raise ValueError(f"scores {tuple(scores.shape)} need labels of shape {tuple(scores.shape[:-1])}, "
                             f"not {tuple(labels.shape)}")  # fmt: skip
        if labels.numel() == 0:
            return
        right = (scores.argmax(-1) == labels) & ~scores.isnan().any(-1)
        self._correct += int(right.sum())
        self._samples += labels.numel()

    def result(self) -> float | None:
        """The share so far; None without samples."""
        return self._correct / self._samples if self._samples else None


def _alike(reference: Tensor, actual: Tensor) -> bool:
    return reference.shape == actual.shape and reference.dtype == actual.dtype


def _times_power_of_two(value: float, exponent: int) -> float:
    """Finite even where two finite values are further apart than float64 can say."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return sys.float_info.max
