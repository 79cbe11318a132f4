"""The predicted noise: arithmetic a reader can redo, and real quantize ops with kernels that are right and wrong."""

from __future__ import annotations

import math

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers quantized_decomposed ops)

from harness.measure.expected import Expected, Limits
from harness.measure.qdq import QParams
from harness.measure.quantizer_stats import QuantizerStats
from harness.records import Case, Granularity, Mode, QuantizerRow, Role

OPS = torch.ops.quantized_decomposed
STEP = 0.1
LAYOUTS = {
    Granularity.PER_TENSOR: lambda rows, columns: (1, 1),
    Granularity.PER_CHANNEL: lambda rows, columns: (rows, 1),
    Granularity.PER_TOKEN: lambda rows, columns: (rows, 1),
    Granularity.PER_GROUP: lambda rows, columns: (rows, columns // 4),
}


def qparams(scale: torch.Tensor, zero_point: int = 0, dtype: str = "int8", granularity=Granularity.PER_TENSOR):
    low, high = (-128, 127) if dtype == "int8" else (-448, 448)
    zeros = torch.full(scale.shape, zero_point)
    return QParams(scale.double(), zeros, low, high, dtype, granularity, 0)


def predicted(x: torch.Tensor, params: QParams, measured: float = 0.0) -> Expected:
    limits, expected = Limits(params, x.dtype), Expected()
    clipped = limits.clipped(x, float(x.min()), float(x.max()))
    expected.add(x, x, limits, clipped > 0, measured)
    return expected


def one_scale(step: float = STEP, **changes) -> QParams:
    return qparams(torch.full((1,), step), **changes)


def test_each_kind_of_value_makes_the_noise_that_a_reader_can_work_out():
    """Steps of 0.1 to 12.7: zeros make none, 0.03 makes 0.03^2, 0.58 lies 0.02 off 0.6, 13 is 0.3 past the bound."""
    expected = predicted(torch.tensor([0.0, 0.0, 0.03, 0.58, 13.0]), one_scale())
    assert expected.rounding == pytest.approx(0.03**2 + 0.02**2, rel=1e-5)
    assert expected.clipping == pytest.approx(0.3**2, rel=1e-5)


def test_values_that_lie_anywhere_in_their_step_make_a_twelfth_of_its_square():
    x = torch.rand(1 << 16, generator=torch.Generator().manual_seed(0)) * 20 - 10
    assert predicted(x, one_scale()).rounding == pytest.approx(len(x) * STEP**2 / 12, rel=0.03)


def test_values_within_half_a_step_past_a_bound_round_to_it():
    """12.74 is 0.04 past 12.7: no clipping, and no other code is nearer."""
    expected = predicted(torch.tensor([12.74]), one_scale())
    assert (expected.clipping, expected.rounding) == (0.0, pytest.approx(0.04**2, rel=1e-4))


def test_a_zero_point_at_the_end_of_the_codes_clips_one_side():
    """Zero point -128 leaves [0, 25.5]: -1 is clipped whole."""
    expected = predicted(torch.tensor([-1.0, 1.0]), one_scale(zero_point=-128))
    assert expected.clipping == pytest.approx(1.0)


def test_a_float8_step_doubles_with_the_power_of_two():
    """float8_e4m3fn has steps of 1/8 from 1 to 2, of 1/4 from 2 to 4, and ends at 448."""
    expected = predicted(torch.tensor([1.05, 2.10, 450.0]), one_scale(1.0, dtype="float8_e4m3fn"))
    assert expected.noise == pytest.approx(0.05**2 + 0.10**2 + 2.0**2, rel=1e-4)


@pytest.mark.parametrize("granularity", LAYOUTS)
@pytest.mark.parametrize("rows", [4, 4096])
def test_every_element_is_held_against_its_own_scale(granularity, rows):
    """A few elements all are, many are drawn from: then within 10 %, as the widest scales make most of the noise."""
    generator = torch.Generator().manual_seed(0)
    shape = LAYOUTS[granularity](rows, 16)
    scale = 0.01 + torch.rand(shape, generator=generator)
    each = scale.repeat_interleave(16 // shape[1], 1).expand(rows, 16).double()
    x = (torch.rand(rows, 16, generator=generator) * 100 - 50) * each.float()
    error = x - (x / each).round() * each
    allowed = 1e-4 if rows == 4 else 0.1
    measured = float((error**2).sum())
    found = predicted(x, qparams(scale, granularity=granularity), measured)
    assert found.noise == pytest.approx(measured, rel=allowed)


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_values_whose_squares_float32_cannot_hold_have_the_same_noise_in_their_own_unit(unit):
    """13 is 0.3 past 12.7, and 0.58 lies 0.02 off 0.6, whatever they are counted in."""
    expected = predicted(torch.tensor([0.58, 13.0]) * unit, one_scale(STEP * unit))
    assert expected.clipping / unit**2 == pytest.approx(0.3**2, rel=1e-4)
    assert expected.rounding / unit**2 == pytest.approx(0.02**2, rel=1e-4)


def test_a_sample_that_misses_the_few_values_that_count_is_replaced_by_all_of_them():
    """One value in 100,000 is off its code, by 0.03."""
    x = torch.zeros(100_000)
    x[77] = 0.03
    assert predicted(x, one_scale(), measured=0.03**2).noise == pytest.approx(0.03**2, rel=1e-5)


def measured_row(x: torch.Tensor, restore, scale: float = STEP, zero_point: int = 0, batches: int = 3) -> QuantizerRow:
    """The row of a real int8 quantize op whose codes `restore` turns back."""
    stats = QuantizerStats("q", Role.ACTIVATION, constant=False, mode=Mode.STATIC)
    params = one_scale(scale, zero_point=zero_point)
    for _ in range(batches):
        codes = OPS.quantize_per_tensor(x, scale, zero_point, -128, 127, torch.int8)
        stats.update(x, codes, restore(codes, scale, zero_point), params)
    return stats.row(Case("m", "s", "w", "f"), "converted", "")


def right(codes, scale, zero_point):
    return OPS.dequantize_per_tensor(codes, scale, zero_point, -128, 127, torch.int8)


WRONG = {
    "zero point": lambda codes, scale, zero: right(codes, scale, zero + 1),
    "scale": lambda codes, scale, zero: right(codes, 1.1 * scale, zero),
    "codes off by one": lambda codes, scale, zero: right(codes + 1, scale, zero),
    "rounds down": lambda codes, scale, zero: right(codes, scale, zero) - scale / 2,
    "not a number": lambda codes, scale, zero: right(codes, scale, zero) * math.nan,
}
INPUTS = {
    "normal": lambda noise: 3 * noise,
    "after a ReLU": lambda noise: 3 * noise.relu(),
    "far too wide a range": lambda noise: 0.02 * noise,
    "clipped": lambda noise: 12 * noise,
}


@pytest.fixture(params=INPUTS)
def values(request) -> torch.Tensor:
    noise = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)).clamp(-4, 4)
    return INPUTS[request.param](noise)


