"""The reference implementation of Vulkan's 4-bit linear never takes off the 8 that packing adds to each code.

`FuseQuantizedOpsTransform` packs codes of -8..7 as nibbles of 0..15. The shaders subtract 8 times the sum of the
inputs (`linear_qcsnw_tiled.glsl`); `linear_qcs4w` in `custom_ops_lib.py`, which golden outputs and accuracy figures
come from, takes the nibbles for the codes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.fixes import Fix, Reading
from harness.fixes._vulkan import fused_layer, reference_wrapped
from harness.records import Stage

if TYPE_CHECKING:
    import torch

    from harness.fixes._vulkan import Reference

_OFFSET = 8


def _probe() -> Reading:
    return fused_layer(in_features=64)


def _subtracting(found: Reference) -> Reference:
    def linear_qcs4w(x: torch.Tensor, weights_4x2: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return found(x, weights_4x2, scales) - _OFFSET * x.sum(-1, keepdim=True) * scales

    return linear_qcs4w


def _repair() -> AbstractContextManager[None]:
    return reference_wrapped(_subtracting)


FIX = Fix(
    name="vulkan-qcs4w-offset",
    link="https://github.com/pytorch/executorch/blob/v1.5.1/backends/vulkan/custom_ops_lib.py#L164",
    package="executorch",
    known=("1.5.1",),
    flows=("vulkan-4w",),
    stage=Stage.LOWER,
    measures="output of a fused 4-bit Linear(64, 32) against float, SQNR in dB",
    probe=_probe,
    repair=_repair,
)
