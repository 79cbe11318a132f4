"""Judges a pair of rows, or lists of them, as the gate would, on a fixed day."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from harness.compare import Rows, compare
from harness.records import Row
from harness.settings import Settings
from harness.verdicts import Outcome, Verdict
from tests.rows import by_key, outputs_of, quantizers_of

TODAY = datetime.date(2026, 1, 31)
OK, IMPROVED, REGRESSED, CHANGED = Outcome.OK, Outcome.IMPROVED, Outcome.REGRESSED, Outcome.CHANGED
NEW, MISSING, FAILED = Outcome.NEW, Outcome.MISSING, Outcome.FAILED


def judge_all(
    old: Sequence[Row],
    new: Sequence[Row],
    *,
    settings: Settings | None = None,
    suite: str = "gate",
    in_scope: Callable[[Row], bool] = lambda _row: True,
) -> list[Verdict]:
    """Verdicts on all rows, worst first."""
    return compare(
        baseline=Rows(by_key(outputs_of(old)), by_key(quantizers_of(old))),
        measured=Rows(by_key(outputs_of(new)), by_key(quantizers_of(new))),
        in_scope=in_scope,
        settings=settings or Settings(),
        suite=suite,
        today=TODAY,
    )


def judge(old: Row | None, new: Row | None, **options: Any) -> Verdict:
    """The one verdict on a row."""
    (verdict,) = judge_all([old] if old else [], [new] if new else [], **options)
    return verdict


def fields_of(verdict: Verdict) -> list[str]:
    """The fields that were found to differ."""
    return [finding.field for finding in verdict.findings]
