"""ResNet of torchvision: convolutions with BatchNorm to fold, ReLU, and residual additions.

full is ResNet-50; small is a ResNet of BasicBlocks an eighth as wide, so that its checkpoint stays under 1 MB.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torchvision.models import ResNet50_Weights, resnet50
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from harness.adapter import Size

from . import _checkpoints, _digits, _seeding, _synthetic, _training
from ._images import calibration, evaluation

__all__ = ["SIZES", "build", "calibration", "evaluation", "train"]
SIZES = {
    "small": Size(("trained", "seeded"), ("logits",), labelled="logits", cost=1.5),
    "full": Size(("seeded", "pretrained"), ("logits",), cost=1.5, memory=3.0),
}

_STREAM = 51
_STATISTICS = 52
_NARROWER = 8


class NarrowResNet(ResNet):
    """torchvision's ResNet with every stage an eighth as wide; its widths are fixed in the constructor otherwise."""

    def __init__(self, layers: list[int], num_classes: int) -> None:
        super().__init__(BasicBlock, layers, num_classes)
        self.fc = nn.Linear(512 // _NARROWER, num_classes)

    def _make_layer(self, block: Any, planes: int, *args: Any, **kwargs: Any) -> nn.Sequential:
        return super()._make_layer(block, planes // _NARROWER, *args, **kwargs)


def build(size: str, weights: str, seed: int) -> nn.Module:
    """ResNet in eval mode: (N, 3, 32, 32) to (N, 10) for small, (N, 3, 224, 224) to (N, 1000) for full."""
    _checkpoints.check_kind("resnet", size, weights, SIZES[size].weights)
    model = _seeding.construct(_small if size == "small" else resnet50, seed)
    if weights == "seeded":
        return _seeded(model, size, seed)
    return _checkpoints.load(model, "resnet", weights, ResNet50_Weights.DEFAULT)


def train(seed: int) -> nn.Module:
    """The small model, trained on digits, in eval mode."""
    model = _seeding.construct(_small, seed)
    return _training.fit(model, _training.classify(_digits.as_images), seed=seed, epochs=6, lr=5e-3)


def _small() -> ResNet:
    return NarrowResNet([2, 2, 2, 2], _digits.CLASSES)


def _seeded(model: nn.Module, size: str, seed: int) -> nn.Module:
    stream = _seeding.generator(seed, _STREAM)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _seeding.fan_in_(module, stream)
        elif isinstance(module, nn.BatchNorm2d):
            with torch.no_grad():
                module.weight.normal_(0.0, 0.2, generator=stream).exp_()
                module.bias.normal_(0.0, 0.2, generator=stream)
    for module in model.modules():
        if isinstance(module, (BasicBlock, Bottleneck)):
            # Each block adds half a unit to its input: the sum over 16 blocks stays bounded, no block vanishes.
            last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
            with torch.no_grad():
                last.weight *= 0.5
    passes = _seeding.generator(seed, _STATISTICS)
    if size == "small":
        batches = [batch.inputs[0] for batch in _digits.calibration(_digits.as_images, seed)]
    else:
        batches = [_synthetic.images(passes, count=4)[0] for _ in range(2)]
    return _seeding.batchnorm_statistics_(model, batches)
