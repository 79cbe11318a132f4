"""All cases of one model: the rows of each point, and what a variant's fixes did to them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch.fx import GraphModule

from harness.errors import ConfigError
from harness.fixes import LOWERING, Fix
from harness.fixes.seams import SeamMovedError
from harness.fixes.states import RepairError, RepairLeftError, repaired, state_of
from harness.flows import Flow
from harness.graphs import copy_graph
from harness.measure.bootstrap import Array
from harness.measure.cause import lowered_cause, output_cause
from harness.measure.prepared import PreparedFacts
from harness.measure.ranges import RangeReader
from harness.measure.structure import count_nodes, graph_digest
from harness.records import Case, Cause, FixState, OutputRow, Point, QuantizerRow, Stage, failed_rows
from harness.stages import ORDER, StageError, Stages, active_at, once
from harness.subject import Subject

T = TypeVar("T", OutputRow, QuantizerRow)
_MADE_BY = {
    Point.FLOAT: Stage.EXPORT,
    Point.PREPARED: Stage.PREPARE,
    Point.CONVERTED: Stage.CONVERT,
    Point.LOWERED: Stage.LOWER,
}
"""The stage whose graph a point measures."""
_UNTOLD = (RepairError, RepairLeftError, SeamMovedError)
"""Errors after which nobody knows what a variant's repairs would have done."""


@dataclass(slots=True)
class CaseResult:
    """The rows of one case, the seconds each stage took, and the full text of what went wrong."""

    case: Case
    outputs: list[OutputRow] = field(default_factory=list)
    quantizers: list[QuantizerRow] = field(default_factory=list)
    samples: dict[tuple[str, ...], Array] = field(default_factory=dict)
    """Sums of signal and noise of each sample, (2, samples), by the key of the output row."""
    seconds: dict[str, float] = field(default_factory=dict)
    log: str = ""


@dataclass(slots=True)
class _Measured:
    """One point: its rows, and digests of what was run and of what came out."""

    outputs: list[OutputRow]
    quantizers: list[QuantizerRow] = field(default_factory=list)
    digests: tuple[str, str] = ("", "")
    samples: dict[str, Array] = field(default_factory=dict)
    """By output."""


@dataclass(frozen=True, slots=True)
class Graphs:
    """Both sides of a point; `fixes` are those to be at work (`repaired`) while `actual` runs."""

    reference: GraphModule
    actual: GraphModule
    facts: PreparedFacts
    fixes: tuple[Fix, ...]


