"""A stored run against the accepted baselines: the judgement that `check`, `gate` and `report` show. Writes nothing."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness import baseline as baselines
from harness.compare import Rows, compare, exit_code
from harness.errors import ExitCode, NoBaselineError
from harness.records import Point, QuantizerRow, QuantizerStatus, Role
from harness.store import COMPLETE, Run
from harness.verdicts import Verdict
from harness.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Before:
    """What a run is judged by: the accepted baseline, another run, or nothing, and then the name is empty."""

    name: str = ""
    rows: Rows = field(default_factory=lambda: Rows({}, {}))
    environments: tuple[Mapping[str, Any], ...] = ()
    """Where and with what its rows were measured, as `harness.environment.fingerprint` has it; each once."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts, worst first, and what they come to."""

    verdicts: tuple[Verdict, ...]
    exit_code: ExitCode
    before: Before = Before()
    notes: tuple[str, ...] = ()
    """Things to know that are no verdict: expired waivers, an interrupted run, other stack versions."""


def judge(workspace: Workspace, run: Run, today: datetime.date | None = None) -> Judgement:
    """Judge a run. Raises `TableError` for an unreadable baseline and `NoBaselineError` where there is none."""
    today = today or datetime.date.today()
    accepted = baselines.read(workspace.platform_baselines)
    before = Before(
        f"baseline {workspace.platform_baselines.name}",
        Rows(accepted.outputs, accepted.quantizers),
        tuple(accepted.environments_of(run.plan.cases)),
    )
    verdicts = _verdicts(workspace, run, before.rows, today)
    notes = [*workspace.settings.expired(today), *_stack_notes(run, accepted)]
    if run.status != COMPLETE:
        notes.append(f"the run is {run.status}: what it did not reach is missing")
    return Judgement(tuple(verdicts), exit_code(verdicts), before, tuple(notes))


def judge_or_none(workspace: Workspace, run: Run) -> Judgement:
    """As `judge`; where there is no baseline, every row is new and a note says why."""
    try:
        return judge(workspace, run)
    except NoBaselineError as error:
        before = Before()
        verdicts = _verdicts(workspace, run, before.rows, datetime.date.today())
        return Judgement(tuple(verdicts), ExitCode.INCOMPLETE, before, (str(error),))


def judge_runs(workspace: Workspace, *, base: Run, head: Run) -> Judgement:
    """Judge run `head` with run `base` as its baseline; cases that only one of them planned are missing or new."""
    before = Before(f"run {base.name}", rows_of(base), (base.environment,))
    verdicts = _verdicts(workspace, head, before.rows, datetime.date.today(), whole=True)
    then, now = base.environment.get("stack", {}), head.environment.get("stack", {})
    notes = [
        f"{package} {then.get(package, 'not installed')} -> {now.get(package, 'not installed')}"
        for package in sorted(then.keys() | now.keys())
        if then.get(package) != now.get(package)
    ]
    return Judgement(tuple(verdicts), exit_code(verdicts), before, tuple(notes))


def _verdicts(
    workspace: Workspace, run: Run, accepted: Rows, today: datetime.date, *, whole: bool = False
) -> list[Verdict]:
    return compare(
        baseline=accepted,
        measured=rows_of(run),
        in_scope=(lambda _case: True) if whole else run.plan.scope(),
        settings=workspace.settings,
        suite=run.plan.suite,
        today=today,
    )


def rows_of(run: Run) -> Rows:
    """A run's rows by key."""
    return Rows({row.key: row for row in run.outputs}, {row.key: row for row in run.quantizers})


def _stack_notes(run: Run, accepted: baselines.Baseline) -> list[str]:
    """One line for each package whose version differs from the one some baseline was measured with."""
    now: dict[str, str] = run.environment.get("stack", {})
    moved = {
        (package, version)
        for case in run.plan.cases
        for package, version in accepted.stack_of(case).items()
        if now.get(package) != version
    }
    return [f"{package} {version} -> {now.get(package, 'not installed')}" for package, version in sorted(moved)]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the weights that an integer kernel could take have a quantizer, and the names of the rest."""

    quantized: int
    quantizable: int
    rest: tuple[str, ...]


def coverage(rows: list[QuantizerRow]) -> Coverage:
    """Coverage over the rows of one case."""
    weights = [row for row in rows if row.role == Role.WEIGHT and row.point == Point.CONVERTED]
    rest = tuple(row.quantizer for row in weights if row.status == QuantizerStatus.UNQUANTIZED)
    return Coverage(len(weights) - len(rest), len(weights), rest)
