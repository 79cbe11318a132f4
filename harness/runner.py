"""Runs a plan in measuring processes and gathers their rows; what was measured is kept whatever happens."""

from __future__ import annotations

import multiprocessing
import signal
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from harness.adapter import USUAL_GIB, Size
from harness.fixes import Fix
from harness.fixes.states import Diagnosis, undiagnosed
from harness.memory import free_memory
from harness.parts import GroupResult, PartReader, Progress
from harness.records import Case
from harness.suite import Sizes
from harness.worker import GroupJob, describe_model, diagnose_fixes, run_group, start_worker
from harness.workspace import Workspace

T = TypeVar("T")
J = TypeVar("J")
_POLL_SECONDS = 0.2
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)


class Workers:
    """Spawned measuring processes, a fresh one for each task; a context manager that leaves none behind.

    What one adapter or upstream does to torch's global state can so never reach another model's numbers.
    """

    def __init__(self, count: int, timeout: float, memory: float | None = None) -> None:
        self._count, self._timeout = count, timeout
        # Spawned, not forked: a process forked after OpenMP has run can hang, and pins are read at library load.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPool(
            max_workers=count, max_tasks=1, initializer=start_worker, initargs=(memory,), context=context
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def sizes(self, workspace: Workspace) -> Sizes:
        """Sizes of each adapter; None for one that cannot be imported.

        Those not written out plainly are asked for by importing the adapter in a process of its own.
        """
        names = workspace.model_names()
        sizes: dict[str, Mapping[str, Size] | None] = {name: workspace.written_sizes(name) for name in names}
        asked = {
            name: self._pool.schedule(describe_model, args=(workspace.start, name), timeout=self._timeout)
            for name, known in sizes.items()
            if known is None
        }
        wait(asked.values())
        return sizes | {name: None if future.exception() else future.result() for name, future in asked.items()}

    def diagnose(self, fixes: Iterable[Fix]) -> list[Diagnosis]:
        """The state of each fix, measured in one process for each package, as two may not bear each other.

        Where a process does not live to tell, each of its fixes is measured again in a process of its own.
        """
        groups: dict[str, list[Fix]] = defaultdict(list)
        for fix in fixes:
            groups[fix.package].append(fix)
        found, untold = self._diagnose(list(groups.values()))
        alone, lost = self._diagnose([[fix] for fix in untold])
        found += [*alone, *(undiagnosed(fix, ending) for fix, ending in lost.items())]
        return sorted(found, key=lambda diagnosis: diagnosis.name)

    def _diagnose(self, groups: list[list[Fix]]) -> tuple[list[Diagnosis], dict[Fix, str]]:
        """What was measured, and of each other fix how its process ended."""
        futures = [
            self._pool.schedule(diagnose_fixes, args=([fix.name for fix in group],), timeout=self._timeout)
            for group in groups
        ]
        wait(futures)
        found: list[Diagnosis] = []
        lost: dict[Fix, str] = {}
        for group, future in zip(groups, futures, strict=True):
            ending = _ending(future, self._timeout)
            if ending:
                lost |= dict.fromkeys(group, ending)
            else:
                found += future.result()
        return found, lost

    def call(self, function: Callable[..., T], *args: object) -> T | str:
        """What a function returns in a process of its own, or how that process ended instead."""
        future: Future[T] = self._pool.schedule(function, args=args, timeout=self._timeout)
        wait([future])
        return _ending(future, self._timeout) or future.result()

    def each(self, function: Callable[[J], T], jobs: Sequence[J]) -> Iterator[tuple[J, T | str]]:
        """Each job, as it is done, with what a function returns for it, or with how its process ended instead."""
        futures: dict[Future[T], J] = {
            self._pool.schedule(function, args=(job,), timeout=self._timeout): job for job in jobs
        }
        for future in as_completed(futures):
            yield futures[future], _ending(future, self._timeout) or future.result()

    def run(self, jobs: list[GroupJob], on_progress: Callable[[Progress], None]) -> tuple[list[GroupResult], bool]:
        """Measure all jobs, each within the limits, and read their part files as they grow.

        As many at once as there are workers, and memory for what they say they need. A process that writes what is no
        record is ended. The flag says that Ctrl-C or SIGTERM ended it all early: the results are those until then, and
        the workers have ended. This process heeds neither any more, so that a second one cannot keep it from storing
        them.
        """
        readers = [PartReader(GroupResult(job)) for job in jobs]
        waiting, running = deque(readers), dict[Future[Any], PartReader]()
        room = free_memory()
        with _told_to_end() as told:
            while (waiting or running) and not told:
                while waiting and self._fits(waiting[0], running.values(), room):
                    reader = waiting.popleft()
                    running[self._pool.schedule(run_group, args=(reader.result.job,), timeout=self._timeout)] = reader
                ended, _ = wait(running, timeout=_POLL_SECONDS)
                for future, reader in list(running.items()):
                    if not reader.read(on_progress):
                        future.cancel()
                    if future in ended:
                        reader.result.broken = reader.result.broken or _ending(future, self._timeout)
                        del running[future]
            if told:
                self._end()
                for reader in readers:
                    reader.read(on_progress)
        return [reader.result for reader in readers], bool(told)

    def _fits(self, reader: PartReader, running: Collection[PartReader], room: float) -> bool:
        """Whether a group can be measured beside those under way; one alone always can."""
        needed = sum(other.result.job.memory for other in running) + reader.result.job.memory
        return not running or (len(running) < self._count and needed <= room)


@contextmanager
def _told_to_end() -> Iterator[list[int]]:
    """The interruptions that came meanwhile, which then interrupt nothing; after the first no other one does either."""
    told: list[int] = []
    before = {number: signal.signal(number, lambda *given: told.append(given[0])) for number in _INTERRUPTIONS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if told else handler)


def _ending(future: Future[Any], timeout: float) -> str:
    """How a process ended, if not well."""
    error = None if future.cancelled() else future.exception()
    if error is None:
        return ""
    if isinstance(error, TimeoutError):
        return f"timed out after {timeout:.0f} s"
    if isinstance(error, ProcessExpired):
        code = error.exitcode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the measuring process died ({how})"
    return f"{type(error).__name__}: {error}"


def jobs_for(
    start: Path,
    groups: Iterable[tuple[Case, ...]],
    source: str | None,
    seed: int,
    parts: Path,
    logs: Path,
    jitter: int | None = None,
    excluded: tuple[str, ...] = (),
    unlowered: frozenset[Case] = frozenset(),
    sizes: Sizes | None = None,
    tag: str = "",
) -> list[GroupJob]:
    """One job a group; `source` stands in for the weights kind in the case where a path was given."""
    tag += "" if jitter is None else f"-jitter{jitter}"
    return [
        GroupJob(
            start=start,
            cases=cases,
            weights_source=source or cases[0].weights,
            seed=seed,
            part=parts / f"{index:03d}-{cases[0].model}-{cases[0].size}{tag}.jsonl",
            log=logs / f"{index:03d}-{cases[0].model}-{cases[0].size}{tag}.log",
            jitter=jitter,
            excluded=excluded,
            unlowered=unlowered.intersection(cases),
            memory=_memory(cases[0], sizes or {}),
        )
        for index, cases in enumerate(groups)
    ]


def _memory(case: Case, sizes: Sizes) -> float:
    known = sizes.get(case.model)
    return known[case.size].memory if known is not None else USUAL_GIB
