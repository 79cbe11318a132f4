"""Sums of signal and noise of samples at levels in round numbers."""

from __future__ import annotations

import numpy as np

from harness.measure.bootstrap import Array
from tests.rows import output_row

ROW = output_row()


def levels(*decibels: float) -> Array:
    """Sums of samples of signal 1 at these SQNRs."""
    return np.array([[1.0] * len(decibels), [10 ** (-level / 10) for level in decibels]])


SET = [30.0 + at % 20 for at in range(200)]
"""200 samples from 30 to 49 dB, ten at each."""


def changed(**to: float) -> Array:
    """The set with some samples at another SQNR."""
    return levels(*(to.get(f"s{at}", level) for at, level in enumerate(SET)))


def quiet(sums: Array, *samples: int) -> Array:
    """The same levels with a ten thousandth of the signal and noise in these samples: to the sum they are nothing."""
    scale = np.ones(sums.shape[1])
    scale[list(samples)] = 1e-4
    return sums * scale
