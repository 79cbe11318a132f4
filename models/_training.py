"""One small training loop for the five small models."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional

from . import _digits
from ._seeding import generator

BATCH = 24
_STREAM = 31

Loss = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
"""model, pixels (N, 8, 8), labels (N,) to a scalar."""


def classify(encode: _digits.Encode) -> Loss:
    """Cross entropy of a model that returns class scores; smoothed, so that the logits keep a finite range."""

    def loss(model: torch.nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(*encode(pixels)), labels, label_smoothing=0.05)

    return loss


def fit(
    model: torch.nn.Module, loss: Loss, *, seed: int, epochs: int, lr: float, weight_decay: float = 0.02
) -> torch.nn.Module:
    """Train in place on the training digits and return the model in eval mode.

    AdamW, linear warm-up over a tenth of the steps, then a cosine to zero. Every random number comes from `seed`, so
    one thread with a pinned instruction set gives the same bits again; the caller's global generator is untouched.
    """
    digits = _digits.training()
    stream = generator(seed, _STREAM)
    steps = epochs * (len(digits) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(epochs):
            order = torch.randperm(len(digits), generator=stream)
            for chosen in order[: len(order) // BATCH * BATCH].split(BATCH):
                optimizer.zero_grad()
                loss(model, digits.pixels[chosen], digits.labels[chosen]).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
    return model.eval()


def _rate(step: int, steps: int) -> float:
    warm_up = steps / 10
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm_up) / (steps - warm_up))))
