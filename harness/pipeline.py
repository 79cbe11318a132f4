"""All cases of one model: the rows of each point, and what a variant's fixes did to them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import torch

from harness.fixes import Fix
from harness.fixes.seams import SeamMovedError
from harness.fixes.states import ProbeError, released_state, repaired
from harness.flows import Flow
from harness.graphs import copy_graph
from harness.measure.cause import output_cause
from harness.measure.ranges import RangeReader
from harness.measure.structure import count_nodes, graph_digest
from harness.records import Case, Cause, FixState, OutputRow, Point, QuantizerRow, Stage, failed_rows
from harness.stages import StageError, Stages, active_at, once
from harness.subject import Subject

T = TypeVar("T", OutputRow, QuantizerRow)
_MADE_BY = {
    Point.FLOAT: Stage.EXPORT,
    Point.PREPARED: Stage.PREPARE,
    Point.CONVERTED: Stage.CONVERT,
    Point.LOWERED: Stage.LOWER,
}
"""The stage whose graph a point measures."""


@dataclass(slots=True)
class CaseResult:
    """The rows of one case, the seconds each stage took, and the full text of what went wrong."""

    case: Case
    outputs: list[OutputRow] = field(default_factory=list)
    quantizers: list[QuantizerRow] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    log: str = ""


@dataclass(slots=True)
class _Measured:
    """One point: its rows, and digests of what was run and of what came out."""

    outputs: list[OutputRow]
    quantizers: list[QuantizerRow] = field(default_factory=list)
    digests: tuple[str, str] = ("", "")


class Pipeline:
    """Takes one subject through flows and variants; what two variants share is run and measured once."""

    def __init__(self, subject: Subject, on_stage: Callable[[Case, Stage], None]) -> None:
        self._subject = subject
        self._stages = Stages(subject, on_stage)
        self._float: dict[object, _Measured | StageError] = {}
        self._points: dict[object, _Measured | StageError] = {}
        self._flow = ""

    def measure(
        self, case: Case, flow: Flow, fixes: tuple[Fix, ...], only: frozenset[Point] | None = None
    ) -> CaseResult:
        """All rows of a case, or those of some points.

        A stage that raises leaves `failed:<stage>` rows for the points it kept from being measured. Fixes that the
        installed release does not need any more are not applied, and the rows' `fix_state` says so.
        """
        if flow.name != self._flow:
            self._stages.forget()
            self._points.clear()
            self._flow = flow.name
        result = CaseResult(case)
        self._stages.seconds = result.seconds
        applied = tuple(fix for fix in fixes if released_state(fix) is not FixState.UPSTREAMED)
        unknown = False
        for point in flow.points:
            if only is not None and point not in only:
                continue
            try:
                measured = self._at(point, case, flow, applied)
                result.outputs += [_of(row, case) for row in measured.outputs]
                result.quantizers += [_of(row, case) for row in measured.quantizers]
            except StageError as error:
                unknown |= isinstance(error.__cause__, (ProbeError, SeamMovedError))
                result.log += f"{case} at {point}\n{''.join(traceback.format_exception(error))}\n"
                result.outputs += failed_rows(
                    case, (point,), self._subject.outputs, error.stage, str(error), error.cause
                )
        if fixes and only is None:
            state = FixState.UNKNOWN if unknown else self._state(case, flow, applied)
            last = flow.points[-1]
            result.outputs = [replace(row, fix_state=state) if row.point == last else row for row in result.outputs]
        return result

    def _state(self, case: Case, flow: Flow, applied: tuple[Fix, ...]) -> FixState:
        """What the applied fixes of a variant did to this case, all together."""
        if not applied:
            return FixState.UPSTREAMED
        same = all(self._evidence(p, case, flow, applied) == self._evidence(p, case, flow, ()) for p in flow.points)
        return FixState.INERT if same else FixState.NEEDED

    def _evidence(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> object:
        """All that a fix can change at a point: qparams, nodes, output bits, or the way a stage fails."""
        try:
            measured = self._at(point, case, flow, fixes)
        except StageError as error:
            return error.stage, str(error)
        return measured.digests, [_of(row, case) for row in measured.quantizers]

    def _at(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        """A point, measured once for all variants whose fixes touch nothing up to there."""
        active = active_at(_MADE_BY[point], fixes)
        key = tuple(fix.name for fix in active)
        if point is Point.FLOAT:
            return once(self._float, (flow.export, key), lambda: self._measure_float(case, flow))
        with torch.no_grad():
            if point is Point.PREPARED:
                return once(self._points, (point, key), lambda: self._measure_prepared(case, flow, fixes))
            return once(self._points, (point, key), lambda: self._measure_quantized(point, case, flow, fixes))

    def _measure_float(self, case: Case, flow: Flow) -> _Measured:
        with torch.no_grad():
            graph = self._stages.export(case, flow)
            with self._stages.during(case, Stage.MEASURE):
                rows, digest = self._subject.measure(graph, case, Point.FLOAT)
        return _Measured([replace(row, cause=output_cause(row, (), None)) for row in rows], digests=("", digest))

    def _measure_prepared(self, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        # Observers write their statistics when they run, so they are shown the evaluation set on a copy.
        prepared = copy_graph(self._stages.at(Stage.PREPARE, case, flow, fixes).graph)
        with self._stages.during(case, Stage.MEASURE), repaired(active_at(Stage.PREPARE, fixes)):
            rows, digest = self._subject.measure(prepared, case, Point.PREPARED)
        rows = [replace(row, cause=output_cause(row, (), None)) for row in rows]
        return _Measured(rows, digests=(graph_digest(prepared), digest))

    def _measure_quantized(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        stage = _MADE_BY[point]
        made = self._stages.at(stage, case, flow, fixes)
        # A repair of a kernel is at work when the graph runs, not only when it is made.
        with self._stages.during(case, Stage.MEASURE), repaired(active_at(stage, fixes)):
            reader = RangeReader(made.graph, made.facts)
            rows, digest = self._subject.measure(reader.run, case, point)
            quantizers = reader.rows(case, point)
        before = self._converted_rows(point, case, flow, fixes)
        counts = asdict(count_nodes(made.graph))
        behind = dict(zip(self._subject.outputs, reader.behind_outputs(), strict=False))
        explained = []
        for row in rows:
            own = [
                quantizer
                for quantizer in quantizers
                if quantizer.cause == Cause.UNQUANTIZED or quantizer.quantizer in behind.get(row.output, ())
            ]
            explained.append(replace(row, **counts, cause=output_cause(row, own, before.get(row.output))))
        return _Measured(explained, quantizers, (graph_digest(made.graph), digest))

    def _converted_rows(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> dict[str, OutputRow]:
        if point is not Point.LOWERED:
            return {}
        return {row.output: row for row in self._at(Point.CONVERTED, case, flow, fixes).outputs}


def _of(row: T, case: Case) -> T:
    """A row that several cases share, as that of one of them."""
    return replace(row, flow=case.flow, variant=case.variant)
