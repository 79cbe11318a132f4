"""A stored run against the accepted baselines: the judgement that `check`, `gate` and `report` show. Writes nothing."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import baseline as baselines
from harness.compare import Rows, compare, exit_code
from harness.errors import ExitCode, NoBaselineError
from harness.records import Point, QuantizerRow, QuantizerStatus, Role
from harness.store import COMPLETE, Run
from harness.verdicts import Finding, Outcome, Verdict
from harness.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Before:
    """What a run is judged by: the accepted baseline, another run, or nothing, and then the name is empty."""

    name: str = ""
    rows: Rows = field(default_factory=lambda: Rows({}, {}))
    environments: tuple[Mapping[str, Any], ...] = ()
    """Where and with what its rows were measured, as `harness.environment.fingerprint` has it; each once."""
    excluded: tuple[str, ...] = ()
    """Quantizers that were left in float for it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts, worst first, and what they come to."""

    verdicts: tuple[Verdict, ...]
    exit_code: ExitCode
    before: Before = Before()
    notes: tuple[str, ...] = ()
    """Things to know that are no verdict: expired waivers, an interrupted run, other stack versions."""
    acceptable: bool = True
    """Whether accepting the run would settle the verdicts: not if judged by another run, measured elsewhere, or with
    quantizers left in float."""


def judge(workspace: Workspace, run: Run, today: datetime.date | None = None) -> Judgement:
    """Judge a run by the baselines of the platform it was measured on.

    Raises `TableError` for an unreadable baseline and `NoBaselineError` where that platform has none.
    """
    today = today or datetime.date.today()
    accepted = _accepted(workspace, run)
    before = Before(
        f"baseline {_folder_for(workspace, run).name}",
        Rows(accepted.outputs, accepted.quantizers),
        tuple(accepted.environments_of(run.plan.cases)),
    )
    verdicts = _verdicts(workspace, run, before.rows, today)
    notes = (*_left_in_float(run), *workspace.settings.expired(today), *_stack_notes(run, accepted), *_unfinished(run))
    return Judgement(tuple(verdicts), exit_code(verdicts), before, notes, acceptable=_is_acceptable(workspace, run))


def _folder_for(workspace: Workspace, run: Run) -> Path:
    """Where the baselines of the platform lie that a run was measured on: this machine's if it was not recorded."""
    return workspace.baselines / str(run.environment.get("platform", workspace.platform_baselines.name))


def _is_here(workspace: Workspace, run: Run) -> bool:
    return _folder_for(workspace, run) == workspace.platform_baselines


def _is_acceptable(workspace: Workspace, run: Run) -> bool:
    return _is_here(workspace, run) and not run.excluded


def _accepted(workspace: Workspace, run: Run) -> baselines.Baseline:
    folder = _folder_for(workspace, run)
    if not _is_here(workspace, run) and not any(folder.glob("*.csv")):
        raise NoBaselineError(
            f"{folder}: no baselines for {folder.name}, where run {run.name} was measured; accept a run there first, "
            "or compare two runs: sqnr compare"
        )
    return baselines.read(folder)


def judge_or_none(workspace: Workspace, run: Run, today: datetime.date | None = None) -> Judgement:
    """As `judge`; where there is no baseline, every row is new and a note says why."""
    today = today or datetime.date.today()
    try:
        return judge(workspace, run, today)
    except NoBaselineError as error:
        before = Before()
        verdicts = _verdicts(workspace, run, before.rows, today)
        notes = (str(error), *_left_in_float(run), *workspace.settings.expired(today), *_unfinished(run))
        return Judgement(tuple(verdicts), ExitCode.INCOMPLETE, before, notes, acceptable=_is_acceptable(workspace, run))


def judge_runs(workspace: Workspace, *, base: Run, head: Run, today: datetime.date | None = None) -> Judgement:
    """Judge run `head` with run `base` as its baseline; cases that only one of them planned are missing or new.

    A head with quantizers left in float is about its own cases alone.
    """
    today = today or datetime.date.today()
    before = Before(f"run {base.name}", rows_of(base), (base.environment,), base.excluded)
    verdicts = _verdicts(workspace, head, before.rows, today, whole=not head.excluded)
    verdicts = verdicts if head.excluded or not base.excluded else _with_levels(verdicts, before.rows, rows_of(head))
    then, now = base.environment.get("stack", {}), head.environment.get("stack", {})
    moved = [
        f"{package} {then.get(package, 'not installed')} -> {now.get(package, 'not installed')}"
        for package in sorted(then.keys() | now.keys())
        if then.get(package) != now.get(package)
    ]
    notes = (
        *_left_in_float(base, f"run {base.name}"),
        *_left_in_float(head, f"run {head.name}"),
        *workspace.settings.expired(today),
        *_differences(base, head),
        *moved,
        *_unfinished(base, f"run {base.name}", "new"),
        *_unfinished(head, f"run {head.name}"),
    )
    return Judgement(tuple(verdicts), exit_code(verdicts), before, notes, acceptable=False)


def _left_in_float(run: Run, name: str = "the run") -> list[str]:
    """A line if a run is not what upstream makes of its models."""
    return [f"{name} left quantizers in float (--exclude): {', '.join(run.excluded)}"] if run.excluded else []


def _unfinished(run: Run, name: str = "the run", outcome: str = "missing") -> list[str]:
    """A line if a run was interrupted or is still going on."""
    return [] if run.status == COMPLETE else [f"{name} is {run.status}: what it did not reach is {outcome}"]


def _differences(base: Run, head: Run) -> list[str]:
    """A line for each thing by which two runs can differ without a change of code; what one did not record is none."""
    sides = [
        {
            "suites differ": run.plan.suite,
            "seeds differ": run.seed,
            "platforms differ": run.environment.get("platform"),
            **{f"pin {name} differs": value or "none" for name, value in run.environment.get("pins", {}).items()},
        }
        for run in (base, head)
    ]
    return [
        f"{what}: {old}, {new}"
        for what, old in sides[0].items()
        if (new := sides[1].get(what)) != old and None not in (old, new)
    ]


def _verdicts(
    workspace: Workspace, run: Run, accepted: Rows, today: datetime.date, *, whole: bool = False
) -> list[Verdict]:
    measured = rows_of(run)
    verdicts = compare(
        baseline=accepted,
        measured=measured,
        in_scope=(lambda _row: True) if whole else run.plan.scope(),
        settings=workspace.settings,
        suite=run.plan.suite,
        today=today,
    )
    return _with_levels(verdicts, accepted, measured) if run.excluded else verdicts


def _with_levels(verdicts: list[Verdict], old: Rows, new: Rows) -> list[Verdict]:
    """Verdicts that say what a changed output gained or lost: fewer quantizers change it, and what for is the point."""
    told = []
    for verdict in verdicts:
        before, now = old.outputs.get(verdict.key), new.outputs.get(verdict.key)
        if verdict.outcome is Outcome.CHANGED and before is not None and now is not None:
            level = Finding("sqnr_db", before.sqnr_db, now.sqnr_db)
            verdict = replace(verdict, findings=(*verdict.findings, level))
        told.append(verdict)
    return told


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
