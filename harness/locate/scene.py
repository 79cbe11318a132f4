"""One case at one point, ready to be asked what if: its graphs, its rows, and the outputs under any overrides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from harness.fixes import Fix
from harness.fixes.states import repaired
from harness.flows import Flow
from harness.locate.hybrid import Hybrid, Overrides
from harness.locate.layers import FloatLayers
from harness.locate.sources import Quantized
from harness.locate.units import Quantizers, Unit, readers_of
from harness.measure.dataflow import Dataflow
from harness.measure.layers import LayerReport, measure_layers
from harness.measure.matching import Matching, match_graphs
from harness.measure.side import Side
from harness.pipeline import Graphs, Pipeline
from harness.records import FAILED, SQNR_CAP_DB, Case, OutputRow, Point, Stage
from harness.stages import StageError
from harness.subject import Subject

LOCKSTEP_PASSES = 3.0
"""Passes of one graph that measuring all layers counts as: both graphs, and every layer alone."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which graph of which case: the point of a case, with the flow and the fixes that make it."""

    case: Case
    flow: Flow
    fixes: tuple[Fix, ...]
    point: Point


class Scene:
    """A measured point. `passes` counts what was asked of it, in passes of one graph over the evaluation set.

    `shared_passes` are those that serve all outputs: measuring the layers, and the source of right values.

    With `whole` every point of the case is measured, as a run does: only then is the rows' `fix_state` known. Raises
    `StageError` if the point cannot be measured.
    """

    def __init__(self, pipeline: Pipeline, subject: Subject, place: Place, *, whole: bool = False) -> None:
        self.place = place
        self.subject = subject
        self.passes = 0.0
        self.shared_passes = 0.0
        only = None if whole else frozenset({place.point})
        measured = pipeline.measure(place.case, place.flow, place.fixes, only)
        here = [row for row in measured.outputs if row.point == place.point]
        failed = next((row for row in here if row.status.startswith(FAILED)), None)
        if failed is not None:
            raise StageError(Stage(failed.status.removeprefix(FAILED)), failed.error)
        self.outputs: dict[str, OutputRow] = {row.output: row for row in here}
        self.graphs: Graphs = pipeline.graphs(place.point, place.case, place.flow, place.fixes)
        hybrid = Hybrid(self.graphs.actual)
        quantizers = Quantizers(self.graphs.actual, self.graphs.facts, hybrid.dataflow)
        self.quantized = Quantized(
            *(hybrid, quantizers, self.graphs.facts),
            {row.quantizer: row for row in measured.quantizers if row.point == place.point},
        )
        self._asked: dict[frozenset[object], dict[str, OutputRow]] = {}

    @cached_property
    def matching(self) -> Matching:
        """Which layer of the quantized graph is which of the float graph."""
        return match_graphs(reference=self.graphs.reference, actual=self.graphs.actual)

    def observe(self, overrides: Overrides) -> None:
        """One pass whose outputs nobody wants."""
        self._run(overrides)
        self.shared_passes += 1

    def what_if(self, overrides: Overrides, key: Iterable[object] | None = None) -> Mapping[str, OutputRow]:
        """The rows of all outputs under these overrides; one pass. With a `key`, asked twice is run once."""
        known = frozenset(key) if key is not None else None
        if known is not None and known in self._asked:
            return self._asked[known]
        self.passes += 1
        found = self._run(overrides)
        if known is not None:
            self._asked[known] = found
        return found

    def _run(self, overrides: Overrides) -> dict[str, OutputRow]:
        run = self.quantized.hybrid.under(overrides)
        with torch.no_grad(), repaired(self.graphs.fixes):
            rows, _ = self.subject.measure(run, self.place.case, self.place.point)
        return {row.output: row for row in rows}

    @cached_property
    def layers(self) -> LayerReport:
        """Every layer against the float graph, each sample also through the layer alone."""
        self.shared_passes += LOCKSTEP_PASSES
        with repaired(self.graphs.fixes):
            return measure_layers(
                reference=self.graphs.reference,
                actual=self.graphs.actual,
                batches=self.subject.evaluation(),
                local_every=1,
            )

    def readers(self, unit: Unit) -> tuple[str, ...]:
        """The layers that take a unit's values, by name."""
        return readers_of(unit, self.matching)

    def float_layers(self) -> dict[str, Overrides]:
        """What leaves each layer that can be in float, by its name."""
        side = Side(self.graphs.reference, Dataflow(self.graphs.reference))
        floats = FloatLayers(self.matching, side, self.quantized.hybrid)
        found = {pair.name: floats.override(pair) for pair in self.matching.pairs}
        return {name: overrides for name, overrides in found.items() if overrides is not None}


def level(row: OutputRow | None) -> float:
    """SQNR of an output, dB; where it has none, or is not there, the worst there is."""
    return -SQNR_CAP_DB if row is None or row.sqnr_db is None else row.sqnr_db
