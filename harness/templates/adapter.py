"""A first model for the harness: replace what it builds, its data and the names of its outputs by yours.

What each function must give is said in `harness.adapter`; `sqnr run -m MODEL` then takes it through every flow.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.adapter import Batch, Size

SIZES = {"small": Size(weights=("seeded",), outputs=("logits",))}


def build(size: str, weights: str, seed: int) -> torch.nn.Module:
    """The float model in eval mode; `weights` is one of the size's kinds, or the path of a checkpoint."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 6 * 6, 10))
        return torch.nn.Sequential(*layers).eval()


def calibration(size: str, seed: int) -> Iterator[Batch]:
    """What observers are shown; other samples than those of `evaluation`."""
    return _images(seed + 1)


def evaluation(size: str, seed: int) -> Iterator[Batch]:
    """What every number is measured on."""
    return _images(seed)


def _images(seed: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(4):
        yield Batch((torch.randn(8, 3, 8, 8, generator=generator),))
