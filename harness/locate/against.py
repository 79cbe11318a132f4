"""Where right values are taken from, for one case: what was asked for, or the best there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch.fx import Node

from harness import fixes as fix_table
from harness.errors import UsageError, unknown_name
from harness.fixes.states import RepairError
from harness.locate.hybrid import Override
from harness.locate.qparams import AcceptedSource, FittedSource, Observed, watched
from harness.locate.scene import Place, Scene, level
from harness.locate.sources import FloatSource, Source, VariantSource
from harness.pipeline import Pipeline
from harness.records import RELEASED, OutputRow, Point, QuantizerRow
from harness.stages import StageError
from harness.subject import Subject

BASELINE, FITTED, CONVERTED = "baseline", "fitted", "converted"
WORTH_DB = 0.1
"""A difference below this is not looked into, and another source is tried: the nightly suite allows 0.25 dB."""
FITTED_WORTH_DB = 0.5
"""What fitting every range must gain: observers that clip on purpose lose less than this against the extremes."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a baseline holds of a point: qparams by quantizer name, and SQNR by output."""

    quantizers: Mapping[str, QuantizerRow] = field(default_factory=dict)
    outputs: Mapping[str, OutputRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aim:
    """A source of right values, its name, and the SQNR it should give where that is known."""

    name: str
    source: Source
    levels: Mapping[str, float] = field(default_factory=dict)

    def gain(self, output: str, now: float) -> float:
        """How much better the aim is than an output is now, dB; 0 where that is not known."""
        return self.levels[output] - now if output in self.levels else 0.0


class Against:
    """Finds the source for one scene."""

    def __init__(self, pipeline: Pipeline, subject: Subject, scene: Scene, accepted: Accepted | None) -> None:
        self._pipeline, self._subject, self._scene = pipeline, subject, scene
        self._accepted = accepted
        self._known: dict[str, Aim] = {}

    def find(self, wanted: str | None, output: str | None = None) -> Aim:
        """The source called `wanted`: a variant, `baseline`, `converted` or `fitted`; else the first that is better.

        Better for `output`, or without one for any output. Tried are the variants with most fixes, the baseline, for a
        lowered graph the converted one, and fitted ranges. Raises `UsageError` for a name that is none of these, or
        that this case has not.
        """
        place = self._scene.place
        variants = fix_table.variants(place.flow.name, fix_table.installed())
        choices = [*(name for name in variants if name != place.case.variant), BASELINE, CONVERTED, FITTED]
        if wanted is not None:
            if wanted not in choices:
                raise unknown_name("source to locate against", wanted, choices)
            return self._named(wanted)
        tried = sorted((one for one in choices if one.startswith("+")), key=lambda name: -name.count("+"))
        for name in (*(tried if place.case.variant == RELEASED else ()), BASELINE, CONVERTED):
            if self._offered(name):
                aim = self._try(name)
                if aim is not None and self._worth(aim, output):
                    return aim
        return self._named(FITTED)

    def _offered(self, name: str) -> bool:
        if name == BASELINE:
            return self._accepted is not None
        return name != CONVERTED or self._scene.place.point == Point.LOWERED

    def _try(self, name: str) -> Aim | None:
        try:
            return self._named(name)
        except (StageError, RepairError):
            return None  # a variant that fails is no help here; its own rows say so

    def _worth(self, aim: Aim, output: str | None) -> bool:
        rows = self._scene.outputs.items()
        return any(aim.gain(name, level(row)) >= WORTH_DB for name, row in rows if output in (None, name))

    def _named(self, name: str) -> Aim:
        if name not in self._known:
            self._known[name] = self._make(name)
        return self._known[name]

    def _make(self, name: str) -> Aim:
        place = self._scene.place
        if name == FITTED:
            return self._fitted()
        if name == BASELINE:
            if self._accepted is None:
                raise UsageError(f"{place.case} at {place.point} has no baseline; use --against {FITTED}")
            levels = {output: level(row) for output, row in self._accepted.outputs.items()}
            return Aim(name, AcceptedSource(self._scene.quantized, self._accepted.quantizers), levels)
        if name == CONVERTED:
            if place.point != Point.LOWERED:
                raise UsageError(f"{place.point} is not measured after {CONVERTED}; only lowered graphs are")
            return self._other(name, replace(place, point=Point.CONVERTED))
        fixes = fix_table.of_variant(name, fix_table.installed())
        return self._other(name, replace(place, case=replace(place.case, variant=name), fixes=fixes))

    def _other(self, name: str, place: Place) -> Aim:
        other = Scene(self._pipeline, self._subject, place)
        self._scene.shared_passes += 1
        levels = {output: level(row) for output, row in other.outputs.items()}
        return Aim(name, VariantSource(self._scene.quantized, other.quantized), levels)

    def _fitted(self) -> Aim:
        """Ranges of the float graph's own values: one more pass, with everything in float."""
        quantized = self._scene.quantized
        source = FloatSource(quantized)
        floats: dict[Node, Override] = {}
        for unit in quantized.quantizers.units:
            found = source.replacement(unit)
            floats |= dict(found.overrides) if found is not None else {}
        seen: dict[Node, Observed] = {}
        self._scene.observe(watched(quantized, floats, seen))
        return Aim(FITTED, FittedSource(quantized, seen))
