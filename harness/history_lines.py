"""What the lines of a history are: their columns, and how a stored run or a benchmark's file becomes lines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from harness import extra
from harness.environment import PINS, STACK
from harness.errors import TableError
from harness.files import storable
from harness.measure.speed import SpeedRow
from harness.records import OutputRow
from harness.store import COMPLETE, Run

SCHEMA = 3
"""Raised whenever the columns change, such as with a new field of a row or a new package of `STACK`."""

KIND = "kind"
BENCH = "bench"
"""The `suite` of lines that come from benchmarks."""
RUN_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("run_id", "run", "started", "suite", "run_status", "filtered"), str),
    **dict.fromkeys(("platform", "python", "cpu", "pinned", *STACK), str),
    "started": datetime,
    "filtered": bool,
    "pinned": bool,
}
"""Columns that say of which run a line is."""
SCHEMA_KEY = b"sqnr_history_schema"
WHAT = "the history"
"""What needs the optional packages."""
_ISA_PINS = tuple(name for name in PINS if not name.endswith("THREADS") and not name.startswith("HF_"))
_LONGEST_ERROR = 300


class Kind(StrEnum):
    """What a line is about: an output of a run, or the speed of a case's program."""

    OUTPUT = "output"
    SPEED = "speed"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run on its way into a history: its identity, its start (UTC), and its header and output rows."""

    run_id: str
    started: datetime
    run: Run

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.run.name

    @property
    def rows(self) -> list[OutputRow]:
        """One for each line."""
        return self.run.outputs

    def head(self) -> dict[str, Any]:
        """The columns that all its lines share, but for `environment`'s."""
        plan = self.run.plan
        return {
            "suite": plan.suite,
            "run_status": self.run.status,
            "filtered": bool(plan.filtered),
        }

    @property
    def environment(self) -> Mapping[str, Any]:
        """Where it was measured, as `harness.environment.fingerprint` says it."""
        return self.run.environment


@dataclass(frozen=True, slots=True)
class StoredBench:
    """A benchmark's file on its way into a history: identity, start (UTC), its name, and the speeds in it."""

    run_id: str
    started: datetime
    name: str
    rows: list[SpeedRow]
    environment: Mapping[str, Any]

    def head(self) -> dict[str, Any]:
        """The columns that all its lines share, but for `environment`'s."""
        return {"suite": BENCH, "run_status": COMPLETE, "filtered": False}


Stored = StoredRun | StoredBench


def identity(header: bytes, outputs: bytes = b"") -> str:
    """What tells a run from every other: a digest of its run.json and outputs.csv, or of a benchmark's one file."""
    return hashlib.sha256(b"%d:%b%b" % (len(header), header, outputs)).hexdigest()[:16]


def instant(where: Path, name: str, text: object) -> datetime:
    """A time as UTC, which it is taken for where it does not say. Raises `TableError` for what is no time."""
    try:
        found = datetime.fromisoformat(text)  # type: ignore[arg-type]
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise TableError(f"{where}: {name}: {text!r} is no ISO 8601 time") from None


def columns_of(row_type: type[OutputRow] | type[SpeedRow]) -> dict[str, type]:
    """The fields of a row with their types; each may be absent from a line."""
    hints = get_type_hints(row_type)
    return {field.name: (get_args(hints[field.name]) or (hints[field.name],))[0] for field in fields(row_type)}


def schema() -> Any:
    """The columns of a history's table: kind, run, and those of either kind of row."""
    arrow = extra.load(WHAT, "pyarrow")
    kinds = {str: arrow.string(), bool: arrow.bool_(), float: arrow.float64(), int: arrow.int64()}
    kinds[datetime] = arrow.timestamp("us", tz="UTC")
    columns = {KIND: str, **RUN_COLUMNS, **columns_of(OutputRow), **columns_of(SpeedRow)}
    return arrow.schema([(name, kinds[kind]) for name, kind in columns.items()], metadata={SCHEMA_KEY: b"%d" % SCHEMA})


def lines_of(stored: Stored) -> Any:
    """The table's lines of a run or a benchmark's file. Raises `TableError` for numbers that no column can hold."""
    arrow, rows, layout = extra.load(WHAT, "pyarrow"), stored.rows, schema()
    row_type = OutputRow if isinstance(stored, StoredRun) else SpeedRow
    columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in layout.names}
    columns |= {name: [value] * len(rows) for name, value in _shared(stored).items()}
    columns |= {name: [getattr(row, name) for row in rows] for name in columns_of(row_type)}
    columns["error"] = [error if error is None else error[:_LONGEST_ERROR] for error in columns["error"]]
    try:
        return arrow.table(columns, schema=layout)
    except (arrow.ArrowException, OverflowError) as error:
        where = stored.run.folder if isinstance(stored, StoredRun) else stored.name
        raise TableError(f"{where}: cannot be kept in a history: {error}") from None


def _shared(stored: Stored) -> dict[str, str | bool | datetime]:
    """The columns that all lines of a run share."""
    environment = stored.environment
    pins, stack = environment.get("pins"), environment.get("stack", {})
    head = {name: _text(value) if not isinstance(value, bool) else value for name, value in stored.head().items()}
    return {
        KIND: Kind.OUTPUT if isinstance(stored, StoredRun) else Kind.SPEED,
        "run_id": stored.run_id,
        "run": _text(stored.name),
        "started": stored.started,
        **head,
        **{name: _text(environment.get(name)) for name in ("platform", "python", "cpu")},
        "pinned": isinstance(pins, dict) and all(pins.get(name) == PINS[name] for name in _ISA_PINS),
        **{package: _text(stack.get(package)) for package in STACK},
    }


def _text(value: object) -> str:
    """Text that UTF-8 can say: folder names and run.json may hold lone surrogates."""
    return "" if value is None else storable(str(value))
