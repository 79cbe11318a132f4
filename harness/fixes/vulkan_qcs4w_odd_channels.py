"""Vulkan's 4-bit linear cannot take an odd number of input features.

Two codes share a byte, so `pack_4bit_weight_tensor` in `fuse_quantized_ops.py` adds a column to an odd weight;
`linear_qcs4w` in `custom_ops_lib.py` then multiplies an activation of K features with a weight of K + 1.
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


def _probe() -> Reading:
    """On inputs that add up to zero, so that `vulkan-qcs4w-offset`, another defect of the op, cancels."""
    return fused_layer(in_features=63, balanced=True)


def _padding(found: Reference) -> Reference:
    import torch

    def linear_qcs4w(x: torch.Tensor, weights_4x2: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        # A zero feature for the added column, whatever the packed column holds.
        missing = 2 * weights_4x2.shape[-1] - x.shape[-1]
        return found(torch.nn.functional.pad(x, (0, missing)), weights_4x2, scales)

    return linear_qcs4w


def _repair() -> AbstractContextManager[None]:
    return reference_wrapped(_padding)


FIX = Fix(
    name="vulkan-qcs4w-odd-channels",
    link="https://github.com/pytorch/executorch/blob/v1.5.1/backends/vulkan/_passes/fuse_quantized_ops.py#L122",
    package="executorch",
    known=("1.5.1",),
    flows=("vulkan-4w",),
    stage=Stage.LOWER,
    measures="output of a fused 4-bit Linear(63, 32) against float, SQNR in dB",
    probe=_probe,
    repair=_repair,
)