def test_a_correct_kernel_is_as_predicted_whatever_its_range(values):
    row = measured_row(values, right)
    assert row.sqnr_db == pytest.approx(row.expected_db, abs=0.3)
    assert row.cause != "numerics"


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_is_far_from_its_prediction(wrong):
    """Though a scale or zero point of such values would be no clipping and no wide step either."""
    x = 3 * torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)).clamp(-4, 4)
    row = measured_row(x, WRONG[wrong])
    assert row.expected_db == pytest.approx(measured_row(x, right).expected_db, abs=0.1)
    assert row.cause == "numerics"


def test_bad_qparams_are_as_bad_as_predicted_and_keep_their_own_causes():
    x = torch.linspace(-1, 1, 1 << 16)
    found = {
        "clipping": measured_row(x, right, scale=1 / 255),
        "step_size": measured_row(x, right, scale=20 / 255),
        "zero_point": measured_row(x, right, scale=2 / 255, zero_point=-100),
    }
    assert {name: row.cause for name, row in found.items()} == {name: name for name in found}
    assert all(abs(row.sqnr_db - row.expected_db) < 0.3 for row in found.values())


HIDDEN = {
    "right": right,
    "codes off by one": lambda codes, scale, zero: right((codes.int() + 1).clamp(max=127).to(torch.int8), scale, zero),
    "codes off by ten": lambda codes, scale, zero: right((codes.int() + 10).clamp(max=127).to(torch.int8), scale, zero),
    "rounds down": lambda codes, scale, zero: right(codes, scale, zero) - scale / 2 * (codes.abs() < 127),
    "smaller": lambda codes, scale, zero: 0.9 * right(codes, scale, zero),
    "larger": lambda codes, scale, zero: 1.1 * right(codes, scale, zero),
    "signs": lambda codes, scale, zero: right(codes, scale, zero).mul_(1 - 2 * every(100, codes)),
    "zeros": lambda codes, scale, zero: right(codes, scale, zero).mul_(1 - every(20, codes)),
}


def every(period: int, codes: torch.Tensor) -> torch.Tensor:
    """1 at one element of so many, 0 at the others."""
    return (torch.arange(codes.numel()) % period == 0).float()


