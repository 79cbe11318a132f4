"""The end of what a run logged about a case."""

from __future__ import annotations

import re
from itertools import pairwise

from harness.records import Case
from harness.store import Run

_TRACEBACK = "Traceback (most recent call last)"
_MOST_LINES = 40
_MOST_CHARACTERS = 6000


def log_of(run: Run, case: Case) -> str:
    """The last lines on a case in the run's `logs/`, or those of its model's process; empty if there are none."""
    name = re.compile(rf"\d+-{re.escape(case.model)}-{re.escape(case.size)}\.log")
    for path in sorted(run.logs.glob("*.log")):
        if not name.fullmatch(path.name):  # a model may be called like the end of another's name
            continue
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if found := _section(text, case):
            return found
    return ""


def _section(text: str, case: Case) -> str:
    """What stands below the case's first heading (`CASE at POINT`) up to the next, or else the end of the log.

    The first is where it broke, later points only repeat it; without a heading of its own the case was owed when its
    process broke, and that is logged last.
    """
    lines = text.splitlines()
    headings = [number for number, (line, below) in enumerate(pairwise(lines)) if line and below.startswith(_TRACEBACK)]
    for number, end in pairwise([*headings, len(lines)]):
        if lines[number] == str(case) or lines[number].startswith(f"{case} at "):
            return _tail(lines[number:end])
    return _tail(lines)


def _tail(lines: list[str]) -> str:
    return "\n".join(lines[-_MOST_LINES:])[-_MOST_CHARACTERS:].strip()
