"""What to do if the numbers of a run are right: the command that makes them the baseline."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.judge import Judgement
from harness.report.text import spoken
from harness.store import COMPLETE, Run
from harness.verdicts import NEVER_GOOD, Outcome, Verdict

_MOST_SIGNS = 600
"""A longer command would name more models than anybody wants to read; nor is one told whose names cannot be."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A command that `accept` takes as it stands, and what it leaves out; either may be empty."""

    command: str = ""
    note: str = ""

    @property
    def lines(self) -> list[str]:
        """Both as sentences."""
        rest = "If the rest is intended" if self.command else "If intended"
        return [f"{start}: {text}" for start, text in (("If intended", self.command), (rest, self.note)) if text]


def advice(run: Run, judgement: Judgement, *, named: bool = True) -> Advice:
    """How to accept what a run measured; nothing where it was judged by another run, or all is as accepted.

    The run is `named`, unless it is known to be the latest where the advice is read. `accept` refuses models of which
    a row failed, so those are left out of the command.
    """
    bad = [verdict for verdict in judgement.verdicts if verdict.outcome is not Outcome.OK and not verdict.waived]
    refused = {verdict.case.model for verdict in bad if _is_refused(verdict)}
    asked = [verdict for verdict in bad if not _is_refused(verdict) and not _is_unreached(verdict, run)]
    if not judgement.acceptable or not asked:
        return Advice()
    note = f"{', '.join(sorted(refused))}: a row failed, so mend it, or name the rows to accept with --row"
    models = sorted({verdict.case.model for verdict in asked} - refused)
    flows = sorted({verdict.case.flow for verdict in asked if verdict.case.model not in refused})
    if not models:
        return Advice(note=note)
    words = ["sqnr", "accept", *([run.name] if named else []), *(word for name in models for word in ("-m", name))]
    words += ["-f", flows[0]] if len(flows) == 1 else []
    command = f'{shlex.join(words)} --because "..."'
    if len(command) > _MOST_SIGNS or spoken(command) != command:
        return Advice(note="sqnr accept, narrowed with -m and -f to the rows that are right")
    return Advice(command, note if refused else "")


def _is_unreached(verdict: Verdict, run: Run) -> bool:
    """Whether a row is missing because the run was cut off: accepting would not remove it."""
    return verdict.outcome is Outcome.MISSING and run.status != COMPLETE


def _is_refused(verdict: Verdict) -> bool:
    """Whether accept would refuse the row; the only regression of a quantizer's status is one."""
    status = next((finding.new for finding in verdict.findings if finding.field == "status"), None)
    lost = verdict.kind == "quantizer" and verdict.outcome is Outcome.REGRESSED and status is not None
    return verdict.outcome is Outcome.FAILED or status in NEVER_GOOD or lost
