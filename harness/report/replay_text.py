"""What came of a replay, in lines for people and as JSON for programs."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

from harness.records import FAILED
from harness.report.bundle_text import command_of, figure
from harness.report.deltas import shortened
from harness.report.phrases import UNITS, number
from harness.report.text import spoken

if TYPE_CHECKING:
    from harness.bundle_record import Bundle
    from harness.replay import Difference, Replayed, Value

SCHEMA = 1
_MOST_COLUMNS = 4
_MOST_QUANTIZERS = 10
_MOST_CAUSES = 30
_MOST_BATCHES = 10
_MOST_LINE, _MOST_COMMAND = 1000, 600
"""Signs. A row's error has up to 300, then and now."""
_HASH = 12
"""Signs of a hash that are shown; they tell two files apart."""


def lines(replayed: Replayed) -> list[str]:
    """`reproduced to the last bit: 24.10 dB` and what else is different, or each thing that differs.

    Names in it are a stranger's: no line is endless, and there are not endlessly many.
    """
    return [shortened(line, _MOST_LINE) for line in _lines(replayed)]


def _lines(replayed: Replayed) -> list[str]:
    record = replayed.bundle.record
    if replayed.reproduced:
        told = [f"different, but harmless: {line}" for line in _causes(replayed.differences)]
        return [f"reproduced to the last bit: {figure(record.row)}", *told]
    now = "not measured" if replayed.row is None else figure(replayed.row)
    row = record.row
    return [
        f"not reproduced: {row.case} {row.point} {row.output}: {_arrow(figure(row), now)}",
        *(f"- {line}" for line in (*_causes(replayed.differences), *_values(replayed.differences))),
        f"measured again by: {_command(record)}",
    ]


def _command(record: Bundle) -> str:
    """As it can be pasted; one that would be cut, or shown otherwise than it is, is not told."""
    command = command_of(record)
    if len(command) > _MOST_COMMAND or spoken(command) != command:
        return "sqnr run, with the case in `row` of bundle.json and each pattern in `excluded`"
    return command


def as_json(replayed: Replayed) -> str:
    """JSON text; every value is exact."""
    record = replayed.bundle.record
    content = {
        "schema": SCHEMA,
        "reproduced": replayed.reproduced,
        "case": asdict(record.row.case),
        "point": record.row.point,
        "output": record.row.output,
        "figure": figure(record.row),
        "differences": [asdict(item) for item in replayed.differences],
        "row": None if replayed.row is None else asdict(replayed.row),
        "command": command_of(record),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _causes(differences: tuple[Difference, ...]) -> list[str]:
    """A line for each thing with which the row was measured that is another; batches of a kind in one."""
    found = []
    batches: dict[str, list[Difference]] = defaultdict(list)
    for item in differences:
        if item.kind == "inputs":
            batches[item.name].append(item)
    for item in differences:
        if item.kind in ("stack", "machine"):
            absent = "not installed" if item.kind == "stack" else "none"
            found.append(f"{item.name} {_arrow(item.then or absent, item.now or absent)}")
        elif item.kind == "adapter":
            found.append(f"adapter {item.name}: {_files(item.then, item.now)}")
        elif item.kind == "weights":
            found.append(f"weights {item.name}: {_files(item.then, item.now)}")
        elif item.kind == "inputs" and (those := batches.pop(item.name, [])):
            found.append(_inputs(item.name, those))
    rest = len(found) - _MOST_CAUSES
    return [*found[:_MOST_CAUSES], f"and {rest} more: see --json"] if rest > 0 else found


def _inputs(kind: str, those: list[Difference]) -> str:
    other = [item.field.removeprefix("batch ") for item in those if None not in (item.then, item.now)]
    named = f"{', '.join(other[:_MOST_BATCHES])}{', ...' if len(other) > _MOST_BATCHES else ''}"
    parts = [f"batch{'es' if len(other) > 1 else ''} {named} with other data"] if other else []
    for count, what in ((sum(i.now is None for i in those), "fewer"), (sum(i.then is None for i in those), "more")):
        parts += [f"{count} batch{'es' if count > 1 else ''} {what}"] if count else []
    return f"{kind} inputs: {', '.join(parts)}"


def _files(then: Value, now: Value) -> str:
    if then is None or now is None:
        return "was not there" if then is None else "is gone"
    return f"another SHA-256, {str(then)[:_HASH]}... -> {str(now)[:_HASH]}..."


def _values(differences: tuple[Difference, ...]) -> list[str]:
    """A line for the output, for each of so many quantizers, and for each thing that the minimised graph says."""
    output = [item for item in differences if item.kind == "output"]
    rows: dict[str, list[Difference]] = defaultdict(list)
    for item in differences:
        if item.kind == "quantizer":
            rows[item.name].append(item)
    gone = [name for name, items in rows.items() if items[0].field == "status" and items[0].now is None]
    added = [name for name, items in rows.items() if items[0].field == "status" and items[0].then is None]
    moved = [name for name in rows if name not in gone and name not in added]
    found = [f"{output[0].name}: {_output(output)}"] if output else []
    found += [f"{_counted(names)} {what}" for names, what in ((gone, "gone"), (added, "added")) if names]
    found += [f"quantizer {name}: {_columns(rows[name])}" for name in moved[:_MOST_QUANTIZERS]]
    rest = len(moved) - _MOST_QUANTIZERS
    found += [f"... and {rest} more quantizers: see --json"] if rest > 0 else []
    return found + [f"minimised graph: {item.name}" for item in differences if item.kind == "minimal"]


def _output(items: list[Difference]) -> str:
    """All columns; where the row failed, once or now, its status and error: there are no others to compare."""
    told = [item for item in items if item.field in ("status", "error")]
    if any(str(value).startswith(FAILED) for item in told for value in (item.then, item.now)):
        items = told
    return ", ".join(map(_column, items))


def _counted(names: list[str]) -> str:
    if len(names) == 1:
        return f"quantizer {names[0]}:"
    return f"{len(names)} quantizers ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}):"


def _columns(items: list[Difference]) -> str:
    more = len(items) - _MOST_COLUMNS
    return ", ".join(map(_column, items[:_MOST_COLUMNS])) + (f", and {more} more columns" if more > 0 else "")


def _column(item: Difference) -> str:
    name = UNITS.get(item.field, item.field)
    then, now = number(item.field, item.then), number(item.field, item.now)
    # Two that look the same once rounded are shown exactly.
    return f"{name} {_arrow(then, now) if then != now else _arrow(item.then, item.now)}"


def _arrow(then: object, now: object) -> str:
    return f"{then} -> {now}"
