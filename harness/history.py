"""The history: one parquet table with a line for each output row of each stored run, and for each speed of a benchmark.

A line says of which `kind` it is (output, speed), and of its run: `run_id` (a digest of its content: two machines may
name their runs alike), `run` (name of the folder or file), `started` (UTC), `suite`, `run_status` (complete,
interrupted), `filtered`, `platform`, `python`, `cpu`, `pinned` (whether the instruction sets were pinned as for
baselines), and for each package of `harness.environment.STACK` its version, empty if it was not installed. The other
columns are the fields of `OutputRow` and of `SpeedRow`, exact; a line has nothing in those of the other kind alone.
docs/history.md describes the use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from harness import extra
from harness.errors import TableError, UsageError
from harness.files import replace_all
from harness.history_lines import (
    KIND,
    RUN_COLUMNS,
    SCHEMA,
    SCHEMA_KEY,
    WHAT,
    Kind,
    Stored,
    columns_of,
    lines_of,
    schema,
)
from harness.measure.speed import SpeedRow
from harness.records import OutputRow

if TYPE_CHECKING:
    import pandas as pd

KEY = ("model", "size", "weights", "flow", "variant", "point", "output")
SPEED_KEY = ("model", "size", "weights", "flow", "variant", "batch", "threads", "isa")
"""What was timed, and with what."""
_LOCK_SECONDS = 60


def append(file: Path, runs: Iterable[Stored]) -> int:
    """Add to a history those runs that it does not hold yet, and say how many; the file is made if there is none.

    Safe from several processes at once. Raises `TableError` for a file that is damaged or no history of this schema and
    `UsageError` where it cannot be written; both leave it as it was.
    """
    arrow, parquet = extra.load(WHAT, "pyarrow"), extra.load(WHAT, "pyarrow.parquet")
    with _locked(file):
        kept = _load(file) if file.exists() else schema().empty_table()
        new = {stored.run_id: stored for stored in runs if stored.rows}
        for run_id in _ids(kept):
            new.pop(run_id, None)
        if new:
            buffer = arrow.BufferOutputStream()
            parquet.write_table(arrow.concat_tables([kept, *map(lines_of, new.values())]), buffer)
            replace_all({file: buffer.getvalue().to_pybytes()})
        return len(new)


def read(file: Path) -> pd.DataFrame:
    """All output rows of a history, sorted by start, run and row key.

    Raises `UsageError` if there is no such file and `TableError` for one that is damaged or no history of this schema.
    """
    return read_both(file)[0]


def read_both(file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same, and all speeds, sorted by start, run and what was timed. Raises as `read` does."""
    if not file.exists():
        raise UsageError(f"{file}: no history there; `sqnr history` makes one from stored runs")
    return _both(_load(file))


def empty() -> pd.DataFrame:
    """The output rows of no run."""
    return _both(schema().empty_table())[0]


def empty_speeds() -> pd.DataFrame:
    """The speeds of no benchmark."""
    return _both(schema().empty_table())[1]


def known_ids(file: Path) -> frozenset[str]:
    """The identities of the runs in a history; none if there is no such file. Raises `TableError` as `read` does."""
    return frozenset(_ids(_load(file))) if file.exists() else frozenset()


def _load(file: Path) -> Any:
    arrow, parquet = extra.load(WHAT, "pyarrow"), extra.load(WHAT, "pyarrow.parquet")
    remedy = "move it away, and collect the stored runs again: sqnr history"
    try:
        found = parquet.read_table(arrow.BufferReader(file.read_bytes()))
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TableError(f"{file}: cannot be read as parquet: {reason}; {remedy}") from None
    number = (found.schema.metadata or {}).get(SCHEMA_KEY)
    if number is None:
        raise TableError(f"{file}: a parquet file, but no history of runs; name another file with --into")
    if number != str(SCHEMA).encode():
        raise TableError(f"{file}: schema {number.decode('ascii', 'replace')}, this version reads {SCHEMA}; {remedy}")
    if not found.schema.equals(schema()):
        raise TableError(f"{file}: its columns are not those of schema {SCHEMA}; {remedy}")
    return found


def _ids(lines: Any) -> list[str]:
    ids: list[str] = lines["run_id"].unique().to_pylist()
    return ids


def _both(lines: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    return _frame(lines, Kind.OUTPUT, OutputRow, KEY), _frame(lines, Kind.SPEED, SpeedRow, SPEED_KEY)


def _frame(lines: Any, kind: Kind, row_type: type[OutputRow] | type[SpeedRow], key: Iterable[str]) -> pd.DataFrame:
    """Sorted lines of a kind, with its columns, in pandas; whole numbers stay whole where some are absent."""
    pandas, arrow = extra.load(WHAT, "pandas"), extra.load(WHAT, "pyarrow")
    compute = extra.load(WHAT, "pyarrow.compute")
    lines = lines.filter(compute.equal(lines[KIND], kind.value)).select([*RUN_COLUMNS, *columns_of(row_type)])
    lines = lines.sort_by([(name, "ascending") for name in ("started", "run", "run_id", *key)])
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
