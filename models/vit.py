"""VisionTransformer of torchvision: a positional embedding parameter that is added, MultiheadAttention, and GELU.

full is ViT-B/16; small is a short one on 16 patches. Half of its linears sit inside `nn.MultiheadAttention`, where a
quantizer that matches modules does not look.
"""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models import ViT_B_16_Weights, vit_b_16
from torchvision.models.vision_transformer import VisionTransformer

from harness.adapter import Size

from . import _checkpoints, _digits, _seeding, _training
from ._images import calibration, evaluation

__all__ = ["SIZES", "build", "calibration", "evaluation", "train"]
SIZES = {
    "small": Size(("trained", "seeded"), ("logits",), labelled="logits"),
    "full": Size(("seeded", "pretrained"), ("logits",), cost=5.0, memory=7.5),
}

_STREAM = 61


def build(size: str, weights: str, seed: int) -> nn.Module:
    """ViT in eval mode: (N, 3, 32, 32) to (N, 10) for small, (N, 3, 224, 224) to (N, 1000) for full."""
    _checkpoints.check_kind("vit", size, weights, SIZES[size].weights)
    model = _seeding.construct(_small if size == "small" else vit_b_16, seed)
    if weights == "seeded":
        return _seeded(model, seed)
    return _checkpoints.load(model, "vit", weights, ViT_B_16_Weights.DEFAULT)


def train(seed: int) -> nn.Module:
    """The small model, trained on digits, in eval mode."""
    model = _seeding.construct(_small, seed)
    with torch.no_grad():
        model.class_token.normal_(0.0, 0.02, generator=_seeding.generator(seed, _STREAM))
    return _training.fit(model, _training.classify(_digits.as_images), seed=seed, epochs=16, lr=2e-3)


def _small() -> VisionTransformer:
    return VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=3,
        num_heads=4,
        hidden_dim=64,
        mlp_dim=128,
        num_classes=_digits.CLASSES,
    )


def _seeded(model: VisionTransformer, seed: int) -> nn.Module:
    stream = _seeding.generator(seed, _STREAM)
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            _seeding.fan_in_(module, stream)
        elif isinstance(module, nn.LayerNorm):
            _seeding.outlier_gains_(module, stream)
        elif isinstance(module, nn.MultiheadAttention):
            _seeding.attention_(module, stream)
    with torch.no_grad():
        model.class_token.normal_(0.0, 0.5, generator=stream)
        model.encoder.pos_embedding.normal_(0.0, 0.3, generator=stream)
    return model