class Pipeline:
    """Takes one subject through flows and variants; what two variants share is run and measured once.

    Quantizers that `excluded` names, or patterns, stay in float; a name that fits none fails the case at `prepare`.
    """

    def __init__(
        self, subject: Subject, on_stage: Callable[[Case, Stage], None], excluded: tuple[str, ...] = ()
    ) -> None:
        self._subject = subject
        self._stages = Stages(subject, on_stage, excluded)
        self._float: dict[object, _Measured | StageError] = {}
        self._points: dict[object, _Measured | StageError] = {}
        self._flow = ""
        self._spoiled = ""

    def measure(
        self, case: Case, flow: Flow, fixes: tuple[Fix, ...], only: frozenset[Point] | None = None
    ) -> CaseResult:
        """All rows of a case, or those of some points.

        A stage that raises leaves `failed:<stage>` rows for the points it kept from being measured. Fixes that the
        installed release does not need any more are not applied, and the rows' `fix_state` says so. Raises
        `ConfigError` for a fix of a stage that the flow does not have, and `RepairLeftError` once a repair could not
        be undone.
        """
        if self._spoiled:
            raise RepairLeftError(f"not measured: {self._spoiled}")
        if flow.name != self._flow:
            self._stages.forget()
            self._points.clear()
            self._flow = flow.name
        result = CaseResult(case)
        self._stages.seconds = result.seconds
        applied = self._applied(case, flow, fixes)
        errors: list[StageError] = []
        for point in flow.points:
            if only is not None and point not in only:
                continue
            try:
                measured = self._at(point, case, flow, applied)
                rows = [_of(row, case) for row in measured.outputs]
                result.outputs += rows
                result.samples |= {
                    row.key: measured.samples[row.output] for row in rows if row.output in measured.samples
                }
                result.quantizers += [_of(row, case) for row in measured.quantizers]
            except StageError as error:
                errors.append(error)
                result.log += f"{case} at {point}\n{''.join(traceback.format_exception(error))}\n"
                result.outputs += failed_rows(
                    case, (point,), self._subject.outputs, error.stage, str(error), error.cause
                )
        if fixes and only is None:
            shown = _shown_at(flow, applied or fixes)
            state = self._state(case, flow, applied, errors, shown)
            result.outputs = [replace(row, fix_state=state) if row.point == shown else row for row in result.outputs]
        self._spoiled = next((str(error) for error in errors if error.comes_from(RepairLeftError)), "")
        return result

    def graphs(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> Graphs:
        """The float graph and the one that is measured at a point; shared, so that nobody may write into them.

        Raises `StageError` if one cannot be made.
        """
        applied = self._applied(case, flow, fixes)
        made = self._stages.at(_MADE_BY[point], case, flow, applied)
        return Graphs(self._stages.export(case, flow), made.graph, made.facts, active_at(_MADE_BY[point], applied))

    def _applied(self, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
        """The fixes to apply; those that the installed release does not need any more are left out."""
        last = _MADE_BY[flow.points[-1]]
        for fix in fixes:
            if fix not in active_at(last, fixes):
                raise ConfigError(f"fix {fix.name} starts at stage {fix.stage}, and flow {flow.name} ends at {last}")
            self._stages.on_stage(case, fix.stage)  # a probe that takes the process with it is then put down to it
        return tuple(fix for fix in fixes if state_of(fix).state is not FixState.UPSTREAMED)

    def _state(self, case: Case, flow: Flow, applied: tuple[Fix, ...], errors: list[StageError], shown: Point) -> str:
        """What the fixes of a variant did to this case, all together; nothing where it did not get as far as them."""
        if not applied:
            return FixState.UPSTREAMED
        states = {state_of(fix).state for fix in applied}
        if FixState.NOT_INSTALLED in states:
            return FixState.NOT_INSTALLED
        if states != {FixState.NEEDED} or any(error.comes_from(*_UNTOLD) for error in errors):
            return FixState.UNKNOWN
        first = min(ORDER.index(fix.stage) for fix in applied)
        if any(ORDER.index(error.stage) < first for error in errors):
            return ""
        points = flow.points[: flow.points.index(shown) + 1]
        same = all(self._evidence(p, case, flow, applied) == self._evidence(p, case, flow, ()) for p in points)
        return FixState.INERT if same else FixState.NEEDED

    def _evidence(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> object:
        """All that a fix can change at a point: qparams, nodes, output bits, or the way a stage fails."""
        try:
            measured = self._at(point, case, flow, fixes)
        except StageError as error:
            return error.stage, str(error)
        return measured.digests, [_of(row, case) for row in measured.quantizers]

    def _at(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        """A point, measured once for all variants whose fixes touch nothing, or changed nothing, up to there."""
        if point is Point.FLOAT:  # no repair touches the exported graph
            return once(self._float, flow.export, lambda: self._measure_float(case, flow))
        if point is Point.LOWERED:
            fixes = self._left(case, flow, fixes)
        measure = self._measure_prepared if point is Point.PREPARED else partial(self._measure_quantized, point)
        if point is Point.LOWERED and flow.programs:
            measure = self._measure_program
        key = point, tuple(fix.name for fix in active_at(_MADE_BY[point], fixes))
        with torch.no_grad():
            return once(self._points, key, lambda: measure(case, flow, fixes))

    def _left(self, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
        """The fixes that lowering may show: without those that were over with the converted graph and left it alone."""
        late = tuple(fix for fix in fixes if fix.last in LOWERING)
        if late == fixes:
            return fixes
        changed, left = (self._evidence(Point.CONVERTED, case, flow, some) for some in (fixes, late))
        return late if changed == left else fixes

    def _measure_float(self, case: Case, flow: Flow) -> _Measured:
        with torch.no_grad():
            graph = self._stages.export(case, flow)
            with self._stages.during(case, Stage.MEASURE):
                rows, digest = self._subject.measure(graph, case, Point.FLOAT)
        rows = [replace(row, cause=output_cause(row, ())) for row in rows]
        return _Measured(rows, digests=("", digest), samples=self._subject.samples)

    def _measure_prepared(self, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        # Observers write their statistics when they run, so they are shown the evaluation set on a copy.
        prepared = copy_graph(self._stages.at(Stage.PREPARE, case, flow, fixes).graph)
        with self._stages.during(case, Stage.MEASURE), repaired(active_at(Stage.PREPARE, fixes)):
            rows, digest = self._subject.measure(prepared, case, Point.PREPARED)
        rows = [replace(row, cause=output_cause(row, ())) for row in rows]
        return _Measured(rows, digests=(graph_digest(prepared), digest), samples=self._subject.samples)

    def _measure_quantized(self, point: Point, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        stage = _MADE_BY[point]
        before = self._at(Point.CONVERTED, case, flow, fixes) if point is Point.LOWERED else _Measured([])
        made = self._stages.at(stage, case, flow, fixes)
        # A repair of a kernel is at work when the graph runs, not only when it is made.
        with self._stages.during(case, Stage.MEASURE), repaired(active_at(stage, fixes)):
            reader = RangeReader(made.graph, made.facts)
            rows, digest = self._subject.measure(reader.run, case, point, **_spilled(point, fixes))
            samples, quantizers = self._subject.samples, reader.rows(case, point)
        converted = {row.output: row for row in before.outputs}
        counts = asdict(count_nodes(made.graph))
        behind = dict(zip(self._subject.outputs, reader.behind_outputs(), strict=False))
        explained = []
        for row in rows:
            own = [
                quantizer
                for quantizer in quantizers
                if quantizer.cause == Cause.UNQUANTIZED or quantizer.quantizer in behind.get(row.output, ())
            ]
            cause = lowered_cause(row, own, converted.get(row.output), before.quantizers)
            explained.append(replace(row, **counts, cause=cause))
        return _Measured(explained, quantizers, (graph_digest(made.graph), digest), samples)

    def _measure_program(self, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> _Measured:
        before = self._at(Point.CONVERTED, case, flow, fixes)
        program = self._stages.at(Stage.LOWER, case, flow, fixes).graph
        with self._stages.during(case, Stage.MEASURE), repaired(active_at(Stage.LOWER, fixes)):
            rows, digest = self._subject.measure(program.run, case, Point.LOWERED, **_spilled(Point.LOWERED, fixes))
        converted = {row.output: row for row in before.outputs}
        explained = [
            replace(row, **program.counts, cause=lowered_cause(row, (), converted.get(row.output), ())) for row in rows
        ]
        return _Measured(explained, digests=(program.digest, digest), samples=self._subject.samples)


def _spilled(point: Point, fixes: tuple[Fix, ...]) -> dict[str, object]:
    """For `Subject.measure`: a converted graph's outputs are kept, and a lowered one's held against them."""
    key = tuple(fix.name for fix in active_at(Stage.CONVERT, fixes))
    return {"against": key} if point is Point.LOWERED else {"keep": key}


def _shown_at(flow: Flow, fixes: tuple[Fix, ...]) -> Point:
    """Where rows say what fixes did: at the first of `converted` and `lowered` at which all are at work."""
    early = len(active_at(Stage.CONVERT, fixes)) == len(fixes)
    return Point.CONVERTED if early else flow.points[-1]


def _of(row: T, case: Case) -> T:
    """A row that several cases share, as that of one of them."""
    return replace(row, flow=case.flow, variant=case.variant)
