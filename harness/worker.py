"""What a measuring process does: one model's cases, each result appended to a part file as it is measured.

The part file is the only channel to the parent, so what was measured survives whatever happens to the process.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.adapter import USUAL_GIB, Size
from harness.memory import limit_memory
from harness.records import SPILL_PREFIX, Case, Point, Stage

if TYPE_CHECKING:
    from harness.fixes.states import Diagnosis
    from harness.pipeline import Pipeline


_SPILLS: list[Path] = []
"""Folders of reference outputs that this process wrote."""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """Cases that share one float model, and where their results go.

    `weights_source` is what the adapter's `build` is given: the kind, or a path. `jitter` seeds a noise-floor replica.
    `points` are the only ones to measure; None is all.
    """

    start: Path
    cases: tuple[Case, ...]
    weights_source: str
    seed: int
    part: Path
    log: Path
    jitter: int | None = None
    points: frozenset[Point] | None = None
    excluded: tuple[str, ...] = ()
    """Quantizers to leave in float, names or shell patterns."""
    unlowered: frozenset[Case] = frozenset()
    """Cases to measure as far as the converted graph."""
    memory: float = USUAL_GIB
    """What the process needs, GiB, as the adapter says."""

    @property
    def subject(self) -> tuple[str, str, str]:
        """(model, size, weights) that all cases share."""
        first = self.cases[0]
        return first.model, first.size, first.weights


def start_worker(memory: float | None = None) -> None:
    """Make a process one that measures, with at most `memory` GiB of data of its own.

    Ctrl-C is the parent's to handle: it keeps what was measured and ends its workers itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if memory is not None:
        limit_memory(memory)
    os.dup2(2, 1)  # standard output is for results; what an adapter or an upstream prints is not one
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    warnings.simplefilter("ignore")  # upstream deprecations are not what a run is about


def _end_with_parent(parent: int) -> None:
    """Leave when the parent was killed: nobody would read what this process goes on to measure, or tidy up after it."""
    while os.getppid() == parent:
        time.sleep(1)
    for spill in _SPILLS:
        shutil.rmtree(spill, ignore_errors=True)
    os._exit(1)


def describe_model(start: Path, name: str) -> dict[str, Size]:
    """Sizes of an adapter of the workspace at `start`; raises whatever keeps it from being imported.

    Plain `Size` objects: the parent cannot unpickle a class that only an adapter knows.
    """
    from harness.workspace import find_workspace

    logging.disable(logging.WARNING)
    sizes = find_workspace(start).load_adapter(name).SIZES
    return {
        str(size): Size(tuple(one.weights), tuple(one.outputs), one.labelled, float(one.cost), float(one.memory))
        for size, one in sizes.items()
    }


def diagnose_fixes(names: list[str]) -> list[Diagnosis]:
    """Measure the state of fixes of one package, one after the other."""
    import torch

    from harness import fixes
    from harness.fixes.states import diagnose

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    return [diagnose(fix) for fix in fixes.installed() if fix.name in names]


def run_group(job: GroupJob) -> None:
    """Measure a group; never raises for what a model or an upstream does.

    What upstreams print, and where a signal met the process, goes to the group's log.
    """
    with job.part.open("a", encoding="utf-8") as part, job.log.open("a", encoding="utf-8") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        faulthandler.enable(2)

        def emit(**record: Any) -> None:
            part.write(json.dumps(record, allow_nan=False) + "\n")
            part.flush()
            if "result" in record:
                os.fsync(part.fileno())  # what was measured outlives this process, its parent and a power failure

        try:
            _measure(job, emit)
        except Exception as error:
            # Whatever stopped the group before or between its cases: the parent turns it into rows for all it owed.
            emit(broken=f"{type(error).__name__}: {error}")
            _log(job, "".join(traceback.format_exception(error)))


def _measure(job: GroupJob, emit: Any) -> None:
    emit(stage=Stage.LOAD, case=asdict(job.cases[0]))
    import torch

    torch.set_num_threads(1)
    from harness.pipeline import Pipeline
    from harness.sources import file_hash, source_hashes
    from harness.subject import Subject
    from harness.workspace import find_workspace

    logging.disable(logging.WARNING)
    workspace = find_workspace(job.start)
    first = job.cases[0]
    file = workspace.models / f"{first.model}.py"
    emit(adapter={file.name: file_hash(file)} if file.exists() else {})  # should it not even be importable
    adapter = workspace.load_adapter(first.model)
    with tempfile.TemporaryDirectory(prefix=SPILL_PREFIX, dir=job.part.parent) as spill:
        _SPILLS.append(Path(spill))
        with torch.no_grad():
            subject = Subject(adapter, first.size, job.weights_source, job.seed, job.jitter, Path(spill))
        torch.set_num_threads(1)  # whatever the adapter asked for: the number of threads moves the numbers
        try:
            emit(weights=subject.digest, inputs=subject.input_hashes, adapter=source_hashes(adapter))
            pipeline = Pipeline(subject, lambda case, stage: emit(stage=stage, case=asdict(case)), job.excluded)
            for case in job.cases:
                emit(**_measure_case(job, case, pipeline))
        finally:
            subject.close()


def _measure_case(job: GroupJob, case: Case, pipeline: Pipeline) -> dict[str, Any]:
    from harness import fixes, flows
    from harness.samples import encoded

    start = time.perf_counter()
    only = job.points if job.jitter is None else frozenset({Point.CONVERTED, Point.LOWERED})
    try:
        flow, repairs = flows.load(case.flow), fixes.of_variant(case.variant, fixes.installed())
        result = pipeline.measure(case, flow.unlowered() if case in job.unlowered else flow, repairs, only)
    except Exception as error:
        _log(job, f"{case}\n{''.join(traceback.format_exception(error))}")
        return {"result": asdict(case), "error": f"{type(error).__name__}: {error}"}
    if result.log:
        _log(job, result.log)
    return {
        "result": asdict(case),
        "outputs": [asdict(row) for row in result.outputs],
        "quantizers": [asdict(row) for row in result.quantizers],
        "samples": [] if job.jitter is not None else [encoded(result.samples.get(row.key)) for row in result.outputs],
        "seconds": {**result.seconds, "total": time.perf_counter() - start},
    }


def _log(job: GroupJob, text: str) -> None:
    with job.log.open("a", encoding="utf-8") as log:
        log.write(text + "\n")


def group_cases(cases: Iterable[Case]) -> list[tuple[Case, ...]]:
    """Cases that share a model, size and weights, in the order in which their groups first appear."""
    groups: dict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.model, case.size, case.weights].append(case)
    return [tuple(group) for group in groups.values()]
