"""Qparams of every dialect's quantize op, read by one table."""

from __future__ import annotations

import pytest
import torch
from torch.fx import Graph
from torchao.quantization.pt2e import _affine_quantization  # noqa: F401  # registers torchao's ops

from harness.measure.qdq import bind, expand_groups, is_dequantize, is_quantize, op_name, read_qparams

DECOMPOSED = torch.ops.quantized_decomposed
X = torch.zeros(4, 6)


def node_of(target, *args):
    """A node of its own graph that calls `target`."""
    graph = Graph()
    return graph.call_function(target, (graph.placeholder("x"), *args))


def qparams(target, *args, codes=torch.int8):
    return read_qparams(bind(node_of(target, *args)), X.to(codes))


def test_per_tensor_bounds_are_scale_times_distance_from_the_zero_point():
    """0.5 x (0 - 10) = -5 and 0.5 x (255 - 10) = 122.5."""
    found = qparams(DECOMPOSED.quantize_per_tensor.default, 0.5, 10, 0, 255, torch.uint8, codes=torch.uint8)
    assert (float(found.lo), float(found.hi)) == (-5.0, 122.5)
    assert (found.granularity, found.dtype, found.quant_max) == ("per_tensor", "uint8", 255)


def test_tensor_overloads_need_no_case_of_their_own():
    args = (torch.tensor(0.5), torch.tensor(10), 0, 255, torch.uint8)
    assert float(qparams(DECOMPOSED.quantize_per_tensor.tensor, *args).hi) == 122.5


def test_per_channel_bounds_broadcast_along_their_axis():
    scales, zeros = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4, dtype=torch.int64)
    found = qparams(DECOMPOSED.quantize_per_channel.default, scales, zeros, 0, -128, 127, torch.int8)
    assert (found.granularity, found.axis, tuple(found.hi.shape)) == ("per_channel", 0, (4, 1))
    assert found.hi.flatten().tolist() == [127.0, 254.0, 381.0, 508.0]


def test_per_token_scales_belong_to_rows():
    scales, zeros = torch.ones(4, 1), torch.zeros(4, 1)
    found = qparams(DECOMPOSED.quantize_per_token.default, scales, zeros, -128, 127, torch.int8)
    assert (found.granularity, tuple(found.scale.shape)) == ("per_token", (4, 1))


def test_grouped_scales_are_repeated_over_their_group():
    scales = torch.tensor([[1.0, 2.0]] * 4)
    found = qparams(DECOMPOSED.quantize_per_channel_group.default, scales, torch.zeros(4, 2), -8, 7, torch.int8, 3)
    assert found.granularity == "per_group"
    assert expand_groups(found.scale, X.shape)[0].tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("block", "shape", "expected"),
    [
        ([4, 6], (1,), "per_tensor"),
        ([1, 6], (4,), "per_channel"),
        ([4, 1], (6,), "per_channel"),
        ([1, 3], (8,), "per_group"),
    ],
)
def test_torchaos_affine_op_tells_its_granularity_by_block_size(block, shape, expected):
    found = qparams(torch.ops.torchao.quantize_affine.default, block, torch.ones(shape), None, torch.int8)
    assert found.granularity == expected
    assert (found.quant_min, found.quant_max) == (-128, 127)


def test_ops_are_told_apart_and_in_place_names_lose_their_underscore():
    quantize = node_of(DECOMPOSED.quantize_per_tensor.default, 1.0, 0, 0, 255, torch.uint8)
    dequantize = node_of(DECOMPOSED.dequantize_per_tensor.default, 1.0, 0, 0, 255, torch.uint8)
    assert (is_quantize(quantize), is_dequantize(quantize)) == (True, False)
    assert (is_quantize(dequantize), is_dequantize(dequantize)) == (False, True)
    assert op_name(node_of(torch.ops.aten.relu_.default)) == "relu"


@pytest.mark.parametrize("op", ["quantize_affine_float8_non_decomposed", "dequantize_affine_float8_non_decomposed"])
def test_float8_codes_range_over_their_type(op):
    """float8_e4m3fn ends at 448, so a scale of 0.5 at 224."""
    found = qparams(getattr(torch.ops.torchao, op).default, torch.tensor([[0.5]]), codes=torch.float8_e4m3fn)
    assert (found.dtype, float(found.lo), float(found.hi)) == ("float8_e4m3fn", -224.0, 224.0)


def test_a_dequantize_of_torchao_is_read_by_the_type_of_its_codes_not_of_its_result():
    args = ([4, 6], torch.ones(1), None, torch.int8, None, None, torch.float32)
    found = qparams(torch.ops.torchao.dequantize_affine.default, *args)
    assert (found.dtype, found.quant_min, found.quant_max) == ("int8", -128, 127)
