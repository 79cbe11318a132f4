"""What a run that was interrupted or killed has measured already, and whether it can be gone on with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness import environment
from harness.errors import UsageError
from harness.parts import GroupResult, PartReader
from harness.records import Case
from harness.scratch import held_folder
from harness.store import COMPLETE, Run
from harness.worker import GroupJob
from harness.workspace import Workspace

_MUST_AGREE = ("platform", "python", "cpu", "stack", "pins")


@contextmanager
def held(run: Run) -> Iterator[None]:
    """Keep a run's folder from being gone on with elsewhere.

    Raises `UsageError` if another process has it.
    """
    with held_folder(run.folder) as mine:
        if not mine:
            raise UsageError(f"run {run.name} is still being measured by another process")
        yield


def check_resumable(run: Run) -> Run:
    """The run; raises `UsageError` if it is complete, or was begun elsewhere or on another stack."""
    if run.status == COMPLETE:
        raise UsageError(f"run {run.name} is complete, nothing is left to measure: sqnr check {run.name}")
    if not run.parts.is_dir():
        raise UsageError(f"run {run.name} has no folder parts/: nothing of it can be taken over; measure again")
    here = environment.fingerprint()
    other = [name for name in _MUST_AGREE if run.environment.get(name) != here[name]]
    if other:
        was, now = run.environment.get(other[0]), here[other[0]]
        raise UsageError(
            f"run {run.name} was begun with another {other[0]} ({_shown(was, now)}, here {_shown(now, was)}): its rows "
            "and new ones would not be of one measurement; measure again"
        )
    return run


def _shown(mine: object, other: object) -> str:
    """A fact of an environment; of a table what is not the same in the other."""
    if not (isinstance(mine, dict) and isinstance(other, dict)):
        return str(mine)
    told = [f"{key} {value or 'unset'}" for key, value in mine.items() if other.get(key) != value]
    return ", ".join(told) or "none"


def kept_results(workspace: Workspace, run: Run) -> list[GroupResult]:
    """What the part files hold: the finished cases of each, which nobody measures again.

    Raises `UsageError` if a model was changed between attempts.
    """
    kept, taken = [], set[Case]()
    for part in sorted(run.parts.glob("*.jsonl")):
        reader = PartReader(GroupResult(GroupJob(workspace.start, run.plan.cases, "", run.seed, part, part)))
        reader.read()
        result = _without(reader.result, taken)
        if result.finished:
            taken |= result.finished
            kept.append(result)
    check_same_models(kept)
    return kept


def _without(result: GroupResult, taken: set[Case]) -> GroupResult:
    """A result of the cases it finished, but for those taken: a process can outlive its parent for a moment."""
    finished = result.finished - taken
    return replace(
        result,
        job=replace(result.job, cases=tuple(case for case in result.job.cases if case in finished)),
        finished=finished,
        outputs=[row for row in result.outputs if row.case in finished],
        quantizers=[row for row in result.quantizers if row.case in finished],
    )


def attempt_tag(run: Run) -> str:
    """What tells the part files and logs of an attempt from those of the ones before."""
    told = [re.search(r"-again(\d+)$", part.stem) for part in run.parts.glob("*.jsonl")]
    return f"-again{1 + max(int(found[1]) if found else 0 for found in told)}" if told else ""


def check_same_models(results: Iterable[GroupResult]) -> None:
    """Raise `UsageError` if attempts had another model by the same name."""
    known: dict[tuple[str, ...], object] = {}
    for result in results:
        if result.weights:
            told = (result.weights, result.inputs, result.adapter)
            if known.setdefault(result.job.subject, told) != told:
                raise UsageError(
                    f"{'/'.join(result.job.subject)} is another model than when the run began (weights, data or "
                    "adapter changed): its rows would not be of one measurement; measure again"
                )
