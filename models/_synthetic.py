"""Inputs made from a seed for the full sizes, which have no data set in the repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.nn import functional

from harness.adapter import Batch

from ._seeding import generator

BATCH = 2
CALIBRATION_BATCHES = 2
EVALUATION_BATCHES = 4
IMAGE_SIDE = 224

_CALIBRATION = 21
_EVALUATION = 22
_OCTAVES = ((4, 1.0), (14, 0.6), (56, 0.35))
"""Grid sides and amplitudes: power falls with spatial frequency, as it does in photographs."""

Draw = Callable[[torch.Generator], tuple[torch.Tensor, ...]]
"""One batch of inputs from a generator."""


def calibration(draw: Draw, seed: int) -> Iterator[Batch]:
    """Two batches for the observers, from a stream that evaluation never draws from."""
    return _batches(draw, generator(seed, _CALIBRATION), CALIBRATION_BATCHES)


def evaluation(draw: Draw, seed: int) -> Iterator[Batch]:
    """Four batches to measure on."""
    return _batches(draw, generator(seed, _EVALUATION), EVALUATION_BATCHES)


def _batches(draw: Draw, stream: torch.Generator, count: int) -> Iterator[Batch]:
    for _ in range(count):
        yield Batch(draw(stream))


def images(stream: torch.Generator, count: int = BATCH) -> tuple[torch.Tensor, ...]:
    """(count, 3, 224, 224) of zero mean and unit variance: a smooth random field plus fine noise.

    White noise would average out in the first strided convolution and leave the deeper layers almost constant.
    """
    side = IMAGE_SIDE
    field = 0.1 * torch.randn(count, 3, side, side, generator=stream)
    for grid, amplitude in _OCTAVES:
        coarse = amplitude * torch.randn(count, 3, grid, grid, generator=stream)
        field += functional.interpolate(coarse, size=(side, side), mode="bilinear", align_corners=False)
    return ((field - field.mean()) / field.std(),)
