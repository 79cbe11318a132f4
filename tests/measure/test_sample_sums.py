"""Sums of signal and noise of each sample, as `OutputStats` keeps them, and the interval made from them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from harness.measure.bootstrap import interval_db
from harness.measure.metrics import OutputStats, measure


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def stats_of(*batches: tuple[Tensor, Tensor]) -> OutputStats:
    stats = OutputStats()
    for reference, actual in batches:
        stats.update(reference=reference, actual=actual)
    return stats


def test_each_sample_has_its_signal_and_its_noise_in_order_over_batches() -> None:
    stats = stats_of(
        (torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[3.0, 5.0], [1.0, 0.0]])),
        (torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 2.0]])),
    )
    samples = stats.samples()
    assert samples is not None
    assert samples.dtype == "float64"
    assert samples.tolist() == [[25.0, 1.0, 4.0], [1.0, 0.0, 9.0]]


def test_they_add_up_to_what_the_row_says() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(20, 3, 5, generator=generator)
    actual = reference + 0.01 * torch.randn(20, 3, 5, generator=generator)
    stats = stats_of(*zip(reference.split(7), actual.split(7), strict=True))
    samples, result = stats.samples(), stats.result()
    assert samples is not None
    signal, noise = samples
    assert result.sqnr_db == pytest.approx(10 * math.log10(signal.sum() / noise.sum()), abs=1e-9)
    assert result.sqnr_min_db == pytest.approx(10 * math.log10((signal / noise).min()), abs=1e-9)
    assert (result.sqnr_lo_db, result.sqnr_hi_db) == interval_db(samples)


def test_batches_of_very_different_magnitude_share_one_unit() -> None:
    """1e-200 and 1e200 have no square in float64; scaled, they have, and 1 beside 1e200 counts as nothing."""
    stats = stats_of((f64(10) * 1e200, f64(11) * 1e200), (f64(10), f64(11)))
    samples = stats.samples()
    assert samples is not None
    (large, small), (large_noise, small_noise) = samples
    assert large / large_noise == pytest.approx(100)
    assert math.isfinite(large)
    assert (small, small_noise) == (0.0, 0.0)  # 1e-400 of the whole
    extreme = stats_of((f64(10, 20) * 1e-200, f64(11, 20) * 1e-200)).samples()
    assert extreme is not None
    assert extreme[0, 1] / extreme[0, 0] == pytest.approx(4)
    assert extreme[0, 0] / extreme[1, 0] == pytest.approx(100)


@pytest.mark.parametrize(
    "spoiled",
    [
        (f64(1, 2), f64(1, math.nan)),
        (f64(1, math.inf), f64(1, 2)),
        (f64(1, 2), f64(1)),
    ],
)
def test_what_spoils_a_batch_leaves_no_samples_and_no_interval(spoiled: tuple[Tensor, Tensor]) -> None:
    stats = stats_of((f64(1, 2), f64(1, 3)), spoiled)
    assert stats.samples() is None
    assert (stats.result().sqnr_lo_db, stats.result().sqnr_hi_db) == (None, None)


def test_no_sample_is_none_and_one_has_no_interval() -> None:
    assert OutputStats().samples() is None
    one = measure(reference=torch.tensor(10.0), actual=torch.tensor(11.0))
    assert one.sqnr_db == pytest.approx(20)
    assert (one.sqnr_lo_db, one.sqnr_hi_db) == (None, None)


def test_noise_without_signal_has_sums_and_no_interval() -> None:
    stats = stats_of((f64(0, 0), f64(0, 2)))
    samples = stats.samples()
    assert samples is not None
    assert samples.tolist() == [[0.0, 0.0], [0.0, 4.0]]
    assert (stats.result().sqnr_db, stats.result().sqnr_lo_db) == (None, None)