@pytest.mark.parametrize("elements", [4000, 1 << 17])
@pytest.mark.parametrize(
    ("scale", "kernel"),
    [
        *((0.002, kernel) for kernel in HIDDEN),
        *((0.012, kernel) for kernel in ("right", "codes off by one", "rounds down")),
    ],
)
def test_a_wrong_kernel_shows_where_clipping_makes_nearly_all_of_the_noise(kernel, elements, scale):
    """Bounds of 0.25 and 1.5 for N(0, 1) clip 80 % and 13 %: whatever the kernel, the total is within 1 dB."""
    x = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    row = measured_row(x, HIDDEN[kernel], scale, batches=2)
    assert row.sqnr_db == pytest.approx(row.expected_db, abs=0.3)
    assert row.cause == ("clipping" if kernel == "right" else "numerics")


def test_clipped_elements_that_are_not_restored_to_their_bound_are_numerics_though_most_noise_is_rounding():
    """1,000 values of 6 past a bound of 5, in a million: put to 4 they make 4 times 1,000, rounding 0.0833 a value."""
    x = torch.arange(1_000_000) % 1000 / 100 - 5  # each a hundredth from its neighbour, -5 to 4.99
    x[::1000] = 6.0
    params = QParams(torch.ones(1).double(), torch.zeros(1).long(), -5, 5, "int8", Granularity.PER_TENSOR, None)
    causes = []
    for bound in (5.0, 4.0):
        stats = QuantizerStats("q", Role.ACTIVATION, constant=False, mode=Mode.STATIC)
        codes = x.round().clamp(-5, 5)
        restored = torch.where(x == 6, bound, codes)
        stats.update(x, codes.to(torch.int8), restored, params)
        row = stats.row(Case("m", "s", "w", "f"), "converted", "")
        assert row.sqnr_db == pytest.approx(row.expected_db, abs=0.5)
        causes.append(row.cause)
    assert causes == ["", "numerics"]


def test_zeros_and_other_values_that_lie_on_codes_are_right_to_float32s_last_bits_beside_clipped_ones():
    """What is not clipped has no noise but of arithmetic: above 80 dB that is no kernel's mistake."""
    grid = right(torch.arange(-100, 100).to(torch.int8), STEP, 0)
    row = measured_row(torch.cat([grid, grid.new_tensor([50.0])]), right)
    assert row.cause != "numerics"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_type_as_coarse_as_the_codes_is_no_wrong_kernel(dtype):
    """bfloat16 has steps of 1/64 from 2 to 4, half of the codes' 0.03: the op can restore no better."""
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    params = one_scale(0.03)
    codes = (x.double() / 0.03).round().clamp(-128, 127)
    stats = QuantizerStats("q", Role.ACTIVATION, constant=False, mode=Mode.STATIC)
    stats.update(x, codes.to(torch.int8), (codes * 0.03).to(dtype), params)
    assert stats.row(Case("m", "s", "w", "f"), "converted", "").cause == ""


def test_a_negative_scale_mirrors_the_range_and_is_quantized():
    """The real op takes -0.1 and restores by it: 12.8 has a code, -13 is clipped at -12.7; N(0, 9) fits as well."""
    x = torch.cat([torch.tensor([12.8, -13.0]), torch.randn(998, generator=torch.Generator().manual_seed(0))])
    row, mirrored = measured_row(x, right, -STEP), measured_row(-x, right, STEP)
    assert (row.status, row.lo, row.hi) == ("quantized", pytest.approx(-12.7), pytest.approx(12.8))
    assert row.clip_fraction == mirrored.clip_fraction == 0.001
    assert row.sqnr_db == pytest.approx(row.expected_db, abs=0.01)
    assert (row.sqnr_db, row.cause) == (mirrored.sqnr_db, mirrored.cause)


def test_scales_restored_along_another_axis_are_numerics():
    """As many rows as columns, so nothing raises."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(-3, -1, 64)
    x = torch.randn(64, 64, generator=generator).clamp(-3, 3) * scale.unsqueeze(1) * 30
    zeros = torch.zeros(64, dtype=torch.int64)
    codes = OPS.quantize_per_channel(x, scale, zeros, 0, -128, 127, torch.int8)
    causes = []
    for axis in (0, 1):
        stats = QuantizerStats("q", Role.WEIGHT, constant=True, mode=Mode.STATIC, output_axis=0)
        restored = OPS.dequantize_per_channel(codes, scale, zeros, axis, -128, 127, torch.int8)
        stats.update(x, codes, restored, qparams(scale.unsqueeze(1), granularity=Granularity.PER_CHANNEL))
        causes.append(stats.row(Case("m", "s", "w", "f"), "converted", "").cause)
    assert causes == ["", "numerics"]
