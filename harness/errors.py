"""One tree of user errors.

Each error says what is wrong, where, the numbers, and what to do next, in one line. Only `cli` prints them and
turns them into exit codes; nothing below it calls `sys.exit`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb. When several apply to a judgement the order is 2, 1, 4, 5, 3."""

    OK = 0
    REGRESSED = 1
    USAGE = 2
    STALE = 3
    INCOMPLETE = 4
    NOTHING_MEASURED = 5
    INTERNAL = 70
    INTERRUPTED = 130


class SqnrError(Exception):
    """Base of all errors a user can cause; `exit_code` is what the process ends with."""

    exit_code: ExitCode = ExitCode.USAGE


class UsageError(SqnrError):
    """A wrong argument or selection."""


class ConfigError(SqnrError):
    """A setting in `[tool.sqnr]` that does not hold."""


class TableError(SqnrError):
    """A CSV or JSON file that cannot be read, with file, line and column."""


class AdapterError(SqnrError):
    """A model adapter that does not keep the contract of `harness.adapter`."""


class WeightsError(SqnrError):
    """Weights that cannot be loaded: what to download, and where to put it."""


class AcceptRefusedError(SqnrError):
    """A run that `accept` will not turn into a baseline without being told exactly which rows."""


class NoBaselineError(SqnrError):
    """There are no baselines for this platform."""

    exit_code = ExitCode.INCOMPLETE


class NothingMeasuredError(SqnrError):
    """A selection that plans no case."""

    exit_code = ExitCode.NOTHING_MEASURED


class InterruptedRunError(SqnrError):
    """Ctrl-C; says where what was measured is kept."""

    exit_code = ExitCode.INTERRUPTED


class CensusError(SqnrError):
    """A run whose rows are not those that were planned: a defect of the harness."""

    exit_code = ExitCode.INTERNAL


def in_a_line(error: BaseException) -> str:
    """Type and first line of an error that is not ours."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def root_of(error: BaseException) -> BaseException:
    """The error that an error was raised from in the end, however often it was wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def no_quantizer(name: str) -> str:
    """How the error of a case begins that has no quantizer of a name, or none that a pattern fits."""
    return f"no quantizer named {name!r}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """An unknown name lists the near matches first and then all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"no {kind} named {name!r}{hint} (known: {', '.join(names) or 'none'})")
