"""Which state a fix is in, decided by measuring the installed release, not by its version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache

from harness.environment import installed_version
from harness.fixes import Fix, Reading, Repair
from harness.records import FixState


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known of a fix on this machine.

    `released` is what the probe measured on the installed package as it is, `repaired` the same under the repair (the
    right value, where there is no repair), `trapped` under the half-repair. `note` says what went wrong.
    """

    name: str
    link: str
    package: str
    version: str
    known: tuple[str, ...]
    measures: str
    state: FixState
    released: float | str | None = None
    repaired: float | str | None = None
    trapped: float | str | None = None
    note: str = ""


class ProbeError(Exception):
    """A probe could not be run, so nobody knows what its repair would do."""


@cache
def released_state(fix: Fix) -> FixState:
    """`NEEDED` or `UPSTREAMED`, by the probe on the installed release; `UNKNOWN` where it cannot be run."""
    reading = _released(fix)
    if isinstance(reading, str):
        return FixState.UNKNOWN
    return FixState.UPSTREAMED if reading.right else FixState.NEEDED


@cache
def _released(fix: Fix) -> Reading | str:
    try:
        return fix.probe()
    except Exception as error:
        return _line(error)


@contextmanager
def repaired(fixes: tuple[Fix, ...]) -> Iterator[None]:
    """Enter repairs in this order, and undo them on exit.

    Raises `ProbeError` for a fix of unknown state and `SeamMovedError` where there is nothing to repair: a variant is
    never measured as `released` by mistake.
    """
    with ExitStack() as stack:
        for fix in fixes:
            if released_state(fix) is FixState.UNKNOWN:
                raise ProbeError(f"state of fix {fix.name} unknown: its probe failed: {_released(fix)}")
            if fix.repair is not None:
                stack.enter_context(fix.repair())
        yield


def diagnose(fix: Fix) -> Diagnosis:
    """Measure a fix's wrong and right value; never raises for what a package or a probe does."""
    if not installed_version(fix.package):
        return _diagnosis(fix, FixState.NOT_INSTALLED)
    try:
        released = fix.probe()
    except Exception as error:
        return undiagnosed(fix, f"the probe failed: {_line(error)}")
    if released.right:
        return _diagnosis(fix, FixState.UPSTREAMED, released.value, released.should)
    if fix.repair is None:
        return _diagnosis(fix, FixState.NEEDED, released.value, released.should, note="no repair in process")
    try:
        repaired = _under(fix.repair, fix)
        trapped = _under(fix.trap, fix).value if fix.trap else None
    except Exception as error:
        return _diagnosis(fix, FixState.UNKNOWN, released.value, released.should, note=_line(error))
    note = "" if repaired.right else f"the repair does not give {repaired.should}"
    return _diagnosis(fix, _state(released, repaired), released.value, repaired.value, trapped, note)


def undiagnosed(fix: Fix, note: str) -> Diagnosis:
    """What is known of a fix whose probe could not be run, or took its process with it."""
    return _diagnosis(fix, FixState.UNKNOWN, note=note)


def _diagnosis(
    fix: Fix,
    state: FixState,
    released: float | str | None = None,
    repaired: float | str | None = None,
    trapped: float | str | None = None,
    note: str = "",
) -> Diagnosis:
    version = installed_version(fix.package)
    about = (fix.name, fix.link, fix.package, version, fix.known, fix.measures)
    return Diagnosis(*about, state, released, repaired, trapped, note)


def _under(repair: Repair, fix: Fix) -> Reading:
    with repair():
        return fix.probe()


def _state(released: Reading, repaired: Reading) -> FixState:
    if repaired.right:
        return FixState.NEEDED
    return FixState.INERT if repaired.value == released.value else FixState.UNKNOWN


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
