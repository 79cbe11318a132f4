"""Turns a run's rows into the baseline; the only thing that writes one."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from harness import baseline as baselines
from harness.baseline import Baseline
from harness.environment import PINS, platform_name
from harness.errors import AcceptRefusedError, unknown_name
from harness.noise_floor import NoiseFloor, Sources
from harness.records import FAILED, Case, OutputRow, QuantizerRow, Row
from harness.store import COMPLETE, Run
from harness.verdicts import always_fails, is_known_failure
from harness.workspace import Workspace

R = TypeVar("R", OutputRow, QuantizerRow)


@dataclass(frozen=True, slots=True)
class Request:
    """Which rows to accept, and why. Patterns are shell-style; `rows` match whole keys joined by `/`."""

    because: str
    models: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def explicit(self) -> bool:
        """Whether the user said which rows."""
        return bool(self.models or self.flows or self.rows)

    def wants(self, row: Row) -> bool:
        """Whether a row was asked for."""
        return (
            _matches(row.model, self.models)
            and _matches(row.flow, self.flows)
            and _matches("/".join(row.key), self.rows)
        )

    def names(self, row: Row) -> bool:
        """Whether a row was asked for by key, not merely swept along by a model or flow."""
        return bool(self.rows) and self.wants(row)


def _matches(value: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(value == pattern or fnmatchcase(value, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Change:
    """One row that an accept replaces, adds (no `old`) or removes (no `new`)."""

    old: Row | None
    new: Row | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new baseline and how it differs from the present one."""

    baseline: Baseline
    changes: tuple[Change, ...]
    cases: tuple[Case, ...]


def check_acceptable(run: Run, request: Request, present: Baseline) -> None:
    """Raise `AcceptRefusedError` for a run that is no measure for this platform, or whose rows were not named.

    A failure that the present baseline knows already needs no naming.
    """
    if not request.because.strip():
        raise AcceptRefusedError('accept needs a reason: --because "..."')
    if run.excluded:
        raise AcceptRefusedError(
            f"run {run.name} left quantizers in float ({', '.join(run.excluded)}): a baseline is what upstream makes "
            "of a model; run it without --exclude"
        )
    if run.status != COMPLETE and not request.explicit:
        raise AcceptRefusedError(f"run {run.name} is {run.status}, not complete; name what to accept: -m, -f or --row")
    if run.plan.filtered and not request.explicit:
        raise AcceptRefusedError(
            f"run {run.name} measured a selection of {len(run.plan.cases)} cases, not a whole suite; "
            "name what to accept: -m, -f or --row"
        )
    _check_environment(run)
    _check_names(run, request, present)
    rows: list[Row] = [*run.outputs, *run.quantizers]
    bad = [row for row in rows if request.wants(row) and always_fails(row)]
    if bad:
        raise AcceptRefusedError(
            f"{_name(bad[0])} is {bad[0].status} ({len(bad)} such rows): this fails whatever the baseline says; "
            "mend it, or accept the other rows by name: -m, -f or --row"
        )
    broken = [
        row
        for row in run.outputs
        if request.wants(row)
        and row.status.startswith(FAILED)
        and not request.names(row)
        and not is_known_failure(present.outputs.get(row.key), row)
    ]
    if broken:
        raise AcceptRefusedError(
            f"{_name(broken[0])} is {broken[0].status}: {broken[0].error} ({len(broken)} such rows); to make a "
            f"known failure the baseline, name it: --row '{'/'.join(broken[0].key)}'"
        )


def _check_environment(run: Run) -> None:
    measured_on = run.environment.get("platform", platform_name())
    if measured_on != platform_name():
        raise AcceptRefusedError(f"run {run.name} was measured on {measured_on}, this is {platform_name()}")
    pins = {key: value for key, value in run.environment.get("pins", {}).items() if key in PINS}
    loose = [key for key, value in pins.items() if value != PINS[key]]
    if loose:
        raise AcceptRefusedError(
            f"run {run.name} was measured without its pins ({', '.join(loose)}); run it without --no-pin and --isa"
        )


