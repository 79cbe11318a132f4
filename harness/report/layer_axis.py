"""The dB axis of layers: from the worst to what is only rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.located import LayerLevel

_LEAST_DB, _MOST_DB, _STEP_DB = -20.0, 80.0, 10.0
"""Below there is only noise, above differences are rounding."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Ends of the axis, dB, multiples of ten; what lies outside is drawn at its end."""

    low: float
    high: float

    @property
    def margin(self) -> float:
        """Room beyond both ends for the marks that stand on them, dB."""
        return 0.05 * (self.high - self.low)

    def place(self, level: float) -> float:
        """Where a level is drawn."""
        return min(max(level, self.low), self.high)


def axis_of(layers: Iterable[LayerLevel]) -> Axis:
    """From 0 dB, or the lowest level where that is negative, to the first ten above the highest; -20 to 80 at most.

    Layers at 80 dB and more, exact ones among them, do not stretch it: where half of the layers are exact, the others
    are still told apart.
    """
    found = [value for one in layers for value in (one.sqnr_db, one.local_db) if value is not None and value < _MOST_DB]
    high = _STEP_DB * math.ceil((max(found, default=_MOST_DB) + 1) / _STEP_DB)
    low = _STEP_DB * math.floor(min(found, default=0.0) / _STEP_DB)
    return Axis(max(min(low, 0.0), _LEAST_DB), min(max(high, 2 * _STEP_DB), _MOST_DB))
