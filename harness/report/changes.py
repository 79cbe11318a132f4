"""What is not as accepted, in words: an entry for each row group, equal ones of several variants as one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.records import Case, released_of
from harness.report import deltas, phrases
from harness.report.causes import likely_cause
from harness.report.deltas import Delta
from harness.report.groups import Group
from harness.report.order import variant_order
from harness.verdicts import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Change:
    """A row group that is not as accepted, of one variant of a case or of several that changed alike.

    `variants` begin with that of `case`. `loss_db` is the largest loss among the rows: infinite where a number is gone,
    negative where it is a gain. `ranges` are those that moved, `quantizers` says in a phrase what became of all.
    """

    outcome: Outcome
    waived: str
    case: Case
    point: str
    variants: tuple[str, ...]
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
        return "all" if self.loss_db == math.inf else f"{self.loss_db:.2f}" if self.loss_db else ""

    @property
    def alike(self) -> tuple[str, ...]:
        """The other variants of the case that changed in the same way."""
        return self.variants[1:]


def changes(groups: Iterable[Group]) -> list[Change]:
    """What is not as accepted, in the order given: worst first.

    Variants of a case that say the same at the same point are one change, named by the first of them.
    """
    found: dict[Change, Change] = {}
    groups = list(groups)
    by_case = siblings(groups)
    for group in groups:
        if not group.notable:
            continue
        change = _change(group, by_case[group.case])
        same = replace(change, case=released_of(change.case), variants=())
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
    return Change(
        outcome=group.outcome,
        waived=group.waived,
        case=group.case,
        point=group.point,
        variants=(group.case.variant,),
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
