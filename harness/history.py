"""The history of runs: one parquet table with a line for each output row of each stored run.

A line says of its run: `run_id` (a digest of its content: two machines may name their runs alike), `run` (folder name),
`started` (UTC), `suite`, `run_status` (complete, interrupted), `filtered`, `platform`, `python`, `cpu`, `pinned`
(whether the instruction sets were pinned as for baselines), and for each package of `harness.environment.STACK` its
version, empty if it was not installed. The other columns are the fields of `OutputRow`, exact.
docs/history.md describes the use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from filelock import FileLock, Timeout

from harness import extra
from harness.environment import PINS, STACK
from harness.errors import TableError, UsageError
from harness.files import replace_all, storable
from harness.records import OutputRow
from harness.store import Run

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 2
"""Raised whenever the columns change, such as with a new field of `OutputRow` or a new package of `STACK`."""

KEY = ("model", "size", "weights", "flow", "variant", "point", "output")
_RUN_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("run_id", "run", "started", "suite", "run_status", "filtered"), str),
    **dict.fromkeys(("platform", "python", "cpu", "pinned", *STACK), str),
    "started": datetime,
    "filtered": bool,
    "pinned": bool,
}
_SCHEMA_KEY = b"sqnr_history_schema"
_ISA_PINS = tuple(name for name in PINS if not name.endswith("THREADS") and not name.startswith("HF_"))
_LONGEST_ERROR = 300
_LOCK_SECONDS = 60
_WHAT = "the history"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A finished run on its way into a history: its identity, its start (UTC), and its header and output rows."""

    run_id: str
    started: datetime
    run: Run


def identity(header: bytes, outputs: bytes) -> str:
    """What tells a run from every other: a digest of the content of its run.json and outputs.csv."""
    return hashlib.sha256(b"%d:%b%b" % (len(header), header, outputs)).hexdigest()[:16]


def append(file: Path, runs: Iterable[StoredRun]) -> int:
    """Add to a history those runs that it does not hold yet, and say how many; the file is made if there is none.

    Safe from several processes at once. Raises `TableError` for a file that is damaged or no history of this schema and
    `UsageError` where it cannot be written; both leave it as it was.
    """
    arrow, parquet = extra.load(_WHAT, "pyarrow"), extra.load(_WHAT, "pyarrow.parquet")
    with _locked(file):
        kept = _load(file) if file.exists() else _schema().empty_table()
        new = {stored.run_id: stored for stored in runs if stored.run.outputs}
        for run_id in _ids(kept):
            new.pop(run_id, None)
        if new:
            buffer = arrow.BufferOutputStream()
            parquet.write_table(arrow.concat_tables([kept, *map(_lines, new.values())]), buffer)
            replace_all({file: buffer.getvalue().to_pybytes()})
        return len(new)


def read(file: Path) -> pd.DataFrame:
    """All lines of a history, sorted by start, run and row key.

    Raises `UsageError` if there is no such file and `TableError` for one that is damaged or no history of this schema.
    """
    if not file.exists():
        raise UsageError(f"{file}: no history there; `sqnr history` makes one from stored runs")
    return _frame(_load(file))


def empty() -> pd.DataFrame:
    """The history of no run."""
    return _frame(_schema().empty_table())


def known_ids(file: Path) -> frozenset[str]:
    """The identities of the runs in a history; none if there is no such file. Raises `TableError` as `read` does."""
    return frozenset(_ids(_load(file))) if file.exists() else frozenset()


def _schema() -> Any:
    arrow = extra.load(_WHAT, "pyarrow")
    kinds = {str: arrow.string(), bool: arrow.bool_(), float: arrow.float64(), int: arrow.int64()}
    kinds[datetime] = arrow.timestamp("us", tz="UTC")
    hints = get_type_hints(OutputRow)
    of_row = {field.name: (get_args(hints[field.name]) or (hints[field.name],))[0] for field in fields(OutputRow)}
    columns = [(name, kinds[kind]) for name, kind in {**_RUN_COLUMNS, **of_row}.items()]
    return arrow.schema(columns, metadata={_SCHEMA_KEY: str(SCHEMA).encode()})


def _of_run(stored: StoredRun) -> dict[str, str | bool | datetime]:
    """The columns that all lines of a run share."""
    run, environment = stored.run, stored.run.environment
    pins, stack = environment.get("pins"), environment.get("stack", {})
    return {
        "run_id": stored.run_id,
        "run": _text(run.name),
        "started": stored.started,
        "suite": _text(run.plan.suite),
        "run_status": run.status,
        "filtered": bool(run.plan.filtered),
        **{name: _text(environment.get(name)) for name in ("platform", "python", "cpu")},
        "pinned": isinstance(pins, dict) and all(pins.get(name) == PINS[name] for name in _ISA_PINS),
        **{package: _text(stack.get(package)) for package in STACK},
    }


def _text(value: object) -> str:
    """Text that UTF-8 can say: folder names and run.json may hold lone surrogates."""
    return "" if value is None else storable(str(value))


def _lines(stored: StoredRun) -> Any:
    arrow, rows = extra.load(_WHAT, "pyarrow"), stored.run.outputs
    columns: dict[str, list[Any]] = {name: [value] * len(rows) for name, value in _of_run(stored).items()}
    columns |= {field.name: [getattr(row, field.name) for row in rows] for field in fields(OutputRow)}
    columns["error"] = [error[:_LONGEST_ERROR] for error in columns["error"]]
    try:
        return arrow.table(columns, schema=_schema())
    except (arrow.ArrowException, OverflowError) as error:
        raise TableError(f"{stored.run.folder}: cannot be kept in a history: {error}") from None


def _load(file: Path) -> Any:
    arrow, parquet = extra.load(_WHAT, "pyarrow"), extra.load(_WHAT, "pyarrow.parquet")
    remedy = "move it away, and collect the stored runs again: sqnr history"
    try:
        found = parquet.read_table(arrow.BufferReader(file.read_bytes()))
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TableError(f"{file}: cannot be read as parquet: {reason}; {remedy}") from None
    schema = (found.schema.metadata or {}).get(_SCHEMA_KEY)
    if schema is None:
        raise TableError(f"{file}: a parquet file, but no history of runs; name another file with --into")
    if schema != str(SCHEMA).encode():
        raise TableError(f"{file}: schema {schema.decode('ascii', 'replace')}, this version reads {SCHEMA}; {remedy}")
    if not found.schema.equals(_schema()):
        raise TableError(f"{file}: its columns are not those of schema {SCHEMA}; {remedy}")
    return found


def _ids(lines: Any) -> list[str]:
    ids: list[str] = lines["run_id"].unique().to_pylist()
    return ids


def _frame(lines: Any) -> pd.DataFrame:
    """Sorted lines in pandas; whole numbers stay whole where some are absent."""
    pandas, arrow = extra.load(_WHAT, "pandas"), extra.load(_WHAT, "pyarrow")
    lines = lines.sort_by([(name, "ascending") for name in ("started", "run", "run_id", *KEY)])
    return lines.to_pandas(types_mapper={arrow.int64(): pandas.Int64Dtype()}.get)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Held while a history is read, extended and replaced: two appends at once come one after the other."""
    target = file.resolve()
    held = FileLock(target.parent / f".{target.name}.lock", timeout=_LOCK_SECONDS)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        held.acquire()
    except Timeout:
        raise UsageError(f"{file}: another process has held the history for {_LOCK_SECONDS} s") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}; name another file with --into") from None
    try:
        yield
    finally:
        held.release()
