"""The count at the end of a run: each planned output row once, and nothing besides.

Rows of what could not be measured are made here, from the plan; what the count then finds wrong is a defect of the
harness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness import flows
from harness.errors import CensusError
from harness.parts import GroupResult
from harness.records import Case, Point, Stage, failed_rows
from harness.store import INTERRUPTED, Run
from harness.suite import Sizes

ANY_OUTPUT = "*"
"""Output name in the rows of a model whose adapter cannot say what it returns."""


def gather(run: Run, results: list[GroupResult], sizes: Sizes) -> None:
    """Take over all rows, and make a failed one for every planned output that has none.

    An interrupted run has none for the cases that it did not come to.
    """
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
            stage, error = _reason(result, case)
            planned = failed_rows(case, _points(case, run), _outputs(case, sizes), stage, error)
            run.outputs += [row for row in planned if row.key not in measured]


def check(run: Run, sizes: Sizes) -> None:
    """Raise `CensusError` unless a complete run has each planned output row once, and no row of any other case."""
    planned = {
        row.key
        for case in run.plan.cases
        for row in failed_rows(case, _points(case, run), _outputs(case, sizes), Stage.LOAD, "")
    }
    found = Counter(row.key for row in run.outputs)
    cases = frozenset(run.plan.cases)
    quantizers = Counter(row.key for row in run.quantizers)
    wrong = {
        "missing": planned - found.keys(),
        "not planned": found.keys() - planned | {row.key for row in run.quantizers if row.case not in cases},
        "twice": [key for counts in (found, quantizers) for key, count in counts.items() if count > 1],
    }
    told = [f"{len(keys)} rows {what}, such as {' '.join(sorted(keys)[0])}" for what, keys in wrong.items() if keys]
    if told:
        raise CensusError(f"the rows of {run.folder} are not those that were planned: {'; '.join(told)}")


def _reason(result: GroupResult, case: Case) -> tuple[Stage, str]:
    """(stage, error) of a case that left no rows."""
    if case in result.errors:
        return Stage.EXPORT, result.errors[case]
    last_case, last_stage = result.last or (case, Stage.LOAD)
    stage = last_stage if last_case == case or last_stage is Stage.LOAD else Stage.LOAD
    return stage, result.broken or "the measuring process left no row"


def _outputs(case: Case, sizes: Sizes) -> Iterable[str]:
    known = sizes.get(case.model)
    return known[case.size].outputs if known is not None else (ANY_OUTPUT,)


def _points(case: Case, run: Run) -> Iterable[Point]:
    try:
        flow = flows.load(case.flow)
        return (flow.unlowered() if case in run.plan.unlowered else flow).points
    except Exception:
        # A flow that cannot be imported still owes a row at each point a flow usually has.
        return (Point.FLOAT, Point.PREPARED, Point.CONVERTED)
