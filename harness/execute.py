"""From a selection to a stored run: plan, measure, count the census."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness import environment, flows
from harness.errors import InterruptedRunError, UsageError, no_quantizer
from harness.records import SPILL_PREFIX, Case, Point, Stage, failed_rows
from harness.runner import GroupResult, Progress, Workers, jobs_for
from harness.store import COMPLETE, INTERRUPTED, Run, create_run
from harness.suite import Selection, Sizes, make_plan, resolve_weights
from harness.worker import group_cases
from harness.workspace import Workspace

ANY_OUTPUT = "*"
"""Output name in the rows of a model whose adapter cannot say what it returns."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure; none of it changes a number but `pinned` and `isa`."""

    workers: int = 2
    timeout: float = 1800.0
    pinned: bool = True
    shuffle: int | None = None
    """Seed of a shuffled case order, to show that none leaks into the next; None keeps the plan's order."""
    isa: str = ""
    """One of `harness.environment.ISAS` in place of the pins' own; empty keeps those."""


def measure(
    workspace: Workspace,
    selection: Selection,
    options: Options,
    on_start: Callable[[Run], None] = lambda _run: None,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Run:
    """Measure a selection into a new run folder.

    Raises `InterruptedRunError` on Ctrl-C, after what was measured has been stored with status `interrupted`, and
    `UsageError` where no case has a quantizer that was to be left in float: that is no fault of the cases, and no run
    is kept of it.
    """
    with measuring_processes(options) as workers:
        return _measure(workspace, selection, workers, options.shuffle, on_start, on_progress)


def measuring_processes(options: Options) -> Workers:
    """A pool whose processes start with the pins in their environment."""
    environment.pin(pinned=options.pinned, isa=options.isa)
    return Workers(options.workers, options.timeout)


def _measure(
    workspace: Workspace,
    selection: Selection,
    workers: Workers,
    shuffle: int | None,
    on_start: Callable[[Run], None],
    on_progress: Callable[[Progress], None],
) -> Run:
    sizes = workers.sizes(workspace)
    selection, source = resolve_weights(selection, sizes)
    plan = make_plan(selection, workspace.settings, sizes)
    seed = workspace.settings.seed
    run = create_run(workspace.reports, plan, seed, environment.fingerprint(), source, selection.excluded)
    on_start(run)
    start = time.monotonic()
    cases = list(plan.cases)
    if shuffle is not None:
        random.Random(shuffle).shuffle(cases)
    groups = sorted(group_cases(cases), key=lambda group: -_cost(group[0], sizes))
    jobs = jobs_for(
        *(workspace.start, groups, source, seed, run.parts, run.logs),
        excluded=selection.excluded,
        unlowered=plan.unlowered,
    )
    results, interrupted = workers.run(jobs, on_progress)
    run.status = INTERRUPTED if interrupted else COMPLETE
    run.seconds = time.monotonic() - start
    gather(run, results, sizes)
    run.save()
    # Killed workers leave their spilled reference outputs behind.
    for spill in run.parts.glob(f"{SPILL_PREFIX}*"):
        shutil.rmtree(spill, ignore_errors=True)
    if interrupted:
        raise InterruptedRunError(
            f"interrupted; what was measured ({len(run.outputs)} output rows) is kept in {run.folder}"
        )
    for result in results:
        result.job.part.unlink(missing_ok=True)
    run.parts.rmdir()
    _check_excluded(run)
    return run


def _check_excluded(run: Run) -> None:
    rows = [row for row in run.outputs if row.point != Point.FLOAT]
    for name in run.excluded:
        if rows and all(row.error.startswith(no_quantizer(name)) for row in rows):
            # Nothing was measured that anybody asked for, and the latest run is what `check` judges.
            shutil.rmtree(run.folder, ignore_errors=True)
            raise UsageError(f"--exclude fits no case, so that no run is kept; {rows[0].case}: {rows[0].error}")


def _cost(case: Case, sizes: Sizes) -> float:
    known = sizes[case.model]
    return known[case.size].cost if known is not None else 0.0


def gather(run: Run, results: list[GroupResult], sizes: Sizes) -> None:
    """Take over all rows, and make a failed one for every planned output that has none."""
    run.outputs = [row for result in results for row in result.outputs]
    run.samples = {key: sums for result in results for key, sums in result.samples.items()}
    run.quantizers = [row for result in results for row in result.quantizers]
    measured = {row.key for row in run.outputs}
    for result in results:
        subject = "/".join(result.job.subject)
        run.adapter_hashes |= {subject: result.adapter} if result.adapter else {}
        if result.weights:
            run.weight_hashes[subject] = result.weights
            run.input_hashes[subject] = result.inputs
        for case in result.job.cases:
            if case not in result.finished and run.status == INTERRUPTED:
                continue
            known = sizes.get(case.model)
            outputs = known[case.size].outputs if known is not None else (ANY_OUTPUT,)
            points = _points(case.flow, lowered=case not in run.plan.unlowered)
            planned = failed_rows(case, points, outputs, *_reason(result, case))
            run.outputs += [row for row in planned if row.key not in measured]


def _reason(result: GroupResult, case: Case) -> tuple[Stage, str]:
    """(stage, error) of a case that left no rows."""
    if case in result.errors:
        return Stage.EXPORT, result.errors[case]
    last_case, last_stage = result.last or (case, Stage.LOAD)
    stage = last_stage if last_case == case or last_stage is Stage.LOAD else Stage.LOAD
    return stage, result.broken or "the measuring process left no row"


def _points(name: str, *, lowered: bool) -> Iterable[Point]:
    try:
        flow = flows.load(name)
        return (flow if lowered else flow.unlowered()).points
    except Exception:
        # A flow that cannot be imported still owes a row at each point a flow usually has.
        return (Point.FLOAT, Point.PREPARED, Point.CONVERTED)
