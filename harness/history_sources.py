"""Finds finished runs and benchmarks' files in folders and zip archives (such as those a CI keeps), for the history.

Archives are read in memory, with limits, and nothing is unpacked. Whatever is passed over has a note that says why.
"""

from __future__ import annotations

import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import cast

from harness import history_benchmarks, table
from harness.errors import TableError, UsageError, in_a_line
from harness.history_benchmarks import FOLDER, SUFFIX
from harness.history_lines import Stored, StoredRun, identity, instant
from harness.records import OutputRow
from harness.store import RUNNING, parse_header

MOST_FILE_BYTES = 64 * 2**20
"""Of one file of a run; a nightly's outputs.csv has 0.1 MB, a gate's 1 MB."""
MOST_ARCHIVE_BYTES = 512 * 2**20
"""Of all that is unpacked of one archive."""
_HEADER, _OUTPUTS = "run.json", "outputs.csv"
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError)
"""What zipfile raises for archives that are damaged, encrypted, or packed in a way it does not know."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run lies: its folder (in an archive: as if it were one), and how a file in it is read.

    A benchmark is one file, which `bench` names.
    """

    folder: Path
    read: Callable[[str], bytes]
    bench: str = ""


@dataclass(frozen=True, slots=True)
class _InMemory:
    """As much of a `Path` as `table.parse` uses, over content that is read already."""

    name: str
    content: bytes

    def read_bytes(self) -> bytes:
        return self.content

    def __str__(self) -> str:
        return self.name


def collect(
    sources: Iterable[Path], known: Collection[str] = (), leave_out: Collection[Path] = ()
) -> tuple[list[Stored], list[str]]:
    """The finished runs and benchmarks in `sources`, oldest first, each once, and a note for each that is passed over.

    A source is a run's folder, any folder above, a zip archive, or a benchmark's JSON file. In folders zip archives are
    read as well, and in both the JSON files of a folder called `bench`. What is found twice has the name it is found
    under first. What has its identity in `known` is left out without a note, and so are the folders `leave_out` inside
    a source. Raises `UsageError` for a source that does not exist.
    """
    runs: dict[str, Stored] = {}
    notes: list[str] = []
    distinct: dict[str, Path] = {}
    for source in sources:
        distinct.setdefault(os.path.realpath(source), source)
    for source in distinct.values():
        if not source.exists():
            raise UsageError(f"{source}: no such folder or archive")
        before, places = len(notes), 0
        for place in _places(source, leave_out, notes):
            places += 1
            try:
                stored = _load(place, {*known, *runs})
            except TableError as error:
                notes.append(f"skipped: {error}")
                continue
            if stored is not None:
                runs[stored.run_id] = stored
        if not places and len(notes) == before:
            notes.append(f"{source}: holds no run (a folder with {_HEADER})")
    ordered = sorted(runs.values(), key=lambda stored: (stored.started, stored.name, stored.run_id))
    return ordered, list(dict.fromkeys(notes))  # a source may lie in another


def _load(place: _Place, known: Collection[str]) -> Stored | None:
    """The run or benchmark at a place; None if it is known. Raises `TableError` if it is damaged or unfinished."""
    if place.bench:
        content = place.read(place.bench)
        return None if identity(content) in known else history_benchmarks.parse(place.folder / place.bench, content)
    header, outputs = place.read(_HEADER), place.read(_OUTPUTS)
    run_id = identity(header, outputs)
    if run_id in known:
        return None
    run = parse_header(place.folder, header)
    if run.status == RUNNING:
        raise TableError(f"{place.folder}: the run has not finished, or was killed")
    if run.excluded:
        raise TableError(f"{place.folder}: quantizers were left in float (--exclude), which is no change over time")
    run.outputs = table.parse(cast("Path", _InMemory(str(place.folder / _OUTPUTS), outputs)), OutputRow)
    if not run.outputs:
        raise TableError(f"{place.folder}: the run has no output rows")
    return StoredRun(run_id, instant(place.folder / _HEADER, "started", run.started), run)


