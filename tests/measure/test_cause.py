"""Which measure shows damage: each rule on numbers a reader can redo, and on real quantize ops."""

from __future__ import annotations

import math

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers quantized_decomposed ops)

from harness.measure.cause import lowered_cause, output_cause, quantizer_cause
from harness.measure.qdq import QParams
from harness.measure.quantizer_stats import QuantizerStats
from harness.records import Case, Granularity, Mode, Role
from tests.rows import no_number, output_row, quantizer_row

UNIFORM = torch.linspace(-1, 1, 4096)
"""Power 1/3; with a step of 2/255 rounding leaves (2/255)^2 / 12 of it: 52.9 dB."""
ops = torch.ops.quantized_decomposed


def cause(x: torch.Tensor, scale: float, zero_point: int = 0, shift: float = 0.0) -> str:
    """The cause of a per-tensor int8 activation quantizer of `x`; `shift` is added to what it restores."""
    stats = QuantizerStats("q", Role.ACTIVATION, constant=False, mode=Mode.STATIC)
    codes = ops.quantize_per_tensor(x, scale, zero_point, -128, 127, torch.int8)
    restored = ops.dequantize_per_tensor(codes, scale, zero_point, -128, 127, torch.int8) + shift
    layout = [1] * x.ndim
    qparams = QParams(
        torch.tensor(scale, dtype=torch.float64).reshape(layout),
        torch.tensor(zero_point).reshape(layout),
        *(-128, 127, "int8", Granularity.PER_TENSOR, None),
    )
    stats.update(x, codes, restored, qparams)
    return stats.row(Case("m", "s", "w", "f"), "converted", "").cause


def test_a_range_that_fits_has_no_cause():
    assert cause(UNIFORM, 2 / 255) == ""


def test_a_symmetric_range_for_data_of_one_sign_is_a_choice_not_a_defect():
    """It loses one bit, 6 dB."""
    assert cause(UNIFORM.abs(), 2 / 255) == ""


def test_half_the_range_is_clipping():
    assert cause(UNIFORM, 1 / 255) == "clipping"


def test_a_range_ten_times_too_wide_is_step_size():
    """20 dB lost, all of it rounding."""
    assert cause(UNIFORM, 20 / 255) == "step_size"


def test_a_wide_enough_range_in_the_wrong_place_is_zero_point():
    assert cause(UNIFORM, 2 / 255, zero_point=-100) == "zero_point"


def test_noise_that_neither_clips_nor_rounds_is_numerics():
    assert cause(UNIFORM, 2 / 255, shift=0.1) == "numerics"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"expected_db": 31.1}, "numerics"),  # 1.1 dB worse than a correct quantizer
        ({"expected_db": 30.9}, ""),
        ({"expected_db": 28.9}, "numerics"),  # better: its codes are finer than it says
        ({"sqnr_db": None, "expected_db": 30.0}, "numerics"),  # finite values and qparams, and no number
        ({"sqnr_db": 81.0, "expected_db": 160.0}, ""),  # values that lie on codes, to float32's last bits
        ({"sqnr_db": 79.0, "expected_db": 160.0}, "numerics"),
    ],
)
def test_what_is_far_from_its_prediction_is_numerics(change, found):
    assert quantizer_cause(quantizer_row(**{"sqnr_db": 30.0, **change}), None, None) == found


@pytest.mark.parametrize(("worst", "found"), [(29.0, "axis"), (31.0, "")])
def test_scales_along_another_axis_than_the_output_channels_show_in_the_worst_channel(worst, found):
    row = quantizer_row(role="weight", granularity="per_channel", axis=0, sqnr_db=40.0, sqnr_min_db=worst)
    assert quantizer_cause(row, None, output_axis=1) == found
    assert quantizer_cause(row, None, output_axis=0) == ""


def test_a_scale_that_is_not_finite_is_nonfinite():
    assert quantizer_cause(quantizer_row(status="nonfinite"), None, None) == "nonfinite"


def test_a_range_is_fitted_from_zero_so_values_far_from_it_are_no_defect_and_clipped_constants_are():
    """Values in [1, 1.1] with the range [0, 1.1] that observers choose; a constant of 10 clipped at 1."""
    assert cause(1 + 0.1 * UNIFORM.abs(), 1.1 / 255, zero_point=-128) == ""
    assert cause(torch.full((16,), 0.3), 2 / 255) == ""
    assert cause(torch.full((16,), 10.0), 2 / 255) == "clipping"
    assert cause(torch.zeros(16), 2 / 255) == ""


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (output_row(point="prepared", sqnr_db=99.0), "folding"),
        (output_row(point="prepared", sqnr_db=100.0), ""),
        (output_row(point="float", sqnr_db=99.0), "numerics"),
        (output_row(sqnr_db=-5.0), ""),
        (no_number("nonfinite_actual"), "nonfinite"),
        (no_number("nonfinite_reference"), "nonfinite"),
    ],
)
def test_an_output_without_hurt_quantizers(row, found):
    assert output_cause(row, ()) == found


@pytest.mark.parametrize(("loss", "found"), [(2.9, ""), (3.1, "numerics")])
def test_a_loss_in_lowering_without_a_hurt_quantizer_is_numerics(loss, found):
    lowered = output_row(point="lowered", sqnr_db=30.0 - loss)
    assert lowered_cause(lowered, (), output_row(sqnr_db=30.0), ()) == found


def test_what_lowering_lost_is_not_put_down_to_a_quantizer_that_was_as_bad_before():
    old = quantizer_row(quantizer="a", cause="clipping", sqnr_db=5.0)
    hoisted = quantizer_row(quantizer="b", point="lowered", cause="step_size", sqnr_db=15.0)
    lowered, converted = output_row(point="lowered", sqnr_db=10.0), output_row(sqnr_db=30.0)
    assert lowered_cause(lowered, (old,), converted, (old,)) == "numerics"
    assert lowered_cause(lowered, (old, hoisted), converted, (old,)) == "step_size"
    assert lowered_cause(output_row(point="lowered", sqnr_db=29.0), (old,), converted, (old,)) == "clipping"


def test_the_worst_quantizer_explains_an_output_and_a_bare_edge_only_when_nothing_else_does():
    clipped = quantizer_row(quantizer="a", cause="clipping", sqnr_db=5.0)
    coarse = quantizer_row(quantizer="b", cause="step_size", sqnr_db=20.0)
    bare = quantizer_row(quantizer="c", status="unquantized", cause="unquantized", sqnr_db=None)
    assert output_cause(output_row(), (coarse, clipped, bare, quantizer_row())) == "clipping"
    assert output_cause(output_row(), (bare,)) == "unquantized"


def test_the_rounding_noise_that_the_rules_start_from():
    x = UNIFORM.double()
    codes = ops.quantize_per_tensor(x.float(), 2 / 255, 0, -128, 127, torch.int8)
    error = x.float() - ops.dequantize_per_tensor(codes, 2 / 255, 0, -128, 127, torch.int8)
    measured = 10 * math.log10(float((x**2).mean() / (error.double() ** 2).mean()))
    assert measured == pytest.approx(10 * math.log10(12 * (1 / 3) / (2 / 255) ** 2), abs=0.2)
