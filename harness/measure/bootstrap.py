"""How far an SQNR depends on which samples were evaluated: the bootstrap, without torch.

An evaluation set is a sample of the inputs that a model will meet. `sqnr_db` of the set estimates that of the whole
population, and drawing the set anew from itself, with replacement, shows how far such an estimate strays from what it
estimates (B. Efron, Annals of Statistics 7(1), 1979): the interval holds the plausible SQNRs of the population. Two
sets differ by sqrt(2) more, as both stray. Whole samples are drawn, as elements of one sample are not independent, and
each resample's SQNR is that of its summed signal and noise, as `sqnr_db` is. Intervals are between percentiles, so they
are the same whether taken in dB or as ratios.

**How often it holds the true value.** 95 % is the limit for many samples. Few samples show too little of the spread,
and none show a rare sample of much noise that was not drawn: of sets of 2, 8 and 360 samples, 48, 90 and 94 % of the
intervals held it where noise was chi-squared with ten degrees of freedom; 36, 71 and 90 % where it was lognormal with
sigma 1.5; 32, 61 and 77 % where it was Pareto with exponent 1.5. With the latter two nearly all misses are on one side,
with the true SQNR below the interval. No correction of percentiles makes up for noise that was not seen.

**How many resamples.** The estimate of a 2.5 % point from R resamples has a standard error of sqrt(0.025 x 0.975 / R)
in probability; the normal density there is 0.0584, so it is 2.67 / sqrt(R) of the standard error of SQNR itself: 3 % of
the half width with R = 1999. The set's own size leaves more: a standard error estimated from 360 samples is uncertain
by 1 / sqrt(720), 3.7 %, at the very least. More resamples would cost time and say nothing. 1999 rather than 2000 makes
the 2.5 % point the 50th of them exactly (A. C. Davison, D. V. Hinkley, Bootstrap Methods, 1997, section 5.2.1).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harness.measure.decibels import db
from harness.records import SQNR_CAP_DB

Array = NDArray[np.float64]

RESAMPLES = 1999
_TAIL = (RESAMPLES + 1) // 40
"""The rank of the 2.5 % point: of 1999 values the 50th."""
_MOST_DRAWN = 2048
"""The most units that are drawn one by one."""


def interval_db(sums: Array) -> tuple[float, float] | None:
    """The 95 % interval of SQNR over samples, (lower, upper) in dB; from (2, samples) sums of signal and of noise.

    Of few samples, or of rare loud noise, it holds the population's SQNR less often than 95 % says: see the module.
    None for fewer than two samples, which say nothing of a third, and where the lower end is undefined because that
    many resamples hold noise and no signal. Without noise both ends are 160.
    """
    if sums.shape[1] < 2:
        return None
    signal, noise = resampled(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(noise == 0, 0.0, noise / signal)
    order = np.argsort(share, kind="stable")
    best, worst = order[_TAIL - 1], order[-_TAIL]
    lower, upper = db(float(signal[worst]), float(noise[worst])), db(float(signal[best]), float(noise[best]))
    return None if lower is None or upper is None else (lower, upper)


def paired_interval_db(*, base: Array, head: Array) -> tuple[float, float] | None:
    """The 95 % interval of SQNR of `head` minus that of `base`, dB, over samples that both measured.

    Both (2, samples). Each resample takes the same samples from both, so what makes a sample hard on either side
    cancels. None for fewer than two samples, or where a resample has noise and no signal.
    """
    if base.shape[1] < 2:
        return None
    both = resampled(np.concatenate([base, head]))
    deltas = np.sort(levels_db(both[2:]) - levels_db(both[:2]))
    return (float(deltas[_TAIL - 1]), float(deltas[-_TAIL])) if np.isfinite(deltas).all() else None


def levels_db(sums: Array) -> Array:
    """SQNR of each column of (2, any) sums of signal and noise, dB, at most 160; NaN where `db` says None."""
    signal, noise = sums
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        levels: Array = np.minimum(SQNR_CAP_DB, 10 * (np.log10(signal) - np.log10(noise)))
    levels[noise == 0] = SQNR_CAP_DB
    levels[(signal == 0) & (noise != 0)] = np.nan
    return levels


def resampled(sums: Array) -> Array:
    """(any, samples) sums, added up over each of 1999 resamples: (any, 1999).

    The draws depend on the number of samples alone, and sums are added one sample at a time, each step rounded as
    IEEE 754 says: equal sums give equal bits on every machine. More than 2048 samples are drawn in that many groups of
    neighbours, which leaves the standard error uncertain by 2 %, so that time and memory stay those of 2048.
    """
    samples = sums.shape[1]
    if samples > _MOST_DRAWN:
        edges = np.arange(_MOST_DRAWN) * samples // _MOST_DRAWN
        sums = np.add.reduceat(sums, edges, axis=1)
    total = np.zeros((len(sums), RESAMPLES))
    term = np.empty_like(total)
    for count, column in zip(_counts(sums.shape[1]), sums.T, strict=True):
        total += np.multiply(column[:, np.newaxis], count, out=term)
    return total


@lru_cache(maxsize=4)
def _counts(samples: int) -> NDArray[np.uint8]:
    """How often each sample is in each resample, (samples, 1999).

    `RandomState` rather than `default_rng`: numpy keeps its stream the same for good (NEP 19).
    """
    random = np.random.RandomState(0)
    counts = np.empty((samples, RESAMPLES), dtype=np.uint8)  # 256 draws of one sample: never, at 1 on average
    for resample in range(RESAMPLES):
        counts[:, resample] = np.bincount(random.randint(samples, size=samples), minlength=samples)
    return counts
