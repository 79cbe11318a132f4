"""The fix matrix: what each output is worth through each flow, as released and with each fix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pandas as pd

from harness.files import storable
from harness.records import FAILED, RELEASED, Case, FixState, OutputRow, Status
from harness.report.names import subject_names
from harness.report.order import natural, point_order, variant_order
from harness.report.phrases import fixed
from harness.verdicts import always_fails

LEGEND = {
    "=": "inert: the fix changed no qparam, node or output here",
    "↑": "upstreamed: the installed release is already right, so the fix was not applied",
    "?": "unknown: the place to repair was not found, the repair did not do its work, or its package is not installed",
    "!": "failed: a stage broke, or the output is not finite or of another shape",
}
"""What the sign before a cell's text means; a cell without one was measured as it stands."""

_MARKS = {
    FixState.INERT: "=",
    FixState.UPSTREAMED: "↑",
    FixState.UNKNOWN: "?",
    FixState.NOT_INSTALLED: "?",
}
_STATES = {
    FixState.NEEDED: "The fix is needed: it changed the quantized graph.",
    FixState.INERT: "The fix is inert: it changed nothing here.",
    FixState.UPSTREAMED: "Upstreamed: the installed release is already right, so the fix was not applied.",
    FixState.UNKNOWN: "State unknown: the place to repair was not found, or the repair did not do its work.",
    FixState.NOT_INSTALLED: "State unknown: the package to repair is not installed.",
}
_UNJUDGED = (Status.ZERO_SIGNAL, Status.EMPTY)
"""Statuses that rightly leave no dB."""
_COLUMNS = ["row", "flow", "variant", "point", "sqnr_db", "gain_db", "mark", "text", "hover"]
_Key = tuple[str, str, str, str, str, str]


def fix_matrix(rows: Iterable[OutputRow]) -> pd.DataFrame:
    """A line for each cell: an output of a model, through a flow that has fixes, in a variant, at its last point.

    `row` names model, size and output, and the weights where a model of that size has several. `sqnr_db` is in dB,
    NaN where there is none; `gain_db` is against released code at the same point. `text` stands in the cell and begins
    with `mark` (see `LEGEND`), `hover` says it in sentences. Names and errors are as users wrote them: escape them.
    """
    rows = list(rows)
    states = {row.case: row.fix_state for row in rows if row.fix_state}  # told at one point, if not the last
    last: dict[_Key, OutputRow] = {}
    for row in rows:
        key = (row.model, row.size, row.weights, row.output, row.flow, row.variant)
        if key not in last or point_order(row.point) >= point_order(last[key].point):
            last[key] = row
    mended = {row.flow for row in last.values() if row.variant != RELEASED}
    shown = [row for row in last.values() if row.flow in mended]
    names = _row_names(shown)
    shown.sort(key=lambda row: (natural(names[_subject(row)]), natural(row.flow), variant_order(row.variant)))
    cells = _cells(shown, names, last, states)
    return pd.DataFrame(cells, columns=_COLUMNS).astype({"sqnr_db": float, "gain_db": float})


def _cells(
    shown: list[OutputRow],
    names: dict[tuple[str, ...], str],
    last: dict[_Key, OutputRow],
    states: dict[Case, str],
) -> Iterator[list[object]]:
    for row in shown:
        name = names[_subject(row)]
        released = last.get((row.model, row.size, row.weights, row.output, row.flow, RELEASED))
        level, gain = _level(row), _gain(released, row)
        state = states.get(row.case, "")
        mark = _mark(row, state)
        text = " ".join(filter(None, (mark, _value(row))))
        where = [storable(part) for part in (name, row.flow, row.variant, row.point)]
        yield [*where, level, gain, mark, text, storable(_hover(name, row, released, gain, state))]


def _subject(row: OutputRow) -> tuple[str, ...]:
    return (row.model, row.size, row.weights, row.output)


def _row_names(rows: list[OutputRow]) -> dict[tuple[str, ...], str]:
    """The name of each subject's output."""
    names = subject_names((row.model, row.size, row.weights) for row in rows)
    return {_subject(row): f"{names[row.model, row.size, row.weights]} {row.output}" for row in rows}


def _level(row: OutputRow | None) -> float:
    """SQNR in dB; NaN where there is none."""
    value = None if row is None else row.sqnr_db
    return math.nan if value is None else value


def _gain(released: OutputRow | None, row: OutputRow) -> float:
    if released is None or row.variant == RELEASED or released.point != row.point:
        return math.nan
    return _level(row) - _level(released)


def _broken(row: OutputRow) -> bool:
    """Whether a row has no number and ought to have one."""
    absent = math.isnan(_level(row)) and row.status not in _UNJUDGED
    return absent or always_fails(row)


def _mark(row: OutputRow, state: str) -> str:
    return "!" if _broken(row) else next((sign for known, sign in _MARKS.items() if state == known), "")


def _value(row: OutputRow) -> str:
    """One decimal; `exact`; the stage that failed; or the status."""
    if row.status == Status.EXACT or math.isnan(_level(row)):
        return row.status.removeprefix(FAILED).replace("_", " ")
    return fixed(_level(row), 1)


def _in_db(row: OutputRow | None) -> str:
    if row is None:
        return "not measured"
    if row.status.startswith(FAILED):
        return f"failed in {row.status.removeprefix(FAILED)}"
    if math.isnan(_level(row)):
        return row.status.replace("_", " ")
    return f"{fixed(_level(row), 2)} dB" + (" (exact)" if row.status == Status.EXACT else "")


def _hover(name: str, row: OutputRow, released: OutputRow | None, gain: float, state: str) -> str:
    how = "as released" if row.variant == RELEASED else f"with {row.variant}"
    where = f"{name} through {row.flow} {how}, {row.point}"
    if row.variant == RELEASED:
        text = f"{where}: {_in_db(row)}."
    else:
        difference = "" if math.isnan(gain) else f", gain {fixed(gain, 2, '+')} dB"
        text = f"{where}: {_in_db(released)} as released, {_in_db(row)} repaired{difference}."
    sentence = next((sentence for known, sentence in _STATES.items() if state == known), "")
    return " ".join(filter(None, (text, sentence, f"Error: {row.error}" if row.error else "")))
