"""export -> prepare -> calibrate -> convert -> edge -> lower: each stage run once for all variants that share it."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule

from harness.environment import installed_version
from harness.errors import UsageError, in_a_line, root_of
from harness.fixes import Fix
from harness.fixes.states import repaired
from harness.flows import Flow
from harness.flows.exclude import check_left, leave_in_float
from harness.graphs import copied_tensors, copy_graph
from harness.measure.prepared import PreparedFacts, read_prepared
from harness.records import Case, Cause, Stage
from harness.subject import Subject, weight_hashes

ORDER = list(Stage)
T = TypeVar("T")


class StageError(Exception):
    """A stage of a case that raised; `__cause__` is what upstream raised, if it did."""

    def __init__(self, stage: Stage, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.cause = cause

    def comes_from(self, *kinds: type[Exception]) -> bool:
        """Whether an error of these kinds is behind it, however often it was wrapped."""
        error: BaseException | None = self
        while error is not None and not isinstance(error, kinds):
            error = error.__cause__
        return error is not None


@dataclass(slots=True)
class Artefact:
    """What a stage made: a graph, or a flow's edge program, with what is known of it."""

    graph: Any
    handed: dict[str, torch.Tensor] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    facts: PreparedFacts = field(default_factory=PreparedFacts)
    left: frozenset[str] = frozenset()
    """Quantizers that the user left in float."""

    def copy_for(self, stage: Stage) -> Artefact:
        """A copy that `stage`, the next one, may write into."""
        memo: dict[int, object] = {}
        # Convert has used the annotations up: those of its graph name nodes that are gone, and cannot be copied.
        copier = copy_graph if stage in (Stage.CALIBRATE, Stage.CONVERT) else copy.deepcopy
        graph = copier(self.graph, memo)
        return Artefact(graph, copied_tensors(self.handed, memo), self.hashes, self.facts, self.left)


class Stages:
    """Runs the stages of one subject, and remembers what each made.

    Every flow works on its own copy of the exported graph, and every variant on its own copy of the last stage it
    shares with another, so nothing an upstream writes reaches the user's model or a second variant. The quantizers
    that `excluded` names, or patterns, stay in float in all of them.
    """

    def __init__(
        self, subject: Subject, on_stage: Callable[[Case, Stage], None], excluded: tuple[str, ...] = ()
    ) -> None:
        self._subject = subject
        self._excluded = excluded
        self.on_stage = on_stage
        self._exported: dict[object, GraphModule | StageError] = {}
        self._made: dict[object, Artefact | StageError] = {}
        self.seconds: dict[str, float] = {}

    def forget(self) -> None:
        """Drop everything but the exported graphs: what is next is another flow."""
        self._made.clear()
        # Graphs refer to themselves; without this, copies of the last flow's weights stay until some later sweep.
        # What is left (torch's modules, the model, the exported graph) stays to the end: sweeping it again and
        # again took a tenth of the gate's time.
        gc.collect()
        gc.freeze()

    def export(self, case: Case, flow: Flow) -> GraphModule:
        """The float graph; raises `StageError`, also if exporting wrote into the model itself."""

        def export() -> GraphModule:
            with self.during(case, Stage.EXPORT):
                graph = flow.export(self._subject.model, self._subject.inputs)
            if self._subject.weights_digest() != self._subject.digest:
                raise StageError(Stage.EXPORT, "exporting wrote into the model's weights", Cause.MUTATED_WEIGHTS)
            return graph

        return once(self._exported, flow.export, export)

    def at(self, stage: Stage, case: Case, flow: Flow, fixes: tuple[Fix, ...]) -> Artefact:
        """The artefact after `stage`, shared by all variants whose fixes touch nothing up to there."""
        active = active_at(stage, fixes)

        def run() -> Artefact:
            if stage is Stage.PREPARE:
                before = self._handed_over(case, flow)
            else:
                before = self.at(ORDER[ORDER.index(stage) - 1], case, flow, fixes).copy_for(stage)
            with self.during(case, stage), repaired(active):
                return self._run(stage, flow, before)

        return once(self._made, (stage, tuple(fix.name for fix in active)), run)

    def _handed_over(self, case: Case, flow: Flow) -> Artefact:
        if not installed_version(flow.package):
            message = f"flow {flow.name} needs {flow.package}, which is not installed: pip install {flow.package}"
            raise StageError(Stage.PREPARE, message)
        graph = copy_graph(self.export(case, flow))
        handed = dict([*graph.named_parameters(), *graph.named_buffers()])
        return Artefact(graph, handed, weight_hashes(handed.items()))

    def _run(self, stage: Stage, flow: Flow, before: Artefact) -> Artefact:
        graph, facts, left = before.graph, before.facts, before.left
        if stage is Stage.PREPARE:
            graph = flow.prepare(graph)
            left = leave_in_float(graph, self._excluded, lowers=flow.lower is not None and not flow.programs)
            facts = read_prepared(graph)
        elif stage is Stage.CALIBRATE:
            made = flow.calibrate(graph, self._subject.calibration())
            graph = graph if made is None else made
        elif stage is Stage.CONVERT:
            graph = flow.convert(graph)
            check_left(graph, left)
        elif stage is Stage.EDGE:
            graph = flow.edge(graph, self._subject.inputs) if flow.edge else graph
        else:
            assert flow.lower is not None
            graph = flow.lower(graph)
        self._check_untouched(stage, before)
        keep = stage in (Stage.PREPARE, Stage.CALIBRATE)
        return Artefact(graph, before.handed if keep else {}, before.hashes if keep else {}, facts, left)

    @staticmethod
    def _check_untouched(stage: Stage, before: Artefact) -> None:
        after = weight_hashes(before.handed.items())
        written = [name for name, digest in after.items() if digest != before.hashes[name]]
        if written:
            names = ", ".join(written[:5])
            raise StageError(stage, f"the flow wrote into the float model's weights: {names}", Cause.MUTATED_WEIGHTS)

    @contextmanager
    def during(self, case: Case, stage: Stage) -> Iterator[None]:
        """Report a stage, time it, and turn what it raises into a `StageError`."""
        self.on_stage(case, stage)
        torch.manual_seed(0)  # upstream code that draws random numbers draws the same ones in whatever order
        start = time.perf_counter()
        try:
            yield
        except StageError:
            raise
        except UsageError as error:
            raise StageError(stage, str(error)) from error
        except Exception as error:
            raise StageError(stage, describe(error)) from error
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


def describe(error: Exception) -> str:
    """An error in a line, and the one that it all came from where upstream wrapped that."""
    return " <- ".join(dict.fromkeys((in_a_line(error), in_a_line(root_of(error)))))


def active_at(stage: Stage, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes that are at work in a stage: theirs is this one or an earlier one."""
    return tuple(fix for fix in fixes if ORDER.index(fix.stage) <= ORDER.index(stage))


def once(memo: dict[object, T | StageError], key: object, make: Callable[[], T]) -> T:
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
