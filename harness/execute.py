"""From a selection to a stored run: plan, measure, count the census."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness import census, environment
from harness.errors import InterruptedRunError, UsageError, no_quantizer
from harness.parts import GroupResult, Progress
from harness.records import SPILL_PREFIX, Case, Point
from harness.resuming import attempt_tag, check_resumable, check_same_models, held, kept_results
from harness.runner import Workers, jobs_for
from harness.store import COMPLETE, INTERRUPTED, Run, create_run, find_run
from harness.suite import Selection, Sizes, make_plan, resolve_weights
from harness.worker import group_cases
from harness.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure; none of it changes a number but `pinned` and `isa`."""

    workers: int = 2
    timeout: float = 1800.0
    memory: float | None = None
    """GiB that a measuring process may take; None for no limit."""
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
    return Workers(options.workers, options.timeout, options.memory)


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
    with held(run):
        on_start(run)
        _finish(workspace, run, sizes, workers, [], shuffle, on_progress)
    _check_excluded(run)
    return run


def resume(
    workspace: Workspace,
    name: str,
    options: Options,
    on_start: Callable[[Run, int], None] = lambda _run, _measured: None,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Run:
    """Measure what an interrupted or killed run still owes; its files are then those of an undisturbed one.

    Raises `UsageError` for a run that is complete, still under way, or of another stack, machine or model, and
    `InterruptedRunError` as `measure` does.
    """
    with measuring_processes(options) as workers:
        run = find_run(workspace.reports, name)
        with held(run):
            run = check_resumable(find_run(workspace.reports, name))
            sizes = workers.sizes(workspace)
            kept = kept_results(workspace, run)
            on_start(run, sum(len(result.finished) for result in kept))
            _finish(workspace, run, sizes, workers, kept, options.shuffle, on_progress)
    return run


def _finish(
    workspace: Workspace,
    run: Run,
    sizes: Sizes,
    workers: Workers,
    kept: list[GroupResult],
    shuffle: int | None,
    on_progress: Callable[[Progress], None],
) -> None:
    """Measure the cases that `kept` does not have, and store the run."""
    start = time.monotonic()
    done = {case for result in kept for case in result.finished}
    cases = [case for case in run.plan.cases if case not in done]
    if shuffle is not None:
        random.Random(shuffle).shuffle(cases)
    groups = sorted(group_cases(cases), key=lambda group: -_cost(group[0], sizes))
    jobs = jobs_for(
        *(workspace.start, groups, run.weights_source, run.seed, run.parts, run.logs),
        excluded=run.excluded,
        unlowered=run.plan.unlowered,
        sizes=sizes,
        tag=attempt_tag(run),
    )
    results, interrupted = workers.run(jobs, on_progress)
    check_same_models([*kept, *results])
    run.status = INTERRUPTED if interrupted else COMPLETE
    run.seconds += time.monotonic() - start
    census.gather(run, [*kept, *results], sizes)
    if not interrupted:
        census.check(run, sizes)
    run.save()
    # Killed workers leave their spilled reference outputs behind.
    for spill in run.parts.glob(f"{SPILL_PREFIX}*"):
        shutil.rmtree(spill, ignore_errors=True)
    if interrupted:
        raise InterruptedRunError(
            f"interrupted; what was measured ({len(run.outputs)} output rows) is kept in {run.folder}; "
            f"go on with: sqnr run --resume {run.name}"
        )
    shutil.rmtree(run.parts)
    for log in run.logs.glob("*.log"):
        if not log.stat().st_size:
            log.unlink()


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
