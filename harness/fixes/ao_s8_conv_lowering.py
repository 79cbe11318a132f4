"""torchao: a convolution with int8 activations is lowered to a kernel that takes only uint8, and the program raises.

The patterns in `quantization/pt2e/inductor_passes/x86.py` of torchao 0.18 do not look at the activations' type; with
Arm's configuration (int8 activations, weights per channel) every convolution becomes `onednn.qconv_pointwise`, which
on x86 raises "Input tensor should have uint8" when the compiled model first runs (torch 2.14,
`aten/src/ATen/native/quantized/cpu/qconv.cpp`). Linears take either type.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from harness.fixes import Fix, Reading
from harness.records import Stage


def _probe() -> Reading:
    import torch

    from harness.fixes._int8 import lowered_kernels

    torch.manual_seed(0)
    return lowered_kernels("arm-static-s8s8f32-per-channel", torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3)).eval())


def _repair() -> AbstractContextManager[None]:
    from harness.fixes import _int8

    return _int8.rewriting(_int8.convolved_as_uint8)


FIX = Fix(
    name="ao-s8-conv-lowering",
    link="https://github.com/pytorch/ao/pull/2391",
    package="torchao",
    known=("0.18.0",),
    flows=("arm-static-s8s8f32-per-channel",),
    stage=Stage.LOWER,
    measures="int8 kernels of a compiled Conv2d, int8 activations",
    probe=_probe,
    repair=_repair,
)
