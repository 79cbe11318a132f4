"""torchao: weights quantized per tensor, all that Arm's default offers, are never lowered to int8 kernels.

Upstream: pytorch/ao pull request 2391. The patterns in `quantization/pt2e/inductor_passes/x86.py` of torchao 0.18,
which Arm's quantizer shares, look for a per-channel dequantize in front of a convolution's or linear's weight.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.fixes import Fix, Reading
from harness.records import Stage

if TYPE_CHECKING:
    import torch


def _layers() -> torch.nn.Module:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 4 * 4, 8)).eval()


def _probe() -> Reading:
    from harness.fixes._int8 import lowered_kernels

    return lowered_kernels("arm-static-s8s8f32-per-tensor", _layers())


def _repair() -> AbstractContextManager[None]:
    from harness.fixes import _int8

    needed = () if _int8.kernels_take_int8_activations() else (_int8.convolved_as_uint8,)
    return _int8.rewriting(_int8.weights_per_channel, *needed)


FIX = Fix(
    name="arm-per-tensor-lowering",
    link="https://github.com/pytorch/ao/pull/2391",
    package="torchao",
    known=("0.18.0",),
    flows=("arm-*-per-tensor",),
    stage=Stage.LOWER,
    measures="int8 kernels of a compiled Conv2d and Linear, weights per tensor",
    probe=_probe,
    repair=_repair,
)
