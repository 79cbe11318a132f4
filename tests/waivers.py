"""Judgements in which some verdicts are waived."""

from __future__ import annotations

from dataclasses import replace

from harness.judge import Judgement
from harness.store import Run


def waived(made: tuple[Run, Judgement], *names: str, reason: str = "issue 7") -> tuple[Run, Judgement]:
    """The same judgement with the verdicts on the rows of these names waived."""
    run, judgement = made
    verdicts = (replace(one, waived=reason) if one.name in names else one for one in judgement.verdicts)
    return run, replace(judgement, verdicts=tuple(verdicts))
