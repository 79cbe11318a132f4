"""Branches that slice and select parts of one packed tensor with very different ranges.

Rows 0 to side-1 of the packed tensor hold values in [-1, 1.7]; the last two rows hold values up to 100. One scale for
the whole tensor costs either branch dearly: a step of 100/255 leaves the narrow values seven codes, and a range of
[-1, 1.7] clips nearly every wide value. A pass that moves a quantize op from the branches up to the packed tensor must
therefore not merge their qparams, and each branch's linear reads its slice directly so that such a pass applies.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

from harness.adapter import Batch, Size

from . import _checkpoints, _digits, _seeding, _synthetic, _training

SIZES = {
    "small": Size(("trained", "seeded"), ("digit", "centre", "quadrants"), labelled="digit"),
    "full": Size(("seeded",), ("digit", "centre", "quadrants")),
}

LOW, HIGH = -1.0, 1.7
"""Range of the narrow rows."""

WIDE = 100.0
"""Largest value of the wide rows: the ink of a row or column in per cent of a full one."""

_FULL_SIDE = 32
_FULL_BATCH = 32
_STREAM = 81


class SliceNet(nn.Module):
    """(N, side + 2, side) to digit (N, 10), centre (N, 4), quadrants (N, 4).

    `digit` reads the narrow rows alone, `centre` the two wide rows alone, `quadrants` both.
    """

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.side = side
        self.narrow = nn.Linear(side, width)
        self.rows = nn.Linear(side, width)
        self.columns = nn.Linear(side, width)
        self.narrow_mix = nn.Linear(side * width, 2 * width)
        self.digit = nn.Linear(2 * width, _digits.CLASSES)
        self.centre = nn.Linear(2 * width, 4)
        self.quadrants = nn.Linear(4 * width, 4)

    def forward(self, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Three branches; see the class."""
        lines = functional.relu(self.narrow(packed[:, : self.side]))
        narrow = functional.relu(self.narrow_mix(lines.flatten(1)))
        rows = functional.relu(self.rows(packed.select(1, self.side)))
        columns = functional.relu(self.columns(packed.select(1, self.side + 1)))
        wide = torch.cat((rows, columns), 1)
        return self.digit(narrow), self.centre(wide), self.quadrants(torch.cat((narrow, wide), 1))


def build(size: str, weights: str, seed: int) -> nn.Module:
    """The slice model in eval mode: side 8 and width 32 for small, side 32 and width 256 for full."""
    _checkpoints.check_kind("slices", size, weights, SIZES[size].weights)
    model = _seeding.construct(_small if size == "small" else _full, seed)
    if weights == "seeded":
        return _initialise(model, seed)
    if weights == "trained":
        return _checkpoints.trained(model, "slices")
    return _checkpoints.load_into(model, weights)


def calibration(size: str, seed: int) -> Iterable[Batch]:
    """Packed training digits for small, uniform values of the same ranges for full."""
    if size == "small":
        return _digits.calibration(pack, seed)
    return _synthetic.calibration(_packed, seed)


def evaluation(size: str, seed: int) -> Iterable[Batch]:
    """The 360 packed held-out digits for small, uniform values of the same ranges for full."""
    if size == "small":
        return _digits.evaluation(pack)
    return _synthetic.evaluation(_packed, seed)


def train(seed: int) -> nn.Module:
    """The small model, trained on digits, in eval mode."""
    model = _initialise(_seeding.construct(_small, seed), seed)
    return _training.fit(model, _loss, seed=seed, epochs=30, lr=4e-3)


def pack(pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(N, 8, 8) in 0..16 to (N, 10, 8): pixels in [-1, 1.7], then row sums and column sums in per cent."""
    full = 8 * (_digits.LEVELS - 1)
    narrow = LOW + (HIGH - LOW) * pixels / (_digits.LEVELS - 1)
    sums = torch.stack((pixels.sum(2), pixels.sum(1)), 1) * (WIDE / full)
    return (torch.cat((narrow, sums), 1),)


def targets(pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `centre` and `quadrants` learn, shifted and scaled to about unit variance.

    centre: row and column of the centre of the ink, and its spread about them, in pixels. quadrants: ink of each.
    """
    position = torch.arange(8.0) - 3.5
    ink = pixels.sum((1, 2))[:, None]
    found = []
    for axis in (2, 1):
        share = pixels.sum(axis) / ink
        centre = (share * position).sum(1)
        spread = (share * (position - centre[:, None]) ** 2).sum(1).sqrt()
        found.append((centre, spread))
    (row, row_spread), (column, column_spread) = found
    centre = torch.stack((row, column, 4 * (row_spread - 2.1), 4 * (column_spread - 1.5)), 1)
    blocks = pixels.unflatten(2, (2, 4)).unflatten(1, (2, 4)).sum((2, 4)).flatten(1)
    return centre, (blocks - 78) / 26


def _loss(model: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    digit, centre, quadrants = model(*pack(pixels))
    centre_target, quadrants_target = targets(pixels)
    return (
        functional.cross_entropy(digit, labels, label_smoothing=0.05)
        + functional.mse_loss(centre, centre_target)
        + functional.mse_loss(quadrants, quadrants_target)
    )


def _small() -> SliceNet:
    return SliceNet(side=8, width=32)


def _full() -> SliceNet:
    return SliceNet(side=_FULL_SIDE, width=256)


def _initialise(model: SliceNet, seed: int) -> SliceNet:
    stream = _seeding.generator(seed, _STREAM)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _seeding.fan_in_(module, stream)
    with torch.no_grad():
        for wide in (model.rows, model.columns):
            # Inputs of up to 100 would drown the other branch in `quadrants`.
            wide.weight /= WIDE / 2
    return model


def _packed(stream: torch.Generator) -> tuple[torch.Tensor, ...]:
    side = _FULL_SIDE
    narrow = LOW + (HIGH - LOW) * torch.rand(_FULL_BATCH, side, side, generator=stream)
    wide = WIDE * torch.rand(_FULL_BATCH, 2, side, generator=stream)
    return (torch.cat((narrow, wide), 1),)
