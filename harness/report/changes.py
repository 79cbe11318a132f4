"""What is not as accepted, in words: an entry for each row group, equal ones of one model as one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.records import RELEASED, Case
from harness.report import deltas, phrases
from harness.report.causes import likely_cause
from harness.report.deltas import Delta
from harness.report.groups import Group
from harness.report.order import natural, variant_order
from harness.report.phrases import old_new
from harness.verdicts import Outcome, Verdict

_MOST_ALIKE = 4


@dataclass(frozen=True, slots=True)
class Change:
    """A row group that is not as accepted, with others of its model, at its point, that changed in the same words.

    `cases` are all of them, `case` the first in natural order. `loss_db` is the largest loss among the rows: infinite
    where a number is gone, negative where it is a gain. `ranges` are those that moved, `quantizers` says in a phrase
    what became of all.
    """

    outcome: Outcome
    waived: str
    cases: tuple[Case, ...]
    point: str
    loss_db: float
    outputs: tuple[Delta, ...]
    ranges: tuple[str, ...]
    quantizers: str
    cause: str

    @property
    def sign(self) -> str:
        """The outcome's sign."""
        return phrases.SYMBOLS[self.outcome]

    @property
    def loss(self) -> str:
        """Decibels lost, a gain with a minus; empty where none is involved."""
        return "all" if self.loss_db == math.inf else phrases.fixed(self.loss_db, 2) if self.loss_db else ""

    @property
    def case(self) -> Case:
        """The case that stands for all."""
        return self.cases[0]

    @property
    def alike(self) -> str:
        """The others, in a phrase: variants of the same flow by their names, others with their flow; or nothing."""
        others = [
            case.variant if case.flow == self.case.flow else f"{case.flow} {case.variant}".removesuffix(f" {RELEASED}")
            for case in self.cases[1:]
        ]
        left = len(others) - _MOST_ALIKE
        more = [f"{left} more"] if left > 0 else []
        return f"alike with {', '.join((*others[:_MOST_ALIKE], *more))}" if others else ""


def changes(groups: Iterable[Group]) -> list[Change]:
    """What is not as accepted, in the order given: worst first. Cases of a model that say the same are one change."""
    found: dict[object, list[Change]] = {}
    groups = list(groups)
    by_case = siblings(groups)
    for group in groups:
        if group.notable:
            change = _change(group, by_case[group.case])
            found.setdefault((_words(change), _rows(group)), []).append(change)
    return [_together(same) for same in found.values()]


def _words(change: Change) -> Change:
    """What a change says, whichever flow and variant of its model says it."""
    return replace(change, cases=(replace(change.case, flow="", variant=""),), loss_db=0.0)


def _rows(group: Group) -> frozenset[object]:
    """Which rows are not as accepted, and in which words: two that only count the same are not alike."""
    return frozenset(
        (item.kind, item.name, item.outcome, item.error, tuple(f"{f.field} {old_new(f)}" for f in item.findings))
        for item in group.notable
    )


def _together(same: list[Change]) -> Change:
    cases = sorted((change.case for change in same), key=lambda case: (natural(case.flow), variant_order(case.variant)))
    return replace(same[0], cases=tuple(cases))


def siblings(groups: Iterable[Group]) -> dict[Case, dict[str, Group]]:
    """The groups of each case by point."""
    found: dict[Case, dict[str, Group]] = {}
    for group in groups:
        found.setdefault(group.case, {})[group.point] = group
    return found


def _change(group: Group, others: dict[str, Group]) -> Change:
    return Change(
        outcome=group.outcome,
        waived=group.waived,
        cases=(group.case,),
        point=group.point,
        loss_db=_loss_db(group.notable),
        outputs=deltas.outputs(group),
        ranges=deltas.ranges(group),
        quantizers=deltas.quantizers(group),
        cause=likely_cause(group, others),
    )


def _loss_db(verdicts: Iterable[Verdict]) -> float:
    """The largest loss, or the largest gain where nothing is lost; NaN is a loss of all."""
    losses = [math.inf if math.isnan(verdict.loss_db) else verdict.loss_db for verdict in verdicts]
    return max(losses) if max(losses) > 0 else min(losses)
