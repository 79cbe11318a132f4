"""Sums of squares as decibels, without torch: verbs that only read stored sums use it too."""

from __future__ import annotations

import math

from harness.records import SQNR_CAP_DB


def db(signal: float, noise: float) -> float | None:
    """10 log10(signal / noise) of two sums of squares, in dB, higher is better.

    160 (`SQNR_CAP_DB`) without noise and wherever the ratio is above it; None if there is noise and no signal, or if
    either sum is NaN or infinite.
    """
    if not (math.isfinite(signal) and math.isfinite(noise)):
        return None
    if noise == 0:
        return SQNR_CAP_DB
    if signal == 0:
        return None
    ratio = signal / noise
    level = math.log10(ratio) if ratio > 0 else math.log10(signal) - math.log10(noise)
    return min(SQNR_CAP_DB, 10 * level)
