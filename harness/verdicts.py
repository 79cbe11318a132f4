"""The judgement on rows as frozen records, and the rows that fail or pass whatever their numbers are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.records import (
    RELEASED,
    Case,
    Cause,
    FixState,
    OutputRow,
    QuantizerStatus,
    Row,
    Status,
)


class Outcome(StrEnum):
    """The judgement on one row."""

    OK = "ok"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    CHANGED = "changed"
    NEW = "new"
    MISSING = "missing"
    FAILED = "failed"


NEVER_GOOD = frozenset({Status.NONFINITE_ACTUAL, Status.NONFINITE_REFERENCE, Status.MISMATCH})
"""Statuses of outputs that fail even when the baseline says the same."""
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


def is_known_failure(old: OutputRow | None, new: OutputRow) -> bool:
    """Whether a failed row fails as its accepted row does: in the same stage, and with its fixes in the same state.

    A fix of unknown state, or whose package is missing, is no known failure whatever was accepted.
    """
    untold = new.fix_state in (FixState.UNKNOWN, FixState.NOT_INSTALLED)
    return old is not None and (old.status, old.fix_state) == (new.status, new.fix_state) and not untold


def always_fails(row: Row) -> bool:
    """Whether a row fails whatever the baseline says.

    Outputs that are not finite or of another shape do, quantizers whose scale is not finite, and an annotated edge
    that a variant leaves without a quantizer: a repair may not trade a wrong quantizer for none.
    """
    if isinstance(row, OutputRow):
        return row.status in NEVER_GOOD
    lost = row.variant != RELEASED and row.cause == Cause.UNQUANTIZED
    return row.status == QuantizerStatus.NONFINITE or lost
