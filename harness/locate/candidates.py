"""What can be put right in a graph: the quantizers of a unit, or one layer; ranked by the noise that it makes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.locate.hybrid import Overrides
from harness.locate.scene import Scene
from harness.locate.sources import Range, Source, noise_of, span_of
from harness.locate.units import Unit
from harness.measure.layers import Layer
from harness.records import SQNR_CAP_DB, Cause, QuantizerStatus, Status

_CLEARLY = 0.01
"""Relative difference of two ranges that tells a wide one from a narrow one."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A unit's quantizers, or a layer, and what puts it right; `noise`, the noise over signal it makes, ranks it."""

    kind: str
    names: tuple[str, ...]
    overrides: Overrides
    noise: float
    local_db: float | None
    cause: str
    old: Range | None = None
    new: Range | None = None
    source: str = ""
    unit: Unit | None = None


def quantizer_candidates(scene: Scene, source: Source) -> list[Candidate]:
    """The units that a source would change, those that make most noise first."""
    found = [_of_unit(scene, source, unit) for unit in scene.quantized.quantizers.units]
    return sorted((one for one in found if one is not None), key=lambda one: -one.noise)


def _of_unit(scene: Scene, source: Source, unit: Unit) -> Candidate | None:
    found = source.replacement(unit)
    if found is None:
        return None
    rows = [row for row in map(scene.quantized.rows.get, unit.names) if row is not None]
    old = span_of(rows)
    broken = any(row.status == QuantizerStatus.NONFINITE for row in rows)
    noise = math.inf if broken else max(map(noise_of, rows), default=0.0) - found.noise
    levels = [row.sqnr_db for row in rows if row.sqnr_db is not None]
    cause = next((row.cause for row in rows if row.cause), "") or _told(old, found.new)
    return Candidate(
        *("quantizer", unit.names, found.overrides, noise, min(levels, default=None), cause, old, found.new),
        unit=unit,
    )


def layer_candidates(scene: Scene) -> list[Candidate]:
    """The layers that lose anything by themselves and can be left in float, the worst first."""
    floats = scene.float_layers()
    found = [
        Candidate(
            *("layer", (layer.name,), floats[layer.name], _noise(layer), layer.local_db),
            *(Cause.NUMERICS, None, None, layer.source),
        )
        for layer in scene.layers.layers
        if layer.name in floats and _noise(layer) > 0
    ]
    return sorted(found, key=lambda one: -one.noise)


def _noise(layer: Layer) -> float:
    if layer.local_status in (Status.NONFINITE_ACTUAL, Status.MISMATCH, Status.ZERO_SIGNAL):
        return math.inf
    return 0.0 if layer.local_db is None or layer.local_db >= SQNR_CAP_DB else float(10 ** (-layer.local_db / 10))


def _told(old: Range | None, new: Range | None) -> str:
    """What a change of range says where the quantizer's own numbers do not: too narrow, too wide, or aside."""
    if old is None or new is None:
        return ""
    before, after = old[1] - old[0], new[1] - new[0]
    if before < (1 - _CLEARLY) * after:
        return Cause.CLIPPING
    if before > (1 + _CLEARLY) * after:
        return Cause.STEP_SIZE
    return Cause.ZERO_POINT if abs(old[0] - new[0]) > _CLEARLY * after else ""
