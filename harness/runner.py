"""Runs a plan in measuring processes and gathers their rows; what was measured is kept whatever happens."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from harness.adapter import Size
from harness.files import storable
from harness.fixes import Fix
from harness.fixes.states import Diagnosis, undiagnosed
from harness.records import Case, OutputRow, QuantizerRow, Stage
from harness.samples import decoded
from harness.suite import Sizes
from harness.worker import GroupJob, describe_model, diagnose_fixes, run_group, start_worker
from harness.workspace import Workspace

if TYPE_CHECKING:
    from harness.measure.bootstrap import Array

T = TypeVar("T")
J = TypeVar("J")
_POLL_SECONDS = 0.2


@dataclass(slots=True)
class Progress:
    """One thing a worker reported: a stage it began, or a case it finished."""

    job: GroupJob
    case: Case
    stage: Stage | None = None
    seconds: float = 0.0


@dataclass(slots=True)
class GroupResult:
    """What a group's part file holds, and how its process ended."""

    job: GroupJob
    outputs: list[OutputRow] = field(default_factory=list)
    quantizers: list[QuantizerRow] = field(default_factory=list)
    samples: dict[tuple[str, ...], Array] = field(default_factory=dict)
    """Sums of signal and noise of each sample, by the key of the output row."""
    weights: str = ""
    inputs: dict[str, list[str]] = field(default_factory=dict)
    adapter: dict[str, str] = field(default_factory=dict)
    finished: set[Case] = field(default_factory=set)
    last: tuple[Case, Stage] | None = None
    errors: dict[Case, str] = field(default_factory=dict)
    broken: str = ""


class Workers:
    """Spawned measuring processes, a fresh one for each task; a context manager that leaves none behind.

    What one adapter or upstream does to torch's global state can so never reach another model's numbers.
    """

    def __init__(self, count: int, timeout: float) -> None:
        self._timeout = timeout
        # Spawned, not forked: a process forked after OpenMP has run can hang, and pins are read at library load.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPool(max_workers=count, max_tasks=1, initializer=start_worker, context=context)

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
        """Measure all jobs, each within the time limit, and read their part files as they grow.

        The flag says that Ctrl-C ended it early: the results are those until then, and the workers have ended. From
        then on this process ignores Ctrl-C, so that a second one cannot keep it from storing them.
        """
        results = [GroupResult(job) for job in jobs]
        readers = [_PartReader(result) for result in results]
        futures = [self._pool.schedule(run_group, args=(job,), timeout=self._timeout) for job in jobs]
        pending: Iterable[Future[Any]] = futures
        try:
            while pending:
                _, pending = wait(pending, timeout=_POLL_SECONDS)
                for reader in readers:
                    reader.read(on_progress)
        except KeyboardInterrupt:
            for interruption in (signal.SIGINT, signal.SIGTERM):
                signal.signal(interruption, signal.SIG_IGN)
            self._end()
            for reader in readers:
                reader.read(on_progress)
            return results, True
        for result, future in zip(results, futures, strict=True):
            result.broken = result.broken or _ending(future, self._timeout)
        return results, False


def _ending(future: Future[Any], timeout: float) -> str:
    """How a process ended, if not well."""
    error = future.exception()
    if error is None:
        return ""
    if isinstance(error, TimeoutError):
        return f"timed out after {timeout:.0f} s"
    if isinstance(error, ProcessExpired):
        return f"the measuring process died (exit code {error.exitcode})"
    return f"{type(error).__name__}: {error}"


class _PartReader:
    """Reads a part file as it grows; a line that is not yet whole is left for the next time."""

    def __init__(self, result: GroupResult) -> None:
        self._result = result
        self._offset = 0

    def read(self, on_progress: Callable[[Progress], None]) -> None:
        path = self._result.job.part
        if not path.exists():
            return
        with path.open("rb") as part:
            part.seek(self._offset)
            text = part.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line), on_progress)

    def _take(self, record: dict[str, Any], on_progress: Callable[[Progress], None]) -> None:
        result = self._result
        if "stage" in record:
            result.last = Case(**record["case"]), Stage(record["stage"])
            on_progress(Progress(result.job, *result.last))
        elif "adapter" in record:
            result.adapter = record["adapter"]
            result.weights, result.inputs = record.get("weights", ""), record.get("inputs", {})
        elif "broken" in record:
            result.broken = record["broken"]
        elif "error" in record:
            case = Case(**record["result"])
            result.errors[case] = record["error"]
            result.finished.add(case)
            on_progress(Progress(result.job, case))
        else:
            case = Case(**record["result"])
            rows = [OutputRow(**_storable(row)) for row in record["outputs"]]
            result.outputs += rows
            result.samples |= {
                row.key: decoded(text) for row, text in zip(rows, record["samples"], strict=False) if text
            }
            result.quantizers += [QuantizerRow(**_storable(row)) for row in record["quantizers"]]
            result.finished.add(case)
            on_progress(Progress(result.job, case, seconds=record["seconds"]["total"]))


def _storable(row: dict[str, Any]) -> dict[str, Any]:
    """A row as its file will hold it: a lone surrogate in a name or an error is written as an escape."""
    return {name: storable(value) if isinstance(value, str) else value for name, value in row.items()}


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
) -> list[GroupJob]:
    """One job a group; `source` stands in for the weights kind in the case where a path was given."""
    tag = "" if jitter is None else f"-jitter{jitter}"
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
        )
        for index, cases in enumerate(groups)
    ]
