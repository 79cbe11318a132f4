"""What the page says of failures and cases, as text that is ready to be laid out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.records import FAILED, Case, OutputRow, Status, released_of
from harness.report import phrases
from harness.report.changes import siblings
from harness.report.groups import Group, Pair
from harness.report.logs import log_of
from harness.report.order import natural, point_order, variant_order
from harness.store import Run
from harness.verdicts import Outcome

_COLUMNS = (
    ("before", "before"),
    ("after", "after"),
    ("change, dB", "delta"),
    ("noise floor, dB", "noise"),
    ("worst sample", "worst"),
    ("largest error", "error"),
    ("top-1", "accuracy"),
    ("fix", "state"),
    ("cause", "cause"),
)
_MOST_FINDINGS = 25
_LONGEST_SLUG = 150


@dataclass(frozen=True, slots=True)
class Level:
    """One output at one point: before and after, in words, and what became of it."""

    point: str
    output: str
    sign: str
    outcome: str
    waived: str
    before: str
    after: str
    delta: str
    noise: str
    worst: str
    error: str
    accuracy: str
    state: str
    cause: str


@dataclass(frozen=True, slots=True)
class Failure:
    """One stage that failed with one error, of a case and of its other variants, and the end of its log."""

    case: str
    others: tuple[str, ...]
    anchor: str
    points: str
    stage: str
    error: str
    known: bool
    log: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaseView:
    """Everything about one case."""

    case: str
    anchor: str
    subject: str
    flow: str
    variant: str
    sign: str
    outcome: str
    waived: str
    headline: str
    levels: tuple[Level, ...]
    findings: tuple[str, ...]
    more: int

    @property
    def columns(self) -> list[tuple[str, str]]:
        """(heading, field of a level) of numbers and words that any output of the case has."""
        return [(heading, field) for heading, field in _COLUMNS if any(getattr(one, field) for one in self.levels)]


def anchors(cases: Iterable[Case]) -> dict[Case, str]:
    """An address within the page for each case, readable, and distinct whatever the names are."""
    found: dict[Case, str] = {}
    taken: set[str] = set()
    for case in sorted(set(cases)):
        words = str(case).replace("+", " with ")
        slug = "case-" + (re.sub(r"[^a-z0-9]+", "-", words.lower())[:_LONGEST_SLUG].strip("-") or "unnamed")
        found[case] = slug if slug not in taken else f"{slug}--{len(found)}"
        taken.add(slug)
    return found


def failures(run: Run, groups: Iterable[Group], names: dict[Case, str]) -> list[Failure]:
    """One entry for each model, flow, stage and error, those that are no known failures first."""
    found: dict[tuple[bool, Case, str, str], list[Group]] = {}
    for group in groups:
        for pair in group.outputs:
            if pair.new is not None and pair.new.status.startswith(FAILED):
                known = pair.verdict.outcome is Outcome.OK
                key = (known, released_of(group.case), pair.new.status.removeprefix(FAILED), pair.new.error)
                found.setdefault(key, []).append(group)
    return [_failure(run, key, members, names) for key, members in sorted(found.items(), key=lambda item: item[0])]


def _failure(run: Run, key: tuple[bool, Case, str, str], groups: list[Group], names: dict[Case, str]) -> Failure:
    known, _, stage, error = key
    first, *others = sorted({group.case for group in groups}, key=case_order)
    return Failure(
        case=str(first),
        others=tuple(case.variant for case in others),
        anchor=names[first],
        points=", ".join(sorted({group.point for group in groups}, key=point_order)),
        stage=stage,
        error=error,
        known=known,
        log=tuple(log_of(run, first).splitlines()),
    )


def case_views(groups: list[Group], names: dict[Case, str]) -> dict[str, list[CaseView]]:
    """All cases by model, size and weights, in natural order."""
    found: dict[str, list[CaseView]] = {}
    by_case = siblings(groups)
    for case in sorted(by_case, key=case_order):
        ordered = sorted(by_case[case].values(), key=lambda group: point_order(group.point))
        view = _case_view(case, names[case], ordered)
        found.setdefault(view.subject, []).append(view)
    return found


def case_order(case: Case) -> Any:
    """Sort key of cases: natural, released before its variants."""
    return natural(case.model), case.size, case.weights, natural(case.flow), variant_order(case.variant)


def _case_view(case: Case, anchor: str, groups: list[Group]) -> CaseView:
    worst = min(groups, key=lambda group: (not group.notable, group.rank))
    findings = [
        f"{phrases.SYMBOLS[item.outcome]} {phrases.verdict(item).removeprefix(f'{case} ')}"
        for group in groups
        for item in group.notable
    ]
    return CaseView(
        case=str(case),
        anchor=anchor,
        subject=f"{case.model}/{case.size}/{case.weights}",
        flow=case.flow,
        variant=case.variant,
        sign=phrases.SYMBOLS[worst.outcome],
        outcome=worst.outcome,
        waived=worst.waived,
        headline=", ".join(f"{pair.verdict.name} {phrases.row_value(pair.new)}" for pair in groups[-1].outputs),
        levels=tuple(_level(pair) for group in groups for pair in group.outputs),
        findings=tuple(findings[:_MOST_FINDINGS]),
        more=max(0, len(findings) - _MOST_FINDINGS),
    )


def _level(pair: Pair[OutputRow]) -> Level:
    old, new = pair.old, pair.new
    row = new or old
    assert row is not None
    noise = row.noise_db if old is None else old.noise_db
    return Level(
        point=row.point,
        output=row.output,
        sign=phrases.SYMBOLS[pair.verdict.outcome],
        outcome=pair.verdict.outcome,
        waived=pair.verdict.waived,
        before=_value(old),
        after=_value(new),
        delta=_delta(old, new),
        noise="" if noise is None else f"{noise:.2g}",
        worst=_or_nothing("sqnr_min_db", row.sqnr_min_db),
        error=_or_nothing("max_abs_err", row.max_abs_err),
        accuracy=_or_nothing("task_metric", row.task_metric),
        state=row.fix_state,
        cause=row.cause,
    )


def _value(row: OutputRow | None) -> str:
    return Status.EXACT if row is not None and row.status == Status.EXACT else phrases.row_value(row)


def _delta(old: OutputRow | None, new: OutputRow | None) -> str:
    if old is None or new is None or old.sqnr_db is None or new.sqnr_db is None:
        return ""
    return phrases.fixed(new.sqnr_db - old.sqnr_db, 2, "+")


def _or_nothing(field: str, value: float | None) -> str:
    return "" if value is None else phrases.number(field, value)