def _places(source: Path, leave_out: Collection[Path], notes: list[str]) -> Iterator[_Place]:
    if source.suffix.lower() == SUFFIX and source.is_file():
        yield _Place(source.parent, _reader(source.parent), source.name)
        return
    if not source.is_dir():
        yield from _in_archive(source, notes)
        return
    unreadable: list[OSError] = []
    for name, folders, files in os.walk(source, onerror=unreadable.append):
        folder = Path(name)
        folders[:] = sorted(inner for inner in folders if folder / inner not in leave_out)
        if _HEADER in files:
            # A run is called by its folder's name, also where it is given as `.`
            yield _Place(folder if folder.name else folder.resolve(), _reader(folder))
        for file in sorted(files):
            if file.lower().endswith(".zip"):
                yield from _in_archive(folder / file, notes)
            elif _is_bench(folder / file):
                yield _Place(folder, _reader(folder), file)
    notes += [f"skipped: {error.filename}: cannot be read: {error.strerror}" for error in unreadable]


def _is_bench(path: PurePath) -> bool:
    return path.parent.name == FOLDER and path.suffix.lower() == SUFFIX and path.name != _HEADER


def _reader(folder: Path) -> Callable[[str], bytes]:
    def read(name: str) -> bytes:
        path = folder / name
        try:
            if path.exists() and not path.is_file():
                raise TableError(f"{path}: not a file")
            with path.open("rb") as file:
                return _within_limit(path, file.read(MOST_FILE_BYTES + 1))
        except OSError as error:
            raise TableError(f"{path}: cannot be read: {error.strerror}") from None

    return read


def _within_limit(path: Path, content: bytes) -> bytes:
    if len(content) > MOST_FILE_BYTES:
        raise TableError(f"{path}: over {MOST_FILE_BYTES / 2**20:.0f} MB, the most that is read of one file")
    return content


class _Archive:
    """Reads members of a zip archive, each and all together no further than the limits, whatever it declares."""

    def __init__(self, file: Path, archive: zipfile.ZipFile) -> None:
        self.file, self.archive, self.left = file, archive, MOST_ARCHIVE_BYTES

    def reader(self, folder: str) -> Callable[[str], bytes]:
        """How files are read whose names begin with `folder`."""
        return lambda name: self._read(folder + name)

    def _read(self, name: str) -> bytes:
        path = self.file / name
        try:
            with self.archive.open(name) as member:
                content = member.read(MOST_FILE_BYTES + 1)
        except KeyError:
            raise TableError(f"{path}: not in the archive") from None
        except _DAMAGED as error:
            raise TableError(f"{path}: cannot be unpacked: {in_a_line(error)}") from None
        self.left -= len(content)
        return _within_limit(path, content)


def _in_archive(file: Path, notes: list[str]) -> Iterator[_Place]:
    try:
        opened = zipfile.ZipFile(file)
    except _DAMAGED as error:
        notes.append(f"skipped: {file}: cannot be read as a zip archive: {in_a_line(error)}")
        return
    with opened:
        archive = _Archive(file, opened)
        for name in sorted(set(opened.namelist())):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.suffix.lower() == ".zip":
                notes.append(f"skipped: {file}: {name}: an archive in an archive is not read")
                continue
            if path.name != _HEADER and not _is_bench(path):
                continue
            if path.is_absolute() or ".." in path.parts:
                notes.append(f"skipped: {file}: {name}: the name leads out of the archive")
                continue
            if archive.left < 0:
                notes.append(
                    f"skipped: {file}: {name} and what follows: over {MOST_ARCHIVE_BYTES / 2**20:.0f} MB in all"
                )
                return
            bench = "" if path.name == _HEADER else path.name
            inside = archive.reader(name.removesuffix(path.name))
            yield _Place(file.with_suffix("") / path.parent, inside, bench)
