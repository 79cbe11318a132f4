"""CSV codec for rows: exact floats, sorted, and an error that names file, line and column for anything else."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter, getitem
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
    Row,
    Status,
)

T = TypeVar("T", OutputRow, QuantizerRow)

_CONFLICT_MARKERS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
_NEEDED: dict[tuple[type[Row], str], tuple[str, ...]] = {
    (OutputRow, Status.MEASURED): ("sqnr_db",),
    (OutputRow, Status.EXACT): ("sqnr_db",),
    (OutputRow, Status.ZERO_SIGNAL): ("max_abs_err",),
    (QuantizerRow, QuantizerStatus.QUANTIZED): ("lo", "hi"),
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


class _Lines(list[str]):
    """What a `csv.writer` writes, a line at a time."""

    write = list.append


def render(rows: Iterable[T], row_type: type[T]) -> str:
    """CSV text of rows: sorted by key, LF, floats in `repr` form, None as an empty cell."""
    names = [field.name for field in fields(row_type)]
    lines = _Lines()
    # A line end of \r\n makes the writer quote cells that hold either; it is cut off again.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows(map(attrgetter(*names), sorted(rows, key=lambda row: row.key)))
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def parse(path: Path, row_type: type[T], content: bytes | None = None) -> list[T]:
    """Rows of a CSV file; raises `TableError` naming file, line and column of the first thing that is wrong.

    With `content`, what was read of the file already, it is not opened.
    """
    text = _read(path, content)
    _check_lines(path, text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    names: list[str] = []
    broken: _LineError | csv.Error | None = None
    try:
        names = _header(path, next(reader, []), row_type)
        hints = get_type_hints(row_type)
        columns = [_Column(row_type, name, hints[name]) for name in names]
        for cells in reader:
            if len(cells) != len(columns):
                raise _LineError(
                    f"{len(cells)} cells, the header has {len(columns)}; is the line cut off? Restore the file from "
                    "git, or measure again and accept"
                )
            lines.append(tuple(map(getitem, columns, cells)))
            numbers.append(reader.line_num)
    except (_LineError, csv.Error) as error:
        broken = error
    rows = _rows(row_type, names, lines)
    _check_rows(path, rows, numbers)
    if broken is not None:  # only now: a row before it may be wrong too
        raise TableError(f"{path}:{reader.line_num}: {broken}")
    return rows


def _rows(row_type: type[T], names: list[str], lines: list[tuple[Any, ...]]) -> list[T]:
    """The constructor's rows, in a third of its time: filled column by column, without checking numbers again."""
    rows = [object.__new__(row_type) for _ in lines]
    for name, column in zip(names, zip(*lines, strict=True), strict=False):  # without lines there are no columns
        deque(map(getattr(row_type, name).__set__, rows, column), maxlen=0)
    return rows


def _check_rows(path: Path, rows: list[T], numbers: list[int]) -> None:
    """Of each key one row. A blanked cell would switch its check off, so a measured row has what it is judged by."""
    seen: dict[tuple[str, ...], int] = {}
    for row, number in zip(rows, numbers, strict=True):
        for name in _NEEDED.get((type(row), row.status), ()):
            if getattr(row, name) is None:
                raise TableError(f"{path}:{number}: column {name}: empty, but the row's status is {row.status}")
        key = row.key
        if key in seen:
            raise TableError(f"{path}:{number}: duplicate key {'/'.join(key)}, first on line {seen[key]}")
        seen[key] = number


def _read(path: Path, content: bytes | None) -> str:
    try:
        content = path.read_bytes() if content is None else content
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


class _LineError(Exception):
    """What is wrong in a line, without its place."""


class _Column(dict[str, float | int | str | None]):
    """The values of a column by their text. Columns repeat a few spellings; each is checked where it first appears."""

    def __init__(self, row_type: type[Row], name: str, hint: object) -> None:
        options = get_args(hint)  # of a number that may be absent; words may be empty without
        super().__init__({"": None} if options else {})
        self.name = name
        self.type = options[0] if options else hint
        self.vocabulary = _VOCABULARY.get((row_type, name))

    def __missing__(self, cell: str) -> float | int | str:
        value = self[cell] = self._word(cell) if self.type is str else self._number(cell)
        return value

    def _word(self, cell: str) -> str:
        if self.vocabulary is not None and cell not in self.vocabulary:
            raise self._error(cell, f" is not one of {', '.join(sorted(self.vocabulary))}")
        return cell

    def _number(self, cell: str) -> float | int:
        whole = self.type is int
        if not (_INTEGER if whole else _NUMBER).fullmatch(cell):
            if cell.lower().lstrip("+-") in ("nan", "inf", "infinity"):
                raise self._error(cell, "; a stored number is finite or empty")
            raise self._error(cell, " is not an integer" if whole else " is not a number")
        value = int(cell) if whole else float(cell)
        if abs(value) > (_LARGEST_INTEGER if whole else sys.float_info.max):
            raise self._error(cell, " is out of range; a stored number is finite or empty")
        return value

    def _error(self, cell: str, what: str) -> _LineError:
        return _LineError(f"column {self.name}: {cell!r}{what}")
