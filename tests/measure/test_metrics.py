"""SQNR and its companions: each number below can be redone by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.measure.blocks import block_size
from harness.measure.metrics import ChannelSums, Measurement, OutputStats, Top1, db, measure, sqnr_db
from harness.records import Status

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a measuring process; with more, small tensors wait for each other's threads on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def noisy(*shape: int, seed: int = 0, noise: float = 0.01, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randn(shape, generator=generator, dtype=dtype)
    return reference, reference + noise * torch.randn(shape, generator=generator, dtype=dtype)


def by_fractions(reference: Tensor, actual: Tensor) -> float:
    """The definition in exact arithmetic."""
    pairs = [(Fraction(r), Fraction(a)) for r, a in zip(reference.tolist(), actual.tolist(), strict=True)]
    ratio = sum(r * r for r, _ in pairs) / sum((r - a) ** 2 for r, a in pairs)
    return 10 * math.log10(ratio)


def by_fsum(reference: Tensor, actual: Tensor) -> float:
    """The definition in float64 with sums rounded once."""
    pairs = list(zip(reference.tolist(), actual.tolist(), strict=True))
    return 10 * math.log10(math.fsum(r * r for r, _ in pairs) / math.fsum((r - a) ** 2 for r, a in pairs))


# The definition


def test_noise_a_tenth_of_the_signal_is_20_db() -> None:
    assert sqnr_db(reference=f64(10, -10), actual=f64(11, -11)) == pytest.approx(20, abs=1e-12)


def test_noise_equal_to_the_signal_is_0_db_and_ten_times_it_minus_20() -> None:
    assert sqnr_db(reference=f64(3, 4), actual=f64(0, 0)) == 0
    assert sqnr_db(reference=f64(1, 0), actual=f64(11, 0)) == pytest.approx(-20, abs=1e-12)


def test_the_reference_is_the_signal() -> None:
    assert sqnr_db(reference=f64(10, 0), actual=f64(10, 1)) == pytest.approx(20, abs=1e-12)
    assert sqnr_db(reference=f64(10, 1), actual=f64(10, 0)) == pytest.approx(10 * math.log10(101), abs=1e-12)


@pytest.mark.parametrize("function", [sqnr_db, measure, OutputStats().update, ChannelSums().update, Top1().update])
def test_a_swap_cannot_be_written(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError):
        function(f64(1), f64(2))


def test_an_infinitely_good_result_is_capped_at_160_db() -> None:
    assert sqnr_db(reference=f64(1e9), actual=f64(1e9 + 1)) == 160  # 180 dB
    assert sqnr_db(reference=f64(1e7), actual=f64(1e7 + 1)) == pytest.approx(140, abs=1e-12)
    assert measure(reference=f64(1e9), actual=f64(1e9 + 1)).status is Status.MEASURED


def test_db_of_two_sums() -> None:
    assert db(100.0, 1.0) == 20
    assert db(0.0, 0.0) == db(1.0, 0.0) == db(1e300, 1e-300) == 160
    assert db(1e-300, 1e300) == pytest.approx(-6000)
    assert db(0.0, 1.0) is db(NAN, 1.0) is db(1.0, NAN) is db(INF, 1.0) is db(1.0, INF) is None


# The edges

EDGES = {
    "no noise": (
        f64(3, 4),
        f64(3, 4),
        Measurement(Status.EXACT, 160.0, 160.0, 0.0, 1.0, math.sqrt(12.5), 2, 160.0, 160.0),
    ),
    "both zero": (f64(0, 0), f64(0, -0.0), Measurement(Status.EXACT, 160.0, 160.0, 0.0, None, 0.0, 2, 160.0, 160.0)),
    "zero signal": (f64(0, 0), f64(0, -2), Measurement(Status.ZERO_SIGNAL, None, None, 2.0, None, 0.0, 2)),
    "NaN in actual": (f64(1, 2), f64(1, NAN), Measurement(Status.NONFINITE_ACTUAL, numel=2)),
    "inf in actual": (f64(1, 2), f64(-INF, 2), Measurement(Status.NONFINITE_ACTUAL, numel=2)),
    "NaN in reference": (f64(NAN, 2), f64(1, 2), Measurement(Status.NONFINITE_REFERENCE, numel=2)),
    "the same inf in both": (f64(INF, 2), f64(INF, 2), Measurement(Status.NONFINITE_REFERENCE, numel=2)),
    "NaN in actual, inf in reference": (f64(INF, 2), f64(1, NAN), Measurement(Status.NONFINITE_REFERENCE, numel=2)),
    "shape differs": (f64(1, 2), f64(1, 2).view(2, 1), Measurement(Status.MISMATCH)),
    "shape would broadcast": (f64(1, 2), f64(1), Measurement(Status.MISMATCH)),
    "dtype differs": (f64(1, 2), f64(1, 2).float(), Measurement(Status.MISMATCH)),
    "empty": (f64(), f64(), Measurement(Status.EMPTY)),
    "empty samples": (torch.empty(3, 0), torch.empty(3, 0), Measurement(Status.EMPTY)),
}


@pytest.mark.parametrize(("reference", "actual", "expected"), EDGES.values(), ids=EDGES)
def test_each_edge_has_a_value(reference: Tensor, actual: Tensor, expected: Measurement) -> None:
    assert measure(reference=reference, actual=actual) == expected
    assert sqnr_db(reference=reference, actual=actual) == expected.sqnr_db


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_one_bad_value_in_many_blocks_is_found(dtype: torch.dtype, bad: float) -> None:
    reference = torch.ones(3 * block_size() + 7, dtype=dtype)
    actual = reference.clone()
    actual[-1] = bad
    assert measure(reference=reference, actual=actual).status is Status.NONFINITE_ACTUAL
    assert measure(reference=actual, actual=reference).status is Status.NONFINITE_REFERENCE
    assert sqnr_db(reference=reference, actual=actual) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_largest_finite_values_are_finite(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    reference = torch.full((4,), largest, dtype=dtype)
    assert sqnr_db(reference=reference, actual=reference / 2) == pytest.approx(20 * math.log10(2), abs=1e-9)
    opposite = measure(reference=reference, actual=-reference)
    assert opposite.sqnr_db == pytest.approx(-20 * math.log10(2), abs=1e-9)
    assert opposite.cosine == pytest.approx(-1)
    assert opposite.ref_rms == pytest.approx(largest)
    assert opposite.max_abs_err == (2 * largest if 2 * largest < INF else sys.float_info.max)


@pytest.mark.parametrize("scale", [1e200, 1e-200, 5e307, 1e-290])
def test_float64_whose_squares_leave_the_range_is_rescaled(scale: float) -> None:
    pair = {"reference": f64(10, -10) * (scale / 10), "actual": f64(11, -11) * (scale / 10)}
    result = measure(**pair)
    assert result.sqnr_db == pytest.approx(20, abs=1e-9)
    assert result.sqnr_min_db == pytest.approx(20, abs=1e-9)
    assert result.max_abs_err == pytest.approx(0.1 * scale)
    assert result.ref_rms == pytest.approx(scale)
    assert sqnr_db(**pair) == result.sqnr_db


def test_the_smallest_float64_values_have_a_ratio() -> None:
    assert sqnr_db(reference=f64(10 * 5e-324), actual=f64(11 * 5e-324)) == pytest.approx(20)


def test_a_difference_too_small_to_square_is_not_exact() -> None:
    result = measure(reference=f64(1, 0), actual=f64(1, 1e-200))
    assert (result.status, result.sqnr_db, result.max_abs_err) == (Status.MEASURED, 160, 1e-200)


# Accuracy: 1e-9 dB from exact arithmetic, across several blocks


def _case(name: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    signal, noise = torch.randn(2, 400_001, generator=generator, dtype=torch.float64)
    reference, scale = {
        "40 dB noise": (signal, 1e-2),
        "120 dB noise": (signal, 1e-6),
        "mean 100 +- 1 with 1e-2 noise": (100 + signal, 1e-2),
        "values of 1e20": (1e20 * signal, 1e18),
        "values of 1e-25": (1e-25 * signal, 1e-27),
    }[name]
    return reference.float(), (reference.float() + scale * noise).float()


@pytest.mark.parametrize(
    "name",
    ["40 dB noise", "120 dB noise", "mean 100 +- 1 with 1e-2 noise", "values of 1e20", "values of 1e-25"],
)
def test_within_1e_9_db_of_exact_arithmetic(name: str) -> None:
    reference, actual = _case(name)
    some = {"reference": reference[:2000], "actual": actual[:2000]}
    assert sqnr_db(**some) == pytest.approx(by_fractions(**some), abs=1e-9, rel=0)
    expected = pytest.approx(by_fsum(reference, actual), abs=1e-9, rel=0)
    assert sqnr_db(reference=reference, actual=actual) == expected
    assert measure(reference=reference, actual=actual).sqnr_db == expected
    assert measure(reference=reference.view(1, -1), actual=actual.view(1, -1)).sqnr_db == expected


# Every dtype and layout


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64])
def test_token_ids_and_masks_are_numbers(dtype: torch.dtype) -> None:
    reference, actual = torch.tensor([1, 1, 1, 1], dtype=dtype), torch.tensor([1, 1, 1, 0], dtype=dtype)
    assert sqnr_db(reference=reference, actual=actual) == pytest.approx(10 * math.log10(4))
    assert measure(reference=reference, actual=actual).max_abs_err == 1


def test_a_complex_value_counts_as_two() -> None:
    result = measure(reference=torch.tensor([10 + 10j]), actual=torch.tensor([11 + 9j]))
    assert result.sqnr_db == pytest.approx(20)
    conjugate = measure(reference=torch.tensor([10 - 10j]).conj(), actual=torch.tensor([11 + 9j]))
    assert conjugate.sqnr_db == pytest.approx(20)
    assert measure(reference=torch.tensor(3 + 4j), actual=torch.tensor(3 + 0j)).max_abs_err == 4


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t(),
    "every other column": lambda x: x[:, ::2],
    "flipped rows": lambda x: x.flip(0)[1:, 1:],
    "one long row": lambda x: x.reshape(1, -1)[:, ::3],
    "requires_grad": lambda x: x.clone().requires_grad_(),
    "4-dim channels_last": lambda x: x.view(6, 10, 50, 100).to(memory_format=torch.channels_last),
    "expanded": lambda x: x[:, :1].expand(-1, 1000),
    "one value expanded": lambda x: x[0, 0].expand(300_000),
    "0-dim": lambda x: x[0, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_gives_what_a_contiguous_copy_gives(layout: Callable[[Tensor], Tensor]) -> None:
    reference, actual = map(layout, noisy(300, 1000))
    before = reference.detach().clone(), actual.detach().clone()
    copies = {"reference": before[0].contiguous(), "actual": before[1].contiguous()}
    result, expected = measure(reference=reference, actual=actual), measure(**copies)
    for field in ("sqnr_db", "sqnr_min_db", "max_abs_err", "cosine", "ref_rms"):
        assert getattr(result, field) == pytest.approx(getattr(expected, field), rel=1e-12)
    assert sqnr_db(reference=reference, actual=actual) == pytest.approx(sqnr_db(**copies), rel=1e-12)
    mixed = sqnr_db(reference=reference, actual=copies["actual"])
    assert mixed == pytest.approx(result.sqnr_db, rel=1e-12)
    assert torch.equal(before[0], reference)
    assert torch.equal(before[1], actual)


# Streaming


def test_the_worst_sample_is_a_sample_of_dim_0() -> None:
    result = measure(reference=f64(10, 10, 10), actual=f64(11, 10, 10))
    assert result.sqnr_min_db == pytest.approx(20)  # 100 / 1
    assert result.sqnr_db == pytest.approx(10 * math.log10(300))  # 300 / 1


def test_the_worst_sample_is_kept_over_batches() -> None:
    stats = OutputStats()
    for noise in (0.1, 1.0, 0.01):
        stats.update(reference=f64(10, 10), actual=f64(10, 10 + noise))
    assert stats.result().sqnr_min_db == pytest.approx(20)


def test_a_sample_without_signal_is_never_the_worst_but_its_noise_counts() -> None:
    result = measure(reference=f64(10, 0), actual=f64(11, 3))
    assert result.sqnr_min_db == pytest.approx(20)
    assert result.sqnr_db == pytest.approx(10)  # 100 / (1 + 9)
    assert result.max_abs_err == 3


def test_cosine_rms_and_largest_error() -> None:
    result = measure(reference=f64(3, 4), actual=f64(4, 3))
    assert result.cosine == pytest.approx(24 / 25)
    assert result.ref_rms == pytest.approx(math.sqrt(12.5))
    assert (result.max_abs_err, result.numel) == (1, 2)
    assert measure(reference=f64(3, 4), actual=f64(0, 0)).cosine is None


@pytest.mark.parametrize("shape", [(37,), (37, 5), (37, 3, 1111), (3, 70_001)])
def test_batches_add_up_to_the_whole(shape: tuple[int, ...]) -> None:
    reference, actual = noisy(*shape)
    whole, stats = measure(reference=reference, actual=actual), OutputStats()
    for start in range(0, 37, 10):
        stats.update(reference=reference[start : start + 10], actual=actual[start : start + 10])
    result = stats.result()
    assert (result.status, result.numel) == (Status.MEASURED, reference.numel())
    assert result.max_abs_err == whole.max_abs_err == float((reference.double() - actual.double()).abs().max())
    samples = [sqnr_db(reference=r, actual=a) for r, a in zip(reference, actual, strict=True)]
    assert result.sqnr_min_db == pytest.approx(min(s for s in samples if s is not None), abs=1e-9)
    for field in ("sqnr_db", "sqnr_min_db", "cosine", "ref_rms"):
        assert getattr(result, field) == pytest.approx(getattr(whole, field), abs=1e-9)
    assert result.sqnr_db == pytest.approx(sqnr_db(reference=reference, actual=actual), abs=1e-9)


def test_batches_of_very_different_magnitude_add_up() -> None:
    for order in ((1.0, 1e200, 0.0, 1e-200), (1e-200, 0.0, 1.0, 1e200)):
        stats = OutputStats()
        for scale in order:
            stats.update(reference=f64(10) * scale, actual=f64(11) * scale)
        result = stats.result()
        assert result.sqnr_db == pytest.approx(20)
        assert result.sqnr_min_db == pytest.approx(20)
        assert result.ref_rms == pytest.approx(5e200)


@pytest.mark.parametrize("good_first", [True, False])
@pytest.mark.parametrize("edge", ["NaN in actual", "inf in actual", "NaN in reference", "dtype differs"])
def test_what_spoils_a_batch_sticks(edge: str, good_first: bool) -> None:
    stats, good, (reference, actual, expected) = OutputStats(), noisy(2, dtype=torch.float64), EDGES[edge]
    if good_first:
        stats.update(reference=good[0], actual=good[1])
    stats.update(reference=reference, actual=actual)
    stats.update(reference=good[0], actual=good[1])
    result = stats.result()
    assert result == Measurement(expected.status, numel=result.numel)


def test_the_gravest_status_wins_in_any_order() -> None:
    names = ["NaN in actual", "NaN in reference", "shape differs"]
    for order in (names, names[::-1]):
        stats = OutputStats()
        for name in order:
            stats.update(reference=EDGES[name][0], actual=EDGES[name][1])
        assert stats.result().status is Status.MISMATCH


def test_an_empty_batch_adds_nothing() -> None:
    stats = OutputStats()
    assert stats.result() == Measurement(Status.EMPTY)
    stats.update(reference=torch.empty(0, 2), actual=torch.empty(0, 2))
    stats.update(reference=torch.tensor([[3.0, 4.0]]), actual=torch.tensor([[3.0, 4.0]]))
    assert stats.result().status is Status.EXACT


# Channels


def test_channel_sums_find_the_worst_channel() -> None:
    sums = ChannelSums(axis=1)
    for _ in range(2):
        sums.update(reference=torch.full((4, 2), 10.0), actual=torch.tensor([[11.0, 10.1]]).expand(4, 2))
    assert sums.signal == 1600  # 2 batches x 8 values x 10^2
    assert sums.noise == pytest.approx(8.08, rel=1e-5)  # 2 batches x 4 rows x (1 + 0.1^2)
    assert sums.worst_db() == pytest.approx(20)
    total = ChannelSums()
    total.update(reference=torch.full((4, 2), 10.0), actual=torch.tensor([[11.0, 10.1]]).expand(4, 2))
    assert total.worst_db() == pytest.approx(db(sums.signal, sums.noise))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_channel_sums_of_a_mismatch_or_a_nan_stay_undefined(axis: int | None) -> None:
    for reference, actual in ((torch.ones(2, 3), torch.ones(3, 2)), (torch.ones(2, 3), torch.full((2, 3), NAN))):
        sums = ChannelSums(axis)
        sums.update(reference=torch.ones(2, 3), actual=torch.ones(2, 3))
        assert sums.worst_db() == 160
        sums.update(reference=reference, actual=actual)
        sums.update(reference=torch.ones(2, 3), actual=torch.ones(2, 3))
        assert db(sums.signal, sums.noise) is None
        assert sums.worst_db() is None


# Top-1


def test_top1_counts_over_batches() -> None:
    top1 = Top1()
    assert top1.result() is None
    top1.update(scores=torch.tensor([[1.0, 2.0], [2.0, 1.0]]), labels=torch.tensor([1, 1]))
    top1.update(scores=torch.tensor([[1.0, 2.0], [0.0, 0.0]]), labels=torch.tensor([1, 0]))
    top1.update(scores=torch.empty(0, 2), labels=torch.empty(0, dtype=torch.int64))
    assert top1.result() == 3 / 4


def test_nan_scores_are_never_correct() -> None:
    top1 = Top1()
    top1.update(scores=torch.tensor([[NAN, 0.0], [NAN, 1.0], [0.0, 1.0]]), labels=torch.tensor([0, 1, 1]))
    assert top1.result() == 1 / 3


def test_labels_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"scores \(2, 3\) need labels of shape \(2,\), not \(3,\)"):
        Top1().update(scores=torch.ones(2, 3), labels=torch.ones(3))


# Properties

elements = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40)


@given(elements, st.integers(0, 1000), st.integers(-60, 60))
@settings(max_examples=100, deadline=None)
def test_scaling_both_by_a_power_of_two_changes_nothing(values: list[float], seed: int, power: int) -> None:
    reference = f64(*values)
    actual = reference + noisy(len(values), seed=seed, dtype=torch.float64)[0]
    scaled = {"reference": reference * 2.0**power, "actual": actual * 2.0**power}
    assert sqnr_db(**scaled) == sqnr_db(reference=reference, actual=actual)
    assert measure(**scaled).sqnr_min_db == measure(reference=reference, actual=actual).sqnr_min_db


@given(elements.filter(any), st.integers(0, 1000), st.floats(1.01, 10))
@settings(max_examples=100, deadline=None)
def test_more_noise_is_fewer_db(values: list[float], seed: int, factor: float) -> None:
    reference, noise = f64(*values), noisy(len(values), seed=seed, dtype=torch.float64)[0]
    less = sqnr_db(reference=reference, actual=reference + noise)
    more = sqnr_db(reference=reference, actual=reference + factor * noise)
    assert less is not None
    assert more is not None
    assert more < less or less == more == 160


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_the_split_into_batches_does_not_matter(samples: int, features: int, batch: int, seed: int) -> None:
    reference, actual = noisy(samples, features, seed=seed)
    whole, stats = measure(reference=reference, actual=actual), OutputStats()
    for start in range(0, samples, batch):
        stats.update(reference=reference[start : start + batch], actual=actual[start : start + batch])
    result = stats.result()
    assert result.sqnr_db == pytest.approx(whole.sqnr_db, abs=1e-9)
    assert result.sqnr_min_db == pytest.approx(whole.sqnr_min_db, abs=1e-9)
    assert whole.sqnr_min_db is not None
    assert whole.sqnr_db is not None
    assert whole.sqnr_min_db <= whole.sqnr_db + 1e-9


# Reproducibility

_LINE = """
import torch
from harness.measure.metrics import measure, sqnr_db
torch.set_num_threads({threads})
generator = torch.Generator().manual_seed(0)
reference, noise = torch.randn(2, 3, 300_001, generator=generator)
pair = dict(reference=reference[:, 1:], actual=(reference + 0.01 * noise)[:, 1:])
line = repr((sqnr_db(**pair), measure(**pair).sqnr_min_db))
"""


def _line(threads: int) -> str:
    names: dict[str, str] = {}
    exec(_LINE.format(threads=threads), names)
    return names["line"]


def test_one_thread_gives_the_same_bits_in_every_run_and_process() -> None:
    script = _LINE.format(threads=1) + "print(line)"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert _line(threads=1) == _line(threads=1) == other


def test_a_second_thread_changes_the_rounding_only() -> None:
    one, two = eval(_line(threads=1)), eval(_line(threads=2))
    assert two == pytest.approx(one, abs=1e-9, rel=0)
