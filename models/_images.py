"""The batches of every image model: digits for small, synthetic images for full."""

from __future__ import annotations

from collections.abc import Iterable

from harness.adapter import Batch

from . import _digits, _synthetic


def calibration(size: str, seed: int) -> Iterable[Batch]:
    """Training digits for small, synthetic images for full."""
    if size == "small":
        return _digits.calibration(_digits.as_images, seed)
    return _synthetic.calibration(_synthetic.images, seed)


def evaluation(size: str, seed: int) -> Iterable[Batch]:
    """The 360 held-out digits for small, synthetic images for full."""
    if size == "small":
        return _digits.evaluation(_digits.as_images)
    return _synthetic.evaluation(_synthetic.images, seed)
