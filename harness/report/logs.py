"""The end of what a run logged about a case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from os import SEEK_END
from pathlib import Path
from stat import S_ISREG

from harness.records import Case
from harness.store import Run

_TRACEBACK = "Traceback (most recent call last)"
_MOST_LINES = 40
_MOST_CHARACTERS = 6000
_MOST_BYTES = 2**20
"""Of one log, from its end: a process may log without end before it breaks."""


def log_of(run: Run, case: Case) -> str:
    """The last lines on a case in the run's `logs/`, or those of its model's process; empty if there are none.

    A log is read once for all its cases, and of a long one the last MiB.
    """
    name = re.compile(rf"\d+-{re.escape(case.model)}-{re.escape(case.size)}(-again\d+)?\.log")
    for path in sorted(run.logs.glob("*.log")):
        if not name.fullmatch(path.name):  # a model may be called like the end of another's name
            continue
        try:
            found = path.stat()
            log = _read(path, found.st_mtime_ns, found.st_size) if S_ISREG(found.st_mode) else _Log()
        except OSError:
            continue
        if text := log.of(case):
            return text
    return ""


@dataclass(frozen=True, slots=True)
class _Log:
    """What is kept of a log: the end of each section below its heading (`CASE at POINT`), and of the whole."""

    sections: tuple[tuple[str, str], ...] = ()
    end: str = ""

    def of(self, case: Case) -> str:
        """The end of the case's first section, or else of the log.

        The first is where it broke, later points only repeat it; without a heading of its own the case was owed when
        its process broke, and that is logged last.
        """
        mine = (text for heading, text in self.sections if heading == str(case) or heading.startswith(f"{case} at "))
        return next(mine, self.end)


@lru_cache(maxsize=16)
def _read(path: Path, _changed: int, _size: int) -> _Log:
    """A log as it is now; it is read again when it was written to."""
    with path.open("rb") as file:
        file.seek(-min(_MOST_BYTES, file.seek(0, SEEK_END)), SEEK_END)
        lines = file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    headings = [number for number, (line, below) in enumerate(pairwise(lines)) if line and below.startswith(_TRACEBACK)]
    sections = [(lines[number], _tail(lines[number:end])) for number, end in pairwise([*headings, len(lines)])]
    return _Log(tuple(sections), _tail(lines))


def _tail(lines: list[str]) -> str:
    return "\n".join(lines[-_MOST_LINES:])[-_MOST_CHARACTERS:].strip()
