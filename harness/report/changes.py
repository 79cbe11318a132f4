"""What changed, in words: a line for each row group that is not as accepted, equal ones of several variants as one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.records import Case, OutputRow, QuantizerRow, Status, released_of
from harness.report import phrases
from harness.report.causes import likely_cause, moved_bounds
from harness.report.groups import Group, Pair
from harness.report.order import variant_order
from harness.verdicts import Outcome

_MOST_BOUNDS = 3
_TOLD_APART = ("sqnr_db", "status")
"""Findings that before and after already tell."""


@dataclass(frozen=True, slots=True)
class Level:
    """One output at one point: before and after, in words, and what became of it.

    `details` are the findings that SQNR does not tell, such as `worst SQNR 3.99 dB → -14.01 dB`.
    """

    point: str
    output: str
    sign: str
    outcome: str
    before: str
    after: str
    delta: str
    details: tuple[str, ...]
    noise: str
    worst: str
    error: str
    accuracy: str
    state: str
    cause: str


@dataclass(frozen=True, slots=True)
class Change:
    """A row group that is not as accepted, of one variant of a case or of several that changed alike.

    `loss_db` is the largest loss among its rows: infinite where a number is gone, negative where it is a gain.
    """

    outcome: Outcome
    waived: str
    case: Case
    point: str
    variants: tuple[str, ...]
    loss_db: float
    levels: tuple[Level, ...]
    bounds: tuple[str, ...]
    more_bounds: int
    cause: str

    @property
    def sign(self) -> str:
        """The outcome's sign."""
        return phrases.SYMBOLS[self.outcome]

    @property
    def loss(self) -> str:
        """Decibels lost, a gain with a minus; empty where none is involved."""
        return "all" if math.isinf(self.loss_db) else f"{self.loss_db:.2f}" if self.loss_db else ""


def changes(groups: Iterable[Group]) -> list[Change]:
    """What is not as accepted, in the order given: worst first.

    Variants of a case that say the same at the same point are one change, named by the first of them.
    """
    found: dict[object, Change] = {}
    groups = list(groups)
    by_case = siblings(groups)
    for group in groups:
        if not group.notable:
            continue
        change = _change(group, by_case[group.case])
        alike = tuple(replace(one, state="", cause="", noise="") for one in change.levels)
        same = replace(change, case=released_of(change.case), variants=(), levels=alike)
        earlier = found.setdefault(same, change)
        if earlier is not change:
            variants = sorted((*earlier.variants, group.case.variant), key=variant_order)
            found[same] = replace(earlier, case=replace(earlier.case, variant=variants[0]), variants=tuple(variants))
    return list(found.values())


def siblings(groups: Iterable[Group]) -> dict[Case, dict[str, Group]]:
    """The groups of each case by point."""
    found: dict[Case, dict[str, Group]] = {}
    for group in groups:
        found.setdefault(group.case, {})[group.point] = group
    return found


def _change(group: Group, others: dict[str, Group]) -> Change:
    moved = moved_bounds(group)
    return Change(
        outcome=group.outcome,
        waived=group.waived,
        case=group.case,
        point=group.point,
        variants=(group.case.variant,),
        loss_db=max((verdict.loss_db for verdict in group.notable), key=abs),
        levels=tuple(level(pair) for pair in group.outputs if pair.verdict.outcome is not Outcome.OK),
        bounds=tuple(f"{new.quantizer} {_range(old)} → {_range(new)}" for old, new in moved[:_MOST_BOUNDS]),
        more_bounds=max(0, len(moved) - _MOST_BOUNDS),
        cause=likely_cause(group, others),
    )


def _range(row: QuantizerRow) -> str:
    return row.status if row.lo is None or row.hi is None else f"[{row.lo:.4g}, {row.hi:.4g}]"


def level(pair: Pair[OutputRow]) -> Level:
    """One output in words."""
    old, new = pair.old, pair.new
    row = new or old
    assert row is not None
    noise = row.noise_db if old is None else old.noise_db
    return Level(
        point=row.point,
        output=row.output,
        sign=phrases.SYMBOLS[pair.verdict.outcome],
        outcome=pair.verdict.outcome,
        before=_value(old),
        after=_value(new),
        delta=_delta(old, new),
        details=tuple(
            f"{phrases.UNITS.get(item.field, item.field)} {phrases.old_new(item)}"
            for item in pair.verdict.findings
            if item.field not in _TOLD_APART
        ),
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
    return f"{new.sqnr_db - old.sqnr_db:+.2f}"


def _or_nothing(field: str, value: float | None) -> str:
    return "" if value is None else phrases.number(field, value)
