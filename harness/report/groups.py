"""Verdicts by row group: the outputs and quantizers of one case at one point, old and new, and what became of them.

A group is what people read as one thing: a line of the pull-request comment, a test case of the JUnit file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.judge import Judgement, rows_of
from harness.records import Case, OutputRow, QuantizerRow
from harness.store import Run
from harness.verdicts import WORST_FIRST, Outcome, Verdict

R = TypeVar("R", OutputRow, QuantizerRow)


@dataclass(frozen=True, slots=True)
class Pair(Generic[R]):
    """One judged row: its verdict, and the row as accepted and as measured; an absent side is None."""

    verdict: Verdict
    old: R | None
    new: R | None


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one case at one point, worst verdicts first."""

    case: Case
    point: str
    outputs: tuple[Pair[OutputRow], ...]
    quantizers: tuple[Pair[QuantizerRow], ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, outputs first."""
        return (*(pair.verdict for pair in self.outputs), *(pair.verdict for pair in self.quantizers))

    @property
    def notable(self) -> tuple[Verdict, ...]:
        """The verdicts that are not ok, outputs first."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is not Outcome.OK)

    @property
    def outcome(self) -> Outcome:
        """The worst outcome that is not waived; the worst of all where every one is."""
        firm = [verdict for verdict in self.notable if not verdict.waived] or self.notable
        return min((verdict.outcome for verdict in firm), key=WORST_FIRST.index, default=Outcome.OK)

    @property
    def rank(self) -> tuple[bool, int]:
        """Sorts the worst group first, waived ones last."""
        return bool(self.waived), WORST_FIRST.index(self.outcome)

    @property
    def waived(self) -> str:
        """The reason why nothing here counts; empty if something does, or nothing needs to be waived."""
        return "" if not all(item.waived for item in self.notable) else next((v.waived for v in self.notable), "")


def groups(run: Run, judgement: Judgement) -> list[Group]:
    """All row groups of a judged run, that with the worst verdict first."""
    old, new = judgement.before.rows, rows_of(run)
    found: dict[tuple[Case, str], list[Verdict]] = {}
    for verdict in judgement.verdicts:
        found.setdefault((verdict.case, verdict.point), []).append(verdict)
    made = [
        Group(
            case,
            point,
            tuple(Pair(v, old.outputs.get(v.key), new.outputs.get(v.key)) for v in of_kind(verdicts, "output")),
            tuple(
                Pair(v, old.quantizers.get(v.key), new.quantizers.get(v.key)) for v in of_kind(verdicts, "quantizer")
            ),
        )
        for (case, point), verdicts in found.items()
    ]
    return sorted(made, key=lambda group: group.rank)


def of_kind(verdicts: list[Verdict], kind: str) -> Iterator[Verdict]:
    """The verdicts on outputs, or those on quantizers."""
    return (verdict for verdict in verdicts if verdict.kind == kind)
