"""The noise floor of a run's rows: how far they move when inputs are jittered by 1e-6.

A program (`harness.flows.Program`) has the noise floor of the converted graph it was made from: its integer sums are
exact, so that what moves it is what moves the graph, and compiling it for each jitter would take most of an hour.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from harness import fixes
from harness.errors import InterruptedRunError
from harness.execute import Options, measuring_processes
from harness.parts import Progress
from harness.records import Case, FixState, OutputRow, Point, Row, released_of
from harness.runner import jobs_for
from harness.store import Run
from harness.worker import group_cases
from harness.workspace import Workspace


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Noise of rows under inputs jittered by 1e-6, by row key.

    `outputs`: standard deviation of `sqnr_db`, dB. `quantizers`: standard deviation of the range bounds, relative to
    the larger bound.
    """

    outputs: dict[tuple[str, ...], float]
    quantizers: dict[tuple[str, ...], float]


def noise_floor(
    workspace: Workspace,
    run: Run,
    cases: tuple[Case, ...],
    options: Options,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    seeds: int = 5,
) -> NoiseFloor:
    """Measure cases again with `seeds` jitters of the inputs, two at least.

    Rows that fail under any of them get no noise. A variant whose fixes changed no bit has the noise of `released`, a
    program that of its converted graph, and neither is measured for it.
    """
    sources = Sources(run)
    measured = sources.of_cases(cases)
    unlowered = run.plan.unlowered.union(case for case in measured if sources.is_program(case))
    with tempfile.TemporaryDirectory(prefix="sqnr-noise-") as folder, measuring_processes(options) as workers:
        jobs = [
            job
            for jitter in range(1, seeds + 1)
            for job in jobs_for(
                *(workspace.start, group_cases(measured), run.weights_source, run.seed),
                *(Path(folder), Path(folder)),
                jitter=jitter,
                excluded=run.excluded,
                unlowered=unlowered,
            )
        ]
        results, interrupted = workers.run(jobs, on_progress)
    if interrupted:
        raise InterruptedRunError("interrupted while measuring the noise floor; no baseline was written")
    levels: dict[tuple[str, ...], list[float]] = defaultdict(list)
    bounds: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        for row in result.outputs:
            if row.sqnr_db is not None:
                levels[row.key].append(row.sqnr_db)
        for quantizer in result.quantizers:
            if quantizer.lo is not None and quantizer.hi is not None:
                bounds[quantizer.key].append((quantizer.lo, quantizer.hi))
    outputs = {key: statistics.stdev(values) for key, values in levels.items() if len(values) == seeds}
    quantizers = {key: _relative_spread(pairs) for key, pairs in bounds.items() if len(pairs) == seeds}
    return NoiseFloor(sources.shared(outputs), sources.shared(quantizers))


class Sources:
    """Whose noise floor each row of a run has: its own, or that of the row which stands for it."""

    def __init__(self, run: Run) -> None:
        self._rows: list[Row] = [*run.outputs, *run.quantizers]
        self._idle = {row.case for row in run.outputs if row.fix_state in (FixState.INERT, FixState.UPSTREAMED)}
        self._programs = {row.flow for row in run.outputs if row.is_program}
        self._late = {fix.name for fix in fixes.installed() if fix.stage in fixes.LOWERING} if self._programs else set()

    def is_program(self, case: Case) -> bool:
        """Whether a case's flow lowers to a program."""
        return case.flow in self._programs

    def of_cases(self, cases: Iterable[Case]) -> tuple[Case, ...]:
        """The cases to measure for the noise floor of `cases`."""
        return tuple(dict.fromkeys(self._measured_as(case) for case in cases))

    def _measured_as(self, case: Case) -> Case:
        """`released` where fixes changed no bit; without fixes of the lowering where that is a program's."""
        if case in self._idle:
            return released_of(case)
        if case.flow not in self._programs:
            return case
        names = frozenset(case.variant.strip("+").split("+"))
        kept = names - self._late
        return case if kept == names else replace(case, variant=fixes.variant_name(kept))

    def key(self, row: Row) -> tuple[str, ...]:
        """The key of the row whose noise floor a row has."""
        case = self._measured_as(row.case)
        point = Point.CONVERTED if isinstance(row, OutputRow) and row.is_program else row.point
        return (case.model, case.size, case.weights, case.flow, case.variant, point, row.key[-1])

    def shared(self, noise: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
        """Noise by row key, also of the rows that others stand for."""
        return noise | {row.key: noise[self.key(row)] for row in self._rows if self.key(row) in noise}


def _relative_spread(pairs: list[tuple[float, float]]) -> float:
    lows, highs = zip(*pairs, strict=True)
    size = max(abs(value) for value in (*lows, *highs))
    return max(statistics.stdev(lows), statistics.stdev(highs)) / size if size else 0.0
