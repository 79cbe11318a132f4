"""Weights made from a seed in such a way that every layer carries signal.

A freshly constructed network does not: torchvision's ViT head is all zero, ConvNeXt's LayerScale is 1e-6 (its blocks
are near identity), BatchNorm has no statistics. Quantization error in a layer without signal cannot be seen in any
output, so a harness that measured such a network would measure nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)

_PURPOSE = 1_000_003
"""Distance between the streams of two purposes, so that seed 1 of one is not seed 0 of the next."""


def generator(seed: int, purpose: int) -> torch.Generator:
    """A stream of random numbers of its own for each (seed, purpose)."""
    return torch.Generator().manual_seed(seed + purpose * _PURPOSE)


def construct(factory: Callable[[], Module], seed: int) -> Module:
    """Call a constructor that draws from the global generator, seeded, and put that generator back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory().eval()


def fan_in_(layer: nn.Conv2d | nn.Linear, stream: torch.Generator, gain: float = 1.0) -> None:
    """Normal weights of standard deviation gain / sqrt(fan_in): unit inputs give outputs of about `gain`.

    The bias is small but not zero, because a zero bias hides a pass that drops it.
    """
    fan_in = layer.weight[0].numel()
    with torch.no_grad():
        layer.weight.normal_(0.0, gain / math.sqrt(fan_in), generator=stream)
        if layer.bias is not None:
            layer.bias.normal_(0.0, 0.1 * gain, generator=stream)


def outlier_gains_(norm: nn.LayerNorm, stream: torch.Generator) -> None:
    """Gains of about 1, and a few channels 3 to 10 times larger.

    Trained transformers have such channels, and they are what makes per-tensor activation ranges expensive
    (Bondarenko et al. 2021, arXiv:2109.12948).
    """
    channels = norm.weight.numel()
    outliers = torch.randperm(channels, generator=stream)[: max(2, channels // 128)]
    with torch.no_grad():
        norm.weight.normal_(0.0, 0.1, generator=stream).exp_()
        norm.weight[outliers] *= 3 + 7 * torch.rand(len(outliers), generator=stream)
        norm.bias.normal_(0.0, 0.1, generator=stream)


def layer_scale_(scale: nn.Parameter, stream: torch.Generator, *, absmax: float, mean_abs: float) -> None:
    """Log-normal magnitudes with random signs, of exactly this absmax and mean |.| to float32 accuracy.

    For normal z the ratio max / mean of exp(sigma z) grows with sigma from 1 to the number of channels, so sigma
    follows from the ratio by bisection, and a factor then sets the absmax.
    """
    z = torch.randn(scale.numel(), generator=stream, dtype=torch.float64)
    sign = 1.0 - 2.0 * torch.randint(0, 2, (scale.numel(),), generator=stream)
    z -= z.max()
    low, high = 0.0, 50.0
    for _ in range(80):
        sigma = (low + high) / 2
        if float((sigma * z).exp().mean()) > mean_abs / absmax:
            low = sigma
        else:
            high = sigma
    with torch.no_grad():
        scale.copy_((absmax * (sigma * z).exp() * sign).view_as(scale))


def attention_(attention: nn.MultiheadAttention, stream: torch.Generator, sharpness: float = 1.5) -> None:
    """Packed query, key and value weights; a query and key gain over 1, or each head would average all tokens."""
    width = attention.embed_dim
    gain = torch.tensor([sharpness, sharpness, 1.0]).repeat_interleave(width)
    with torch.no_grad():
        attention.in_proj_weight.normal_(0.0, 1 / math.sqrt(width), generator=stream).mul_(gain[:, None])
        attention.in_proj_bias.normal_(0.0, 0.1, generator=stream)


def batchnorm_statistics_(model: Module, batches: Iterable[torch.Tensor]) -> Module:
    """Running statistics as the plain average over a few forward passes, the state a trained network is in."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    with torch.no_grad():
        for batch in batches:
            model(batch)
    model.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model