def _check_names(run: Run, request: Request, present: Baseline) -> None:
    """Every model and flow named must be in the run or the baseline, and some row must fit."""
    rows: list[Row] = [*run.outputs, *run.quantizers, *present.outputs.values(), *present.quantizers.values()]
    for kind, wanted in (("model", request.models), ("flow", request.flows)):
        known = {str(getattr(row, kind)) for row in rows}
        for pattern in wanted:
            if not _matches_any(known, pattern):
                raise unknown_name(f"measured or accepted {kind}", pattern, known)
    if not any(request.wants(row) for row in rows):
        raise AcceptRefusedError(f"no row of run {run.name} or of the baseline fits --row {' '.join(request.rows)}")


def _matches_any(values: set[str], pattern: str) -> bool:
    return any(_matches(value, (pattern,)) for value in values)


def _name(row: Row) -> str:
    return f"{row.case} {row.point} {row.key[-1]}"


def propose(run: Run, request: Request, present: Baseline, noise: NoiseFloor | None) -> Proposal:
    """The baseline after accepting; `noise=None` keeps the stored noise of rows that have one.

    A complete run also removes the rows it answers for and did not measure.
    """
    scope = _replaceable(run)
    outputs = _merge(present.outputs, run.outputs, request, scope)
    quantizers = _merge(present.quantizers, run.quantizers, request, scope)
    sources = Sources(run)
    for row in outputs.values():
        if request.wants(row) and scope(row):
            old = present.outputs.get(row.key) or present.outputs.get(sources.key(row))
            kept = old.noise_db if old else None
            outputs[row.key] = replace(row, noise_db=noise.outputs.get(row.key) if noise else kept)
    for quantizer in quantizers.values():
        if request.wants(quantizer) and scope(quantizer):
            before = present.quantizers.get(quantizer.key)
            kept = before.noise_rel if before else None
            quantizers[quantizer.key] = replace(
                quantizer, noise_rel=noise.quantizers.get(quantizer.key) if noise else kept
            )
    changes = [*_changes(present.outputs, outputs), *_changes(present.quantizers, quantizers)]
    rows: list[Row] = [*run.outputs, *run.quantizers]
    touched = {row.case for row in rows if request.wants(row)}
    cases = tuple(case for case in run.plan.cases if case in touched)
    return Proposal(Baseline(outputs, quantizers, list(present.accepted)), tuple(changes), cases)


def _replaceable(run: Run) -> Callable[[Row], bool]:
    """Whose baseline rows a run may replace or remove: a complete run's whole scope, else only measured cases."""
    answered = frozenset(row.case for row in run.outputs)
    in_scope = run.plan.scope()
    return lambda row: in_scope(row) and (run.status == COMPLETE or row.case in answered)


def _merge(
    present: dict[tuple[str, ...], R], measured: list[R], request: Request, scope: Callable[[Row], bool]
) -> dict[tuple[str, ...], R]:
    kept = {key: row for key, row in present.items() if not (scope(row) and request.wants(row))}
    return kept | {row.key: row for row in measured if request.wants(row)}


def _changes(old: dict[tuple[str, ...], R], new: dict[tuple[str, ...], R]) -> list[Change]:
    return [
        Change(old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    ]


def write(workspace: Workspace, run: Run, request: Request, proposal: Proposal) -> None:
    """Write the proposal with its journal entry. The caller holds the lock."""
    entry: dict[str, Any] = {
        "because": request.because,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "suite": run.plan.suite,
        "subjects": sorted({f"{case.model}/{case.size}/{case.weights}" for case in proposal.cases}),
        "rows": len(proposal.changes),
        "stack": run.environment.get("stack", {}),
        "cpu": run.environment.get("cpu", ""),
        "pins": run.environment.get("pins", {}),
    }
    proposal.baseline.accepted.append(entry)
    baselines.write(workspace.platform_baselines, proposal.baseline)
