"""ConvNeXt of torchvision: depthwise convolutions, LayerNorm, and a LayerScale parameter multiplied into each block.

full is ConvNeXt-Tiny (18 blocks); small is the same class with a short block list. LayerScale is what makes it worth
having here: a parameter operand of a `mul`, which quantizers take for an activation.
"""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models import ConvNeXt_Tiny_Weights, convnext_tiny
from torchvision.models.convnext import CNBlock, CNBlockConfig, ConvNeXt

from harness.adapter import Size

from . import _checkpoints, _digits, _seeding, _training
from ._images import calibration, evaluation

__all__ = ["SIZES", "build", "calibration", "evaluation", "train"]
SIZES = {
    "small": Size(("trained", "seeded"), ("logits",), labelled="logits", cost=2.5),
    "full": Size(("seeded", "pretrained"), ("logits",), cost=2.0, memory=3.5),
}

BLOCK_1_ABSMAX = 0.226632953
BLOCK_1_MEAN_ABS = 0.092455307
"""LayerScale of features.1.0 in the published ConvNeXt-Tiny (ConvNeXt_Tiny_Weights.IMAGENET1K_V1)."""

_STREAM = 41


def build(size: str, weights: str, seed: int) -> nn.Module:
    """ConvNeXt in eval mode: (N, 3, 32, 32) to (N, 10) for small, (N, 3, 224, 224) to (N, 1000) for full."""
    _checkpoints.check_kind("convnext", size, weights, SIZES[size].weights)
    model = _seeding.construct(_small if size == "small" else convnext_tiny, seed)
    if weights == "seeded":
        return _seeded(model, seed)
    return _checkpoints.load(model, "convnext", weights, ConvNeXt_Tiny_Weights.DEFAULT)


def train(seed: int) -> nn.Module:
    """The small model, trained on digits, in eval mode."""
    model = _seeding.construct(_small, seed)
    return _training.fit(model, _training.classify(_digits.as_images), seed=seed, epochs=8, lr=6e-3)


def _small() -> ConvNeXt:
    # At torchvision's LayerScale of 1e-6 a short training never leaves the identity; from 0.03 the channels that matter
    # grow severalfold and the others stay, so the parameter ends with a spread like the published network's.
    blocks = [CNBlockConfig(32, 64, 2), CNBlockConfig(64, None, 2)]
    return ConvNeXt(blocks, layer_scale=0.03, num_classes=_digits.CLASSES)


def _seeded(model: nn.Module, seed: int) -> nn.Module:
    stream = _seeding.generator(seed, _STREAM)
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            _seeding.fan_in_(module, stream)
        elif isinstance(module, nn.LayerNorm):
            _seeding.outlier_gains_(module, stream)
    absmax, mean_abs = BLOCK_1_ABSMAX, BLOCK_1_MEAN_ABS
    for block in model.modules():
        if isinstance(block, CNBlock):
            # A gain of 4 on the last linear makes up for GELU and the scale, so that a block adds a real share.
            last = block.block[5]
            assert isinstance(last, nn.Linear)
            _seeding.fan_in_(last, stream, gain=4.0)
            _seeding.layer_scale_(block.layer_scale, stream, absmax=absmax, mean_abs=mean_abs)
            # The later blocks vary about block 1: means of 0.05 to 0.15, ratios of 2.3 to 6.
            mean_abs, ratio = (float(x) for x in torch.rand(2, generator=stream))
            mean_abs, ratio = 0.05 + 0.1 * mean_abs, 2.3 + 3.7 * ratio
            absmax = mean_abs * ratio
    return model.eval()
