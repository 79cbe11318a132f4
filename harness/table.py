"""CSV codec for rows: exact floats, sorted, and an error that names file, line and column for anything else."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from harness.errors import TableError
from harness.records import (
    STATUSES,
    Cause,
    FixState,
    Granularity,
    Mode,
    OutputRow,
    Point,
    QuantizerRow,
    QuantizerStatus,
    Role,
    Status,
)

T = TypeVar("T", OutputRow, QuantizerRow)

_CONFLICT_MARKERS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
_NEEDED: dict[tuple[str, str], tuple[str, ...]] = {
    ("OutputRow", Status.MEASURED): ("sqnr_db",),
    ("OutputRow", Status.EXACT): ("sqnr_db",),
    ("OutputRow", Status.ZERO_SIGNAL): ("max_abs_err",),
    ("QuantizerRow", QuantizerStatus.QUANTIZED): ("lo", "hi"),
}
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_LARGEST_INTEGER = 2**63
_VOCABULARY = {
    (OutputRow, "status"): STATUSES,
    (OutputRow, "point"): frozenset(Point),
    (OutputRow, "fix_state"): frozenset({*FixState, ""}),
    (OutputRow, "cause"): frozenset({*Cause, ""}),
    (QuantizerRow, "cause"): frozenset({*Cause, ""}),
    (QuantizerRow, "point"): frozenset(Point),
    (QuantizerRow, "status"): frozenset(QuantizerStatus),
    (QuantizerRow, "role"): frozenset(Role),
    (QuantizerRow, "granularity"): frozenset({*Granularity, ""}),
    (QuantizerRow, "mode"): frozenset({*Mode, ""}),
}


def render(rows: Iterable[T], row_type: type[T]) -> str:
    """CSV text of rows: sorted by key, LF, floats in `repr` form, None as an empty cell."""
    names = [field.name for field in fields(row_type)]
    lines = [names]
    for row in sorted(rows, key=lambda row: row.key):
        lines.append(["" if value is None else value for value in (getattr(row, name) for name in names)])
    return "".join(_line(cells) + "\n" for cells in lines)


def _line(cells: list[Any]) -> str:
    # A line end of \r\n makes the writer quote cells that hold either; it is cut off again.
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def parse(path: Path, row_type: type[T]) -> list[T]:
    """Rows of a CSV file; raises `TableError` naming file, line and column."""
    text = _read(path)
    _check_lines(path, text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    kinds = {name: _kind(hint) for name, hint in get_type_hints(row_type).items()}
    rows: list[T] = []
    seen: dict[tuple[str, ...], int] = {}
    try:
        columns = _header(path, next(reader, []), row_type)
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if len(cells) != len(columns):
                raise TableError(
                    f"{where}: {len(cells)} cells, the header has {len(columns)}; is the line cut off? Restore the "
                    "file from git, or measure again and accept"
                )
            values: dict[str, Any] = {
                name: _cell(f"{where}: column {name}", cell, kinds[name], row_type, name)
                for name, cell in zip(columns, cells, strict=True)
            }
            row = row_type(**values)
            _check_complete(where, row)
            if row.key in seen:
                raise TableError(f"{where}: duplicate key {'/'.join(row.key)}, first on line {seen[row.key]}")
            seen[row.key] = reader.line_num
            rows.append(row)
    except csv.Error as error:
        raise TableError(f"{path}:{reader.line_num}: {error}") from None
    return rows


def _check_complete(where: str, row: OutputRow | QuantizerRow) -> None:
    """A blanked cell would switch its check off, so a measured row has the numbers it is judged by."""
    needed = _NEEDED.get((type(row).__name__, row.status), ())
    absent = [name for name in needed if getattr(row, name) is None]
    if absent:
        raise TableError(f"{where}: column {absent[0]}: empty, but the row's status is {row.status}")


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise TableError(f"{path}:{line}: not UTF-8: byte {content[error.start]:#04x}") from None


def _check_lines(path: Path, text: str) -> None:
    quoted = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not quoted and line.startswith(_CONFLICT_MARKERS):
            raise TableError(
                f"{path}:{number}: merge conflict marker {line[:7]}; keep one side (git checkout --ours or "
                "--theirs), or measure again and accept"
            )
        quoted ^= line.count('"') % 2 == 1
        if not quoted and line.endswith("\r"):
            raise TableError(f"{path}:{number}: CRLF line end; baselines are LF (git: set '*.csv text eol=lf')")
    if not text:
        raise TableError(f"{path}: empty file; a header is expected")
    if not text.endswith("\n"):
        raise TableError(f"{path}:{text.count(chr(10)) + 1}: the last line has no end; is the file cut off?")


def _header(path: Path, columns: list[str], row_type: type[T]) -> list[str]:
    expected = [field.name for field in fields(row_type)]
    unknown = [name for name in columns if name not in expected]
    absent = [name for name in expected if name not in columns]
    if unknown:
        raise TableError(f"{path}:1: unknown column {unknown[0]!r} (known: {', '.join(expected)})")
    if absent:
        raise TableError(f"{path}:1: missing column {absent[0]!r}")
    if len(columns) != len(expected):
        raise TableError(f"{path}:1: a column appears twice: {', '.join(columns)}")
    return columns


def _kind(hint: object) -> tuple[type, bool]:
    """(type, may be empty) of an annotated field."""
    options = get_args(hint)
    return (options[0], True) if options else (hint, hint is str)  # type: ignore[return-value]


def _cell(where: str, cell: str, kind: tuple[type, bool], row_type: type, name: str) -> float | int | str | None:
    wanted, optional = kind
    if wanted is str:
        allowed = _VOCABULARY.get((row_type, name))
        if allowed is not None and cell not in allowed:
            raise TableError(f"{where}: {cell!r} is not one of {', '.join(sorted(allowed))}")
        return cell
    if cell == "" and optional:
        return None
    spelling = _INTEGER if wanted is int else _NUMBER
    if cell.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise TableError(f"{where}: {cell!r}; a stored number is finite or empty")
    if not spelling.fullmatch(cell):
        raise TableError(f"{where}: {cell!r} is not a{'n integer' if wanted is int else ' number'}")
    value: float | int = wanted(cell)
    if abs(value) > (_LARGEST_INTEGER if wanted is int else sys.float_info.max):
        raise TableError(f"{where}: {cell!r} is out of range; a stored number is finite or empty")
    return value
