"""The 1,797 real 8x8 digits of scikit-learn, split once and for all.

The split does not depend on any seed: the committed weights were trained on the training part, so no seed may ever
move a training digit into the evaluation set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional

from harness.adapter import Batch

from ._seeding import generator

CLASSES = 10
LEVELS = 17
"""Intensities of a pixel: 0 to 16."""

BATCH = 30
CALIBRATION_BATCHES = 4
HELD_OUT_PER_CLASS = 36
"""36 digits of each of the 10 classes: 360 digits, 12 batches of 30."""

_SPLIT_SEED = 20_240_229
_CALIBRATION = 11

Encode = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
"""Pixels (N, 8, 8) in 0..16 to the inputs of a model."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Pixels (N, 8, 8) float32 in 0..16 and labels (N,) int64."""

    pixels: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


@cache
def _split() -> tuple[Digits, Digits]:
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = torch.from_numpy(data.images).float()
    labels = torch.from_numpy(data.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(_SPLIT_SEED))
    rank = torch.empty(len(labels), dtype=torch.long)
    for digit in range(CLASSES):
        members = order[labels[order] == digit]
        rank[members] = torch.arange(len(members))
    held_out = rank[order] < HELD_OUT_PER_CLASS
    parts = (order[~held_out], order[held_out])
    training, evaluation = (Digits(pixels[part], labels[part]) for part in parts)
    return training, evaluation


def training() -> Digits:
    """The 1,437 digits that training and calibration may see."""
    return _split()[0]


def held_out() -> Digits:
    """The 360 digits that only evaluation sees."""
    return _split()[1]


def calibration(encode: Encode, seed: int) -> Iterator[Batch]:
    """4 batches of 30 different training digits, drawn with `seed`."""
    digits = training()
    order = torch.randperm(len(digits), generator=generator(seed, _CALIBRATION))
    for chosen in order[: CALIBRATION_BATCHES * BATCH].split(BATCH):
        yield Batch(encode(digits.pixels[chosen]), digits.labels[chosen])


def evaluation(encode: Encode) -> Iterator[Batch]:
    """The 12 batches of held-out digits, the same for every seed."""
    digits = held_out()
    for chosen in torch.arange(len(digits)).split(BATCH):
        yield Batch(encode(digits.pixels[chosen]), digits.labels[chosen])


def as_images(pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(N, 8, 8) to (N, 3, 32, 32), mean about 0 and standard deviation about 1.

    The three channels are centred differently, as published ImageNet preprocessing does, so that a per-tensor
    activation range is not trivially symmetric.
    """
    grey = functional.interpolate(pixels[:, None] / 16, size=(32, 32), mode="bilinear", align_corners=False)
    mean = torch.tensor([0.31, 0.29, 0.26]).view(1, 3, 1, 1)
    std = torch.tensor([0.33, 0.32, 0.35]).view(1, 3, 1, 1)
    return ((grey.expand(-1, 3, -1, -1) - mean) / std,)
