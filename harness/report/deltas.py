"""What moved in a row group, in a few words: each output old → new, and the quantizers in one phrase."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from harness.records import OutputRow, QuantizerRow
from harness.report import phrases
from harness.report.causes import moved_bounds
from harness.report.groups import Group, Pair
from harness.report.phrases import fixed
from harness.verdicts import WORST_FIRST, Finding, Outcome

MOST_NAME = 96


@dataclass(frozen=True, slots=True)
class Delta:
    """One output that is not as accepted: `what` moved first, `39.17 → 37.66 dB (-1.51)`, and `more` findings."""

    output: str
    what: str
    more: tuple[str, ...] = ()
    waived: bool = False

    def __str__(self) -> str:
        return f"{shortened(self.output)} {'; '.join((self.what, *self.more))}{', waived' if self.waived else ''}"


def shortened(text: str, most: int = MOST_NAME) -> str:
    """Text of at most `most` characters: a longer one keeps its beginning and its end."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def outputs(group: Group) -> tuple[Delta, ...]:
    """The outputs that are not as accepted, worst first."""
    bad = [pair for pair in group.outputs if pair.verdict.outcome is not Outcome.OK]
    bad.sort(key=lambda pair: (bool(pair.verdict.waived), WORST_FIRST.index(pair.verdict.outcome)))
    return tuple(_output(pair) for pair in bad)


def _output(pair: Pair[OutputRow]) -> Delta:
    outcome, findings = pair.verdict.outcome, pair.verdict.findings
    first = next((item for item in findings if item.field == "sqnr_db"), findings[0] if findings else None)
    if outcome is Outcome.NEW:
        what = f"{phrases.row_value(pair.new)}, new"
    elif outcome is Outcome.MISSING or first is None:
        what = f"{phrases.row_value(pair.old)} → not measured"
    else:
        what = _finding(first)
    more = tuple(_finding(item) for item in findings if item is not first)
    return Delta(pair.verdict.name, what, more, bool(pair.verdict.waived))


def _finding(item: Finding) -> str:
    name = "" if item.field in ("sqnr_db", "status") else f"{phrases.UNITS.get(item.field, item.field)} "
    if item.limit is not None:
        return (
            f"{name}{phrases.number(item.field, item.new)}, must be at least {phrases.number(item.field, item.limit)}"
        )
    if item.field.endswith("_db") and isinstance(item.old, float | int) and isinstance(item.new, float | int):
        old, new, change = fixed(item.old, 2), fixed(item.new, 2), fixed(item.new - item.old, 2, "+")
        return f"{name}{old} → {new} dB ({change})"
    return f"{name}{phrases.old_new(item)}"


def ranges(group: Group) -> tuple[str, ...]:
    """The quantizers whose range moved, that which moved most first: `conv1:conv2d.input [0, 4.8] → [0, 2]`."""
    return tuple(f"{shortened(new.quantizer)} {_range(old)} → {_range(new)}" for old, new in moved_bounds(group))


def _range(row: QuantizerRow) -> str:
    return row.status if row.lo is None or row.hi is None else f"[{row.lo:.4g}, {row.hi:.4g}]"


def quantizers(group: Group) -> str:
    """How many ranges moved, and the one that moved most; how many other quantizers are not as accepted."""
    moved = ranges(group)
    parts = []
    if moved:
        which = "1 range moved:" if len(moved) == 1 else f"{len(moved)} ranges moved, most of all"
        parts.append(f"{which} {moved[0]}")
    told = {new.key for _, new in moved_bounds(group)}
    others = [
        pair.verdict
        for pair in group.quantizers
        if pair.verdict.outcome is not Outcome.OK and pair.verdict.key not in told
    ]
    counts = Counter(verdict.outcome for verdict in others)
    more = "more " if moved else ""
    parts += [f"{counts[outcome]} {more}{outcome}" for outcome in WORST_FIRST if counts[outcome]]
    return "; ".join(parts)
