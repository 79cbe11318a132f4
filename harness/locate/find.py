"""The smallest set of quantizers, or of layers, that explains what an output lost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from harness.locate.against import FITTED_WORTH_DB, WORTH_DB, Aim
from harness.locate.hybrid import Overrides
from harness.locate.scene import Scene, level
from harness.locate.search import Budget, Found, smallest
from harness.locate.sources import Range, noise_of, range_of
from harness.locate.units import Unit
from harness.located import Culprit, LayerLevel, Located
from harness.measure.layers import Layer, LayerReport
from harness.records import SQNR_CAP_DB, Cause, QuantizerRow, QuantizerStatus, Status

ENOUGH = 0.9
"""Share of the difference that the culprits explain."""
MOST_PASSES = 20.0
"""Passes of one graph that locating may cost beyond measuring: ten of the float and the quantized graph together."""
_SUSPECTS = 3
_NUMERICS = "no quantizer's qparams explain it: the ops compute something else"
_CLEARLY = 0.01
"""Relative difference of two ranges that tells a wide one from a narrow one."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """What can be put right: a unit's quantizers, or a layer. `noise`, the noise that it makes, ranks it."""

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


class Finder:
    """Looks for the culprits of a scene's outputs; what was asked for one output is known for all."""

    def __init__(self, scene: Scene, aim: Aim) -> None:
        self._scene, self._aim = scene, aim
        self._layers: LayerReport = scene.layers()
        units = scene.quantized.quantizers.units
        found = [candidate for candidate in map(self._of_unit, units) if candidate is not None]
        self._quantizers = sorted(found, key=lambda one: -one.noise)
        self._by_layer: list[Candidate] | None = None
        self.members: dict[str, tuple[Candidate, ...]] = {}
        """Of each output that was looked into: what was put right, the highest ranked first."""

    @property
    def layers(self) -> LayerReport:
        """Every layer against the float graph."""
        return self._layers

    def worst(self) -> str:
        """The output that the aim would change most; where it knows of none, the one that is worst."""
        now = {output: level(row) for output, row in self._scene.outputs.items()}
        return max(now, key=lambda output: (self._aim.gain(output, now[output]), -now[output]))

    def find(self, output: str) -> Located:
        """What explains an output's loss. At most `MOST_PASSES` passes, those made already counted."""
        now = level(self._scene.outputs[output])
        pool, best, remark = self._pool(output, now)
        target = self._aim.levels.get(output, best)
        if pool:
            needed = ENOUGH * (target - now)
            budget = Budget(int(MOST_PASSES - self._scene.passes))
            found = smallest(pool, lambda few: self._with(few, output) - now >= needed, budget)
        else:
            found = Found(self._suspects(output, now), minimal=True)
        explained = self._with(frozenset(found.members), output) if found.members else now
        self.members[output] = found.members
        gain = target - now
        return self._located(
            output,
            other_db=_decibels(target),
            explained_db=_decibels(explained),
            explained=min(1.0, (explained - now) / gain) if gain > 0 else None,
            minimal=found.minimal,
            culprits=tuple(self._culprits(found, output, now)),
            remark=remark,
        )

    def _pool(self, output: str, now: float) -> tuple[list[Candidate], float, str]:
        """The candidates that together explain enough, the SQNR they give, and a word where there are none."""
        target = self._aim.levels.get(output)
        best = self._with(frozenset(self._quantizers), output) if self._quantizers else now
        if target is None:  # fitted ranges: what they give is what there is to explain
            if best - now >= FITTED_WORTH_DB:
                return self._quantizers, best, ""
            return [], best, f"fitting every range changes {best - now:+.2f} dB: no range is much at fault"
        if target - now < WORTH_DB:
            return [], target, f"{self._aim.name} is {target - now:+.2f} dB away: nothing to explain"
        needed = ENOUGH * (target - now)
        if best - now >= needed:
            return self._quantizers, best, ""
        layers = self._damaged_layers()
        for pool, remark in ((layers, _NUMERICS), ([*self._quantizers, *layers], "")):
            best = self._with(frozenset(pool), output) if pool else now
            if best - now >= needed:
                return pool, best, remark
        return [], best, f"quantizers and layers put right give {best - now:+.2f} of {target - now:+.2f} dB"

    def _suspects(self, output: str, now: float) -> tuple[Candidate, ...]:
        """Where nothing is worth explaining: of the quantizers that make most noise the one that gains most alone."""
        gains = {one: self._with(frozenset({one}), output) - now for one in self._quantizers[:_SUSPECTS]}
        best = max(gains, key=gains.__getitem__, default=None)
        return () if best is None or not gains[best] > 0 else (best,)

    def _with(self, few: frozenset[Candidate], output: str) -> float:
        overrides = {node: one for candidate in few for node, one in candidate.overrides.items()}
        key = [(self._aim.name, candidate.kind, candidate.names) for candidate in few]
        return level(self._scene.what_if(overrides, key).get(output))

    def _of_unit(self, unit: Unit) -> Candidate | None:
        found = self._aim.source.replacement(unit)
        if found is None:
            return None
        rows = [row for row in map(self._scene.quantized.rows.get, unit.names) if row is not None]
        old = _span(rows)
        broken = any(row.status == QuantizerStatus.NONFINITE for row in rows)
        noise = math.inf if broken else max(map(noise_of, rows), default=0.0) - found.noise
        levels = [row.sqnr_db for row in rows if row.sqnr_db is not None]
        cause = next((row.cause for row in rows if row.cause), "") or _told(old, found.new)
        return Candidate(
            *("quantizer", unit.names, found.overrides, noise, min(levels, default=None), cause, old, found.new),
            unit=unit,
        )

    def _damaged_layers(self) -> list[Candidate]:
        if self._by_layer is None:
            floats = self._scene.float_layers()
            self._by_layer = sorted(
                (
                    Candidate(
                        *("layer", (layer.name,), floats[layer.name], _noise(layer), layer.local_db),
                        *(Cause.NUMERICS, None, None, layer.source),
                    )
                    for layer in self._layers.layers
                    if layer.name in floats and _noise(layer) > 0
                ),
                key=lambda one: -one.noise,
            )
        return self._by_layer

    def _culprits(self, found: Found[Candidate], output: str, now: float) -> Iterable[Culprit]:
        """The members, those that gain most alone first."""
        told = []
        for member in found.members:
            affordable = len(found.members) == 1 or self._scene.passes < MOST_PASSES
            alone = self._with(frozenset({member}), output) - now if affordable else None
            told.append((alone, member))
        told.sort(key=lambda one: -(one[0] if one[0] is not None else -SQNR_CAP_DB))
        for alone, member in told:
            yield Culprit(
                kind=member.kind,  # type: ignore[arg-type]
                names=member.names,
                cause=member.cause,  # type: ignore[arg-type]
                old=member.old,
                new=member.new,
                local_db=member.local_db,
                alone_db=alone,
                source=member.source,
                readers=self._scene.readers(member.unit) if member.unit is not None else (),
            )

    def _located(self, output: str, **found: object) -> Located:
        place, row = self._scene.place, self._scene.outputs[output]
        return Located(
            **asdict(place.case),
            point=place.point,
            output=output,
            against=self._aim.name,
            sqnr_db=row.sqnr_db,
            passes=self._scene.passes,
            layers=tuple(map(_level_of, self._layers.layers)),
            only_float=self._layers.only_reference,
            only_quantized=self._layers.only_actual,
            **found,  # type: ignore[arg-type]
        )


def _noise(layer: Layer) -> float:
    """Noise over signal that a layer makes by itself."""
    if layer.local_status in (Status.NONFINITE_ACTUAL, Status.MISMATCH, Status.ZERO_SIGNAL):
        return math.inf
    return 0.0 if layer.local_db is None or layer.local_db >= SQNR_CAP_DB else float(10 ** (-layer.local_db / 10))


def _span(rows: Iterable[QuantizerRow]) -> Range | None:
    ranges = [found for found in map(range_of, rows) if found is not None]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


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


def _decibels(level_db: float) -> float | None:
    return None if level_db <= -SQNR_CAP_DB else min(level_db, SQNR_CAP_DB)


def _level_of(layer: Layer) -> LayerLevel:
    names = ("name", "op", "actual_op", "source", "status", "sqnr_db", "worst_channel_db", "local_db", "samples")
    return LayerLevel(**{name: getattr(layer, name) for name in names})
