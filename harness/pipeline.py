"""export -> prepare -> calibrate -> convert, for all cases of one model; a stage is run once for all that share it."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch.fx import GraphModule

from harness.fixes import Fix
from harness.flows import Flow
from harness.graphs import copied_tensors, copy_graph
from harness.measure.prepared import PreparedFacts, read_prepared
from harness.measure.ranges import RangeReader
from harness.records import Case, OutputRow, Point, QuantizerRow, Stage, failed_rows
from harness.subject import Subject, weight_hashes

_ORDER = list(Stage)
T = TypeVar("T")


class StageError(Exception):
    """A stage of a case that raised; `__cause__` is what upstream raised, if it did."""

    def __init__(self, stage: Stage, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclass(slots=True)
class CaseResult:
    """The rows of one case, the seconds each stage took, and the full text of what went wrong."""

    case: Case
    outputs: list[OutputRow] = field(default_factory=list)
    quantizers: list[QuantizerRow] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    log: str = ""


@dataclass(slots=True)
class _Artefact:
    """A graph after some stage, with what is known of it."""

    graph: GraphModule
    handed: dict[str, torch.Tensor] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    facts: PreparedFacts = field(default_factory=PreparedFacts)

    def copy(self) -> _Artefact:
        """A copy that the next stage may write into."""
        memo: dict[int, object] = {}
        graph = copy_graph(self.graph, memo)
        return _Artefact(graph, copied_tensors(self.handed, memo), self.hashes, self.facts)


class Pipeline:
    """Takes one subject through flows and variants.

    Every flow works on its own copy of the exported graph, and every variant on its own copy of the last stage it
    shares with another, so nothing an upstream writes reaches the user's model or a second variant.
    """

    def __init__(self, subject: Subject, on_stage: Callable[[Case, Stage], None]) -> None:
        self._subject = subject
        self._on_stage = on_stage
        self._exported: dict[object, GraphModule | StageError] = {}
        self._float_rows: dict[object, list[OutputRow]] = {}
        self._stages: dict[object, _Artefact | StageError] = {}
        self._seconds: dict[str, float] = {}
        self._flow = ""

    def measure(
        self, case: Case, flow: Flow, fixes: tuple[Fix, ...], only: frozenset[Point] | None = None
    ) -> CaseResult:
        """All rows of a case, or those of some points.

        A stage that raises leaves `failed:<stage>` rows for the points it kept from being measured.
        """
        if flow.name != self._flow:
            self._stages.clear()
            self._flow = flow.name
            # Graphs refer to themselves; without this, copies of the last flow's weights stay until some later sweep.
            # What is left (torch's modules, the model, the exported graph) stays to the end: sweeping it again and
            # again took a tenth of the gate's time.
            gc.collect()
            gc.freeze()
        result = CaseResult(case)
        self._seconds = result.seconds
        torch.manual_seed(0)
        for point, rows in self._points(case, flow, fixes, result):
            if only is not None and point not in only:
                continue
            try:
                with torch.no_grad():
                    result.outputs += rows()
            except StageError as error:
                result.log += f"{case} at {point}\n{''.join(traceback.format_exception(error))}\n"
                result.outputs += failed_rows(case, (point,), self._subject.outputs, error.stage, str(error))
        return result

    def _points(
        self, case: Case, flow: Flow, fixes: tuple[Fix, ...], result: CaseResult
    ) -> Iterator[tuple[Point, Callable[[], list[OutputRow]]]]:
        yield Point.FLOAT, partial(self._measure_float, case, flow)
        yield Point.PREPARED, partial(self._measure_prepared, case, flow, fixes)
        yield Point.CONVERTED, partial(self._measure_converted, case, flow, fixes, result)

    def _measure_float(self, case: Case, flow: Flow) -> list[OutputRow]:
        graph = self._export(case, flow)
        if flow.export not in self._float_rows:
            with self._stage(case, Stage.MEASURE):
                self._float_rows[flow.export] = self._subject.measure(graph, case, Point.FLOAT)
        return [replace(row, flow=case.flow, variant=case.variant) for row in self._float_rows[flow.export]]

    def _measure_prepared(self, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> list[OutputRow]:
        # Observers write their statistics when they run, so they are shown the evaluation set on a copy.
        prepared = copy_graph(self._at(Stage.PREPARE, case, flow, fixes).graph)
        with self._stage(case, Stage.MEASURE):
            return self._subject.measure(prepared, case, Point.PREPARED)

    def _measure_converted(self, case: Case, flow: Flow, fixes: tuple[Fix, ...], result: CaseResult) -> list[OutputRow]:
        converted = self._at(Stage.CONVERT, case, flow, fixes)
        with self._stage(case, Stage.MEASURE):
            reader = RangeReader(converted.graph, converted.facts)
            rows = self._subject.measure(reader.run, case, Point.CONVERTED)
            result.quantizers = reader.rows(case)
            return rows

    def _export(self, case: Case, flow: Flow) -> GraphModule:
        def export() -> GraphModule:
            with self._stage(case, Stage.EXPORT):
                return flow.export(self._subject.model, self._subject.inputs)

        return _once(self._exported, flow.export, export)

    def _at(self, stage: Stage, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Artefact:
        """The artefact after `stage`, shared by all variants whose fixes touch nothing up to there."""
        active = tuple(fix for fix in fixes if _ORDER.index(fix.stage) <= _ORDER.index(stage))

        def run() -> _Artefact:
            if stage is Stage.PREPARE:
                before = self._handed_over(case, flow)
            else:
                before = self._at(_ORDER[_ORDER.index(stage) - 1], case, flow, fixes).copy()
            with self._stage(case, stage), ExitStack() as repairs:
                for fix in active:
                    repairs.enter_context(fix.repair())
                return self._run_stage(stage, flow, before)

        return _once(self._stages, (stage, tuple(fix.name for fix in active)), run)

    def _handed_over(self, case: Case, flow: Flow) -> _Artefact:
        graph = copy_graph(self._export(case, flow))
        handed = dict([*graph.named_parameters(), *graph.named_buffers()])
        return _Artefact(graph, handed, weight_hashes(handed.items()))

    def _run_stage(self, stage: Stage, flow: Flow, before: _Artefact) -> _Artefact:
        graph, facts = before.graph, before.facts
        if stage is Stage.PREPARE:
            graph = flow.prepare(graph)
        elif stage is Stage.CALIBRATE:
            flow.calibrate(graph, self._subject.calibration())
        else:
            facts = read_prepared(graph)
            graph = flow.convert(graph)
        after = weight_hashes(before.handed.items())
        written = [name for name, digest in after.items() if digest != before.hashes[name]]
        if written:
            raise StageError(stage, f"the flow wrote into the float model's weights: {', '.join(written[:5])}")
        if stage is Stage.CONVERT:
            return _Artefact(graph, facts=facts)
        return _Artefact(graph, before.handed, before.hashes, facts)

    @contextmanager
    def _stage(self, case: Case, stage: Stage) -> Iterator[None]:
        self._on_stage(case, stage)
        start = time.perf_counter()
        try:
            yield
        except StageError:
            raise
        except Exception as error:
            raise StageError(stage, f"{type(error).__name__}: {error}") from error
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start


def _once(memo: dict[object, T | StageError], key: object, make: Callable[[], T]) -> T:
    """What `make` returned or raised the first time: a stage that failed is not tried again for the next point."""
    if key not in memo:
        try:
            memo[key] = make()
        except StageError as error:
            memo[key] = error
    found = memo[key]
    if isinstance(found, StageError):
        raise found
    return found
