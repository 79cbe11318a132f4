"""The bootstrap of SQNR over samples: against arithmetic, theory and SciPy."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from harness.measure.bootstrap import RESAMPLES, Array, interval_db, levels_db, paired_interval_db, resampled
from harness.measure.decibels import db


def sums(signal: list[float], noise: list[float]) -> Array:
    return np.array([signal, noise], dtype=np.float64)


def noisy(samples: int, seed: int = 0) -> Array:
    """Signal 100 a sample; noise around 1 (20 dB), in most samples within a factor of 2.7."""
    noise = np.exp(np.random.RandomState(seed).randn(samples))
    return np.stack([np.full(samples, 100.0), noise])


def width(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return interval[1] - interval[0]


# Arithmetic


def test_of_two_samples_a_quarter_of_the_resamples_is_the_worse_one_twice() -> None:
    """So the 2.5 % point is its SQNR, 10 dB, and the 97.5 % point that of the other, 20 dB."""
    assert interval_db(sums([100, 100], [10, 1])) == (10.0, 20.0)


def test_samples_that_are_alike_leave_nothing_open() -> None:
    assert interval_db(sums([100] * 5, [1] * 5)) == (20.0, 20.0)


def test_without_noise_both_ends_are_the_cap() -> None:
    assert interval_db(sums([1, 2, 0], [0, 0, 0])) == (160.0, 160.0)


def test_one_sample_says_nothing_of_a_second() -> None:
    assert interval_db(sums([100], [1])) is None
    assert paired_interval_db(base=sums([100], [1]), head=sums([100], [2])) is None


def test_where_many_resamples_have_noise_and_no_signal_there_is_no_lower_end() -> None:
    """Of two samples one has no signal: a quarter of the resamples holds nothing else."""
    assert interval_db(sums([0, 100], [1, 1])) is None


def test_a_resample_draws_whole_samples_with_replacement() -> None:
    """Every resample of ones adds up to their number; sample 0 is in each of them once on average."""
    total = resampled(np.stack([np.ones(50), np.eye(50)[0]]))
    assert total.shape == (2, RESAMPLES)
    assert (total[0] == 50).all()
    assert total[1].mean() == pytest.approx(1, abs=4 / math.sqrt(RESAMPLES))
    assert np.bincount(total[1].astype(int))[0] / RESAMPLES == pytest.approx(math.exp(-1), abs=0.05)


def test_levels_are_those_of_db() -> None:
    table = sums([100, 0, 0, 1e-300, 5], [1, 0, 1, 1e300, 0])
    expected = [db(signal, noise) for signal, noise in table.T.tolist()]
    assert expected == [20, 160, None, pytest.approx(-6000), 160]
    assert [None if math.isnan(level) else level for level in levels_db(table).tolist()] == pytest.approx(expected)


# Theory


def test_the_width_is_that_of_the_delta_method() -> None:
    """With equal signals SQNR is -10 log10 of the mean noise, whose relative standard error is std / (mean sqrt(n))."""
    table = noisy(360)
    noise = table[1]
    error = 10 / math.log(10) * noise.std() / (noise.mean() * math.sqrt(360))
    assert width(interval_db(table)) == pytest.approx(2 * 1.96 * error, rel=0.08)


def test_scipy_finds_the_same_interval() -> None:
    table = noisy(360, seed=1)
    table[0] *= np.exp(np.random.RandomState(2).randn(360))

    def level(signal: Array, noise: Array, axis: int) -> Array:
        ratio: Array = 10 * np.log10(signal.sum(axis) / noise.sum(axis))
        return ratio

    theirs = stats.bootstrap(
        tuple(table), level, paired=True, vectorized=True, method="percentile", n_resamples=9999, rng=0
    )
    ours = interval_db(table)
    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.1 * theirs.standard_error)


def test_nineteen_in_twenty_intervals_hold_the_true_value() -> None:
    """Of 300 sets of 100 samples; the mean of exp(N(0, 1)) is sqrt(e). Skewed noise leaves percentiles a bit short."""
    true = 10 * math.log10(100 / math.sqrt(math.e))
    intervals = [interval_db(noisy(100, seed)) for seed in range(300)]
    held = [interval is not None and interval[0] <= true <= interval[1] for interval in intervals]
    assert 0.89 <= sum(held) / 300 <= 0.97


def test_four_times_the_samples_halve_the_interval_also_where_they_are_drawn_in_groups() -> None:
    widths = [np.mean([width(interval_db(noisy(samples, seed))) for seed in range(5)]) for samples in (1024, 4096)]
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.2)


# Pairs


def test_twice_the_noise_in_every_sample_is_3_db_without_doubt() -> None:
    """Between samples SQNR differs by many dB; paired, none of it matters."""
    base = noisy(50)
    head = base * np.array([[1.0], [2.0]])
    lost = -10 * math.log10(2)
    assert paired_interval_db(base=base, head=head) == pytest.approx((lost, lost), abs=1e-9)
    assert width(interval_db(base)) > 1


def test_a_run_is_no_better_than_itself() -> None:
    assert paired_interval_db(base=noisy(50), head=noisy(50)) == (0.0, 0.0)


# Determinism


SHOW = "import sys; from tests.measure.test_bootstrap import interval_db, noisy; print(interval_db(noisy(360)))"


def test_the_bits_are_those_of_another_process_and_instruction_set() -> None:
    """numpy with and without its vector code beyond the SSE it cannot do without."""
    known = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    less = {"NPY_DISABLE_CPU_FEATURES": " ".join(known)} if known else {}
    said = {
        subprocess.run(
            [sys.executable, "-c", SHOW], env={**os.environ, **more}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for more in ({}, less)
    }
    assert said == {repr(interval_db(noisy(360)))}


@pytest.mark.parametrize("power", [-40, 40])
def test_a_power_of_two_changes_no_bit(power: int) -> None:
    assert interval_db(noisy(20) * 2.0**power) == interval_db(noisy(20))
