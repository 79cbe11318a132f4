"""The judgement on rows as frozen records; `harness.compare` makes them, reports show them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.records import Case


class Outcome(StrEnum):
    """The judgement on one row."""

    OK = "ok"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    CHANGED = "changed"
    NEW = "new"
    MISSING = "missing"
    FAILED = "failed"


FAILING = (Outcome.REGRESSED, Outcome.CHANGED, Outcome.FAILED)
"""Outcomes of measured rows that somebody has to look into, unless they are waived."""
WORST_FIRST = (
    Outcome.REGRESSED,
    Outcome.CHANGED,
    Outcome.FAILED,
    Outcome.MISSING,
    Outcome.IMPROVED,
    Outcome.NEW,
    Outcome.OK,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One judged field of a row: `old` is the baseline's value, `new` the measured one, `allowed` the tolerance.

    `limit` is set where the value broke a limit that holds without a baseline.
    """

    field: str
    old: float | int | str | None
    new: float | int | str | None
    allowed: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on one row: an output or a quantizer (`kind`), called `name`, at a point of a case.

    `error` is a failed row's own; `loss_db` sorts the worst first.
    """

    case: Case
    kind: str
    point: str
    name: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    error: str = ""
    loss_db: float = 0.0
    waived: str = ""

    @property
    def label(self) -> str:
        """Point and name, which tell a row from the others of its case."""
        return f"{self.point} {self.name}"

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the judged row."""
        case = self.case
        return (case.model, case.size, case.weights, case.flow, case.variant, self.point, self.name)
