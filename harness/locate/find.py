"""The smallest set of quantizers, or of layers, that explains what an output lost."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property

from harness.locate.against import FITTED_WORTH_DB, WORTH_DB, Aim
from harness.locate.candidates import Candidate, layer_candidates, quantizer_candidates
from harness.locate.scene import Scene, level
from harness.locate.search import Budget, Found, smallest
from harness.located import Culprit, LayerLevel, Located
from harness.measure.layers import Layer
from harness.records import SQNR_CAP_DB, OutputRow, Status

ENOUGH = 0.9
"""Share of the difference that the culprits explain."""
MOST_PASSES = 20.0
"""Passes of one graph that locating an output may cost beyond measuring: ten of both graphs together."""
_SUSPECTS = 3
_NUMERICS = "no quantizer's qparams explain it: the ops compute something else"
_UNTOLD = (Status.NONFINITE_REFERENCE, Status.ZERO_SIGNAL, Status.EMPTY)
"""Statuses of outputs whose loss no quantizer can have made, or that have none."""


class Finder:
    """Looks for the culprits of a scene's outputs by one source of right values; what was asked once is known."""

    def __init__(self, scene: Scene, aim: Aim) -> None:
        self._scene, self._aim = scene, aim
        self._report = scene.layers
        self._shared = scene.shared_passes
        self._quantizers = quantizer_candidates(scene, aim.source)
        self.members: dict[str, tuple[Candidate, ...]] = {}
        """Of each output that was looked into: its culprits, in the order of the record."""

    @cached_property
    def _layers(self) -> list[Candidate]:
        return layer_candidates(self._scene)

    def worst(self) -> str:
        """The output that the aim would change most; where it knows of none, the one that is worst."""
        rows = self._scene.outputs
        able = {output: level(row) for output, row in rows.items() if row.status not in _UNTOLD}
        now = able or {output: level(row) for output, row in rows.items()}
        return max(now, key=lambda output: (self._aim.gain(output, now[output]), -now[output]))

    def find(self, output: str) -> Located:
        """What explains an output's loss.

        At most `MOST_PASSES` passes: its own, and those that all outputs share, layers and the source of right values.
        """
        before = self._scene.passes
        row = self._scene.outputs[output]
        now = level(row)
        pool, best, remark = self._pool(output, row)
        target = self._aim.levels.get(output, best)
        if pool:
            needed = _needed(now, target)
            budget = Budget(int(MOST_PASSES - self._shared - (self._scene.passes - before)))
            found = smallest(pool, lambda few: self._with(few, output) >= needed, budget)
        else:
            found = Found(self._suspects(output, now), minimal=False)
        spent = self._shared + self._scene.passes - before
        told = self._alone(found, output, now, int(MOST_PASSES - spent))
        self.members[output] = tuple(member for _, member in told)
        explained = self._with(frozenset(found.members), output) if found.members else now
        gain, whole = _difference(explained, now), _difference(target, now)
        return Located(
            **asdict(self._scene.place.case),
            point=self._scene.place.point,
            output=output,
            against=self._aim.name,
            sqnr_db=row.sqnr_db,
            other_db=_decibels(target),
            explained_db=_decibels(explained),
            explained=min(1.0, gain / whole) if gain is not None and whole is not None and whole > 0 else None,
            minimal=found.minimal,
            passes=self._shared + self._scene.passes - before,
            culprits=tuple(self._culprit(member, alone) for alone, member in told),
            layers=tuple(map(_level_of, self._report.layers)),
            only_float=self._report.only_reference,
            only_quantized=self._report.only_actual,
            remark=remark,
        )

    def _pool(self, output: str, row: OutputRow) -> tuple[list[Candidate], float, str]:
        """The candidates that together explain enough, the SQNR they give, and a word where there are none."""
        now, target = level(row), self._aim.levels.get(output)
        if row.status in _UNTOLD:
            return [], now, f"the output is {row.status}: there is no SQNR to explain"
        best = self._with(frozenset(self._quantizers), output) if self._quantizers else now
        if target is None:  # fitted ranges: what they give is what there is to explain
            if best - now >= FITTED_WORTH_DB:
                return self._quantizers, best, ""
            return [], best, f"fitting every range changes {best - now:+.2f} dB: no range is much at fault"
        if target - now < WORTH_DB:
            return [], target, f"{self._aim.name} is {target - now:+.2f} dB away: nothing to explain"
        if best >= _needed(now, target):
            return self._quantizers, best, ""
        for pool, remark in ((self._layers, _NUMERICS), ([*self._quantizers, *self._layers], "")):
            best = self._with(frozenset(pool), output) if pool else now
            if best >= _needed(now, target):
                return pool, best, remark
        reached = (
            "what can be put right does not explain it"
            if now <= -SQNR_CAP_DB
            else (f"quantizers and layers put right give {best - now:+.2f} of {target - now:+.2f} dB")
        )
        return [], best, reached

    def _suspects(self, output: str, now: float) -> tuple[Candidate, ...]:
        """Where nothing is worth explaining: of the quantizers that make most noise the one that gains most alone."""
        if self._scene.outputs[output].status in _UNTOLD:
            return ()
        gains = {one: self._with(frozenset({one}), output) - now for one in self._quantizers[:_SUSPECTS]}
        best = max(gains, key=gains.__getitem__, default=None)
        return () if best is None or not gains[best] > 0 else (best,)

    def _with(self, few: frozenset[Candidate], output: str) -> float:
        overrides = {node: one for candidate in few for node, one in candidate.overrides.items()}
        key = [(self._aim.name, candidate.kind, candidate.names) for candidate in few]
        return level(self._scene.what_if(overrides, key).get(output))

    def _alone(
        self, found: Found[Candidate], output: str, now: float, tries: int
    ) -> list[tuple[float | None, Candidate]]:
        """The members with what each gains alone, dB, those that gain most first; None where it was too costly."""
        told: list[tuple[float | None, Candidate]] = []
        for member in found.members:
            before = self._scene.passes
            affordable = len(found.members) == 1 or tries > 0
            alone = self._with(frozenset({member}), output) if affordable else None
            tries -= int(self._scene.passes - before)
            told.append((_difference(alone, now) if alone is not None else None, member))
        return sorted(told, key=lambda one: -(one[0] if one[0] is not None else -SQNR_CAP_DB))

    def _culprit(self, member: Candidate, alone: float | None) -> Culprit:
        return Culprit(
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


def _needed(now: float, target: float) -> float:
    """The SQNR from which on enough of a difference is explained; an output that has none counts as all noise, 0 dB."""
    start = 0.0 if now <= -SQNR_CAP_DB else now
    return target - (1 - ENOUGH) * max(target - start, 0.0)


def _difference(after: float, before: float) -> float | None:
    """Between two SQNRs; None where either output has none."""
    return None if min(after, before) <= -SQNR_CAP_DB else after - before


def _decibels(level_db: float) -> float | None:
    return None if level_db <= -SQNR_CAP_DB else min(level_db, SQNR_CAP_DB)


def _level_of(layer: Layer) -> LayerLevel:
    names = ("name", "op", "actual_op", "source", "status", "sqnr_db", "worst_channel_db", "local_db", "samples")
    return LayerLevel(**{name: getattr(layer, name) for name in names})
