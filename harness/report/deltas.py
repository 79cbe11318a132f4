"""What moved in a row group, in a few words: each output old → new, and the quantizers in one phrase."""

from __future__ import annotations

from collections import Counter

from harness.records import OutputRow
from harness.report import phrases
from harness.report.causes import moved_bounds
from harness.report.groups import Group, Pair
from harness.verdicts import WORST_FIRST, Finding, Outcome

MOST_NAME = 96


def shortened(text: str, most: int = MOST_NAME) -> str:
    """Text of at most `most` characters: a longer one keeps its beginning and its end."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def outputs(group: Group) -> list[str]:
    """A phrase for each output that is not as accepted, worst first: `logits 39.17 → 37.66 dB (−1.51)`."""
    bad = [pair for pair in group.outputs if pair.verdict.outcome is not Outcome.OK]
    bad.sort(key=lambda pair: (bool(pair.verdict.waived), WORST_FIRST.index(pair.verdict.outcome)))
    return [_output(pair) for pair in bad]


def _output(pair: Pair[OutputRow]) -> str:
    waived = ", waived" if pair.verdict.waived else ""
    return f"{shortened(pair.verdict.name)} {_what(pair)}{waived}"


def _what(pair: Pair[OutputRow]) -> str:
    outcome, findings = pair.verdict.outcome, pair.verdict.findings
    if outcome is Outcome.NEW:
        return f"{phrases.row_value(pair.new)}, new"
    if outcome is Outcome.MISSING or not findings:
        return f"{phrases.row_value(pair.old)} → not measured"
    return _finding(next((item for item in findings if item.field == "sqnr_db"), findings[0]))


def _finding(item: Finding) -> str:
    name = "" if item.field in ("sqnr_db", "status") else f"{phrases.UNITS.get(item.field, item.field)} "
    if item.limit is not None:
        return (
            f"{name}{phrases.number(item.field, item.new)}, must be at least {phrases.number(item.field, item.limit)}"
        )
    if item.field.endswith("_db") and isinstance(item.old, float | int) and isinstance(item.new, float | int):
        difference = f"{item.new - item.old:+.2f}".replace("-", "−")
        return f"{name}{item.old:.2f} → {item.new:.2f} dB ({difference})"
    return f"{name}{phrases.old_new(item)}"


def quantizers(group: Group) -> str:
    """How many ranges moved, and the one that moved most; how many other quantizers are not as accepted."""
    moved = moved_bounds(group)
    parts = []
    if moved:
        old, new = moved[0]
        which = "1 range moved:" if len(moved) == 1 else f"{len(moved)} ranges moved, most of all"
        bounds = f"{phrases.row_value(old)} → {phrases.row_value(new)}"
        parts.append(f"{which} {shortened(new.quantizer)} {bounds}")
    told = {new.key for _, new in moved}
    others = [
        pair.verdict
        for pair in group.quantizers
        if pair.verdict.outcome is not Outcome.OK and pair.verdict.key not in told
    ]
    counts = Counter(verdict.outcome for verdict in others)
    more = "more " if moved else ""
    parts += [f"{counts[outcome]} {more}{outcome}" for outcome in WORST_FIRST if counts[outcome]]
    return "; ".join(parts)
