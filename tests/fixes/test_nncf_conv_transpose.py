"""NNCF's channel axis for transposed convolutions, on the real package; and the seams of both NNCF repairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from harness.adapter import Batch
from harness.fixes.nncf_conv_transpose_axis import FIX as AXIS
from harness.fixes.nncf_mul_parameter import FIX as MUL
from harness.fixes.seams import SeamMovedError, replaced
from harness.flows import nncf as flows
from harness.measure.qdq import bind, is_dequantize
from harness.records import Cause, Role
from tests.fixes.test_nncf import images, quantized
from tests.lab import adapter, lab
from tests.upstream import needs

needs("nncf", "executorch")

torch.set_num_threads(1)


def xnnpack(op) -> Callable[[], object]:
    """XNNPACKQuantizer for one op, as it takes seconds to make the patterns of all others."""

    def quantizer():
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as upstream

        config = upstream.get_symmetric_quantization_config(is_per_channel=True)
        return upstream.XNNPACKQuantizer().set_operator_type(op, config)

    return quantizer


CONV_TRANSPOSE_2D = xnnpack(torch.ops.aten.conv_transpose2d.input)


def test_a_channel_16_times_smaller_loses_four_bits_on_the_wrong_axis():
    """20 log10(16) = 24.1 dB, less what the smaller peaks of the input channels give back: about 3 dB."""
    released = AXIS.probe()
    with AXIS.repair():
        repaired = AXIS.probe()
    assert (released.right, repaired.right) == (False, True)
    assert repaired.value == pytest.approx(released.should, abs=0.01)
    assert repaired.value - released.value == pytest.approx(20 * math.log10(16) - 3, abs=1)
    assert AXIS.probe() == released


@pytest.mark.parametrize(
    ("kind", "op", "size"),
    [
        (nn.ConvTranspose1d, torch.ops.aten.conv_transpose1d.default, (4,)),
        (nn.ConvTranspose2d, torch.ops.aten.conv_transpose2d.input, (4, 4)),
        (nn.ConvTranspose3d, torch.ops.aten.conv_transpose3d.input, (4, 4, 4)),
    ],
)
def test_a_single_output_channel_is_repaired_in_every_dimension(kind, op, size):
    layer, inputs = kind(3, 1, 2).requires_grad_(False), (torch.ones(2, 3, *size),)
    with AXIS.repair():
        graph = quantized(layer, xnnpack(op), inputs)
    axes = [bind(node)["axis"] for node in graph.graph.nodes if is_dequantize(node) and "axis" in bind(node)]
    assert axes == [1]


def test_an_ordinary_convolution_keeps_its_axis():
    layer, inputs = nn.Conv2d(3, 2, 2).requires_grad_(False), (images(),)
    quantizer = xnnpack(torch.ops.aten.conv2d.default)
    released = str(quantized(layer, quantizer, inputs).graph)
    with AXIS.repair():
        assert str(quantized(layer, quantizer, inputs).graph) == released


def test_the_wrong_axis_hides_in_the_output_and_shows_in_the_quantizers_row():
    generator = torch.Generator().manual_seed(0)
    batch = Batch((torch.randn(1, 8, 6, 6, generator=generator),))

    def build() -> nn.Module:
        layer = nn.ConvTranspose2d(8, 2, 8, bias=False).eval().requires_grad_(False)
        sizes = torch.tensor([1.0, 1 / 16]).reshape(1, 2, 1, 1)
        layer.weight.data = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(0)) * sizes
        return layer

    bench = lab(adapter(build, ("y",), lambda _seed: [batch]))
    flow = replace(
        flows.flow("nncf-x86"),
        prepare=partial(flows.prepare, CONV_TRANSPOSE_2D),
        calibrate=partial(flows.quantize, CONV_TRANSPOSE_2D),
    )
    released, repaired = bench.measure(flow), bench.measure(flow, (AXIS,))
    outputs = [result.outputs[-1].sqnr_db for result in (released, repaired)]
    assert abs(outputs[1] - outputs[0]) < 1
    before, after = (
        next(row for row in result.quantizers if row.role == Role.WEIGHT) for result in (released, repaired)
    )
    assert after.sqnr_min_db - before.sqnr_min_db > 20
    assert (before.cause, after.cause) == (Cause.AXIS, "")


# The seams.


@pytest.mark.parametrize("fix", [MUL, AXIS], ids=lambda fix: fix.name)
def test_a_repair_is_undone_after_an_exception(fix):
    before = _stored()
    with pytest.raises(ZeroDivisionError), fix.repair():
        assert 1 / (_stored() == before)
    assert _stored() == before


def test_the_order_of_the_two_repairs_does_not_matter():
    before = _stored()
    for first, second in ((MUL, AXIS), (AXIS, MUL)):
        with first.repair(), second.repair():
            assert MUL.probe().right
    assert _stored() == before


def _stored() -> list[object]:
    return [vars(owner)[name] for owner, name in SEAMS]


def _seams() -> list[tuple[type, str]]:
    with flows.silent_nncf():
        from nncf.experimental.torch.fx.quantization.quantizer.torch_ao_adapter import TorchAOQuantizerAdapter
        from nncf.quantization.algorithms.min_max.algorithm import MinMaxQuantization
        from nncf.quantization.algorithms.min_max.torch_fx_backend import FXMinMaxAlgoBackend
    return [
        (TorchAOQuantizerAdapter, "_get_quantization_points"),
        (MinMaxQuantization, "_get_weight_quantization_target_points"),
        (FXMinMaxAlgoBackend, "get_weight_quantization_axes"),
        (FXMinMaxAlgoBackend, "_get_channel_axis"),
        (FXMinMaxAlgoBackend, "create_quantizer_insertion_command"),
    ]


SEAMS = _seams()


@pytest.mark.parametrize(("owner", "name"), SEAMS, ids=[name for _, name in SEAMS])
def test_another_signature_is_a_moved_seam(owner, name):
    fix = AXIS if owner.__name__ == "FXMinMaxAlgoBackend" else MUL
    with replaced(owner, name, staticmethod(lambda anything: anything)), pytest.raises(SeamMovedError), fix.repair():
        pass
