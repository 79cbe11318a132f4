"""Which state a fix is in, decided by measuring the installed release, not by its version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType

from harness.environment import installed_version
from harness.errors import in_a_line
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


class RepairError(Exception):
    """A repair whose fix is in no state to be applied, or that could not be entered: its variant is not measured."""


class RepairLeftError(Exception):
    """A repair could not be undone: nothing that this process measures from now on is as released."""


@cache
def state_of(fix: Fix) -> Diagnosis:
    """A fix's state on this machine, measured once in a process; never raises for what a package or a probe does."""
    missing = [package for package in (fix.package, *fix.needs) if not installed_version(package)]
    if missing:
        return _diagnosis(fix, FixState.NOT_INSTALLED, note="" if missing == [fix.package] else f"needs {missing[-1]}")
    try:
        released = _read(fix)
    except (Exception, SystemExit) as error:
        return undiagnosed(fix, f"the probe failed: {in_a_line(error)}")
    if released.right:
        return _diagnosis(fix, FixState.UPSTREAMED, released.value, released.should)
    if fix.repair is None:
        return _diagnosis(fix, FixState.NEEDED, released.value, released.should, "no repair in process")
    try:
        repaired = _under(fix.repair, fix)
    except (Exception, SystemExit) as error:
        return _diagnosis(fix, FixState.UNKNOWN, released.value, note=in_a_line(error))
    if repaired.right:
        return _diagnosis(fix, FixState.NEEDED, released.value, repaired.value)
    state = FixState.INERT if repaired.value == released.value else FixState.UNKNOWN
    return _diagnosis(fix, state, released.value, repaired.value, f"the repair does not give {repaired.should}")


def diagnose(fix: Fix) -> Diagnosis:
    """As `state_of`, with what the half-repair gives."""
    found = state_of(fix)
    if fix.trap is None or found.state is not FixState.NEEDED:
        return found
    try:
        return replace(found, trapped=_under(fix.trap, fix).value)
    except (Exception, SystemExit) as error:
        return replace(found, trapped=in_a_line(error))


def undiagnosed(fix: Fix, note: str) -> Diagnosis:
    """What is known of a fix whose probe could not be run, or took its process with it."""
    return _diagnosis(fix, FixState.UNKNOWN, note=note)


def _diagnosis(
    fix: Fix, state: FixState, released: float | str | None = None, repaired: float | str | None = None, note: str = ""
) -> Diagnosis:
    about = (fix.name, fix.link, fix.package, installed_version(fix.package), fix.known, fix.measures)
    return Diagnosis(*about, state, released, repaired, note=note)


def _read(fix: Fix) -> Reading:
    """What the probe measures; torch's global settings and random numbers are afterwards as they were."""
    import torch

    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        with torch.random.fork_rng([]), torch.set_grad_enabled(torch.is_grad_enabled()):
            reading = fix.probe()
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
    if not isinstance(reading, Reading):
        raise TypeError(f"the probe gave a {type(reading).__name__}, not a Reading")
    return reading


def _under(repair: Repair, fix: Fix) -> Reading:
    with repair():
        return _read(fix)


@contextmanager
def repaired(fixes: tuple[Fix, ...]) -> Iterator[None]:
    """Enter repairs in this order, and undo them on exit.

    Raises `RepairError` for a fix whose state is not known to be `needed`, or that cannot be entered: a variant is
    never measured as `released` by mistake. Raises `RepairLeftError` for one that cannot be undone.
    """
    with ExitStack() as stack:
        for fix in fixes:
            found = state_of(fix)
            if found.state is not FixState.NEEDED:
                raise RepairError(f"fix {fix.name} is {found.state}: {found.note}")
            if fix.repair is not None:
                stack.enter_context(_Entered(fix, fix.repair))
        yield


class _Entered(AbstractContextManager[None]):
    """A repair that says whose it is when it fails, and that can swallow nothing."""

    def __init__(self, fix: Fix, repair: Repair) -> None:
        self._fix = fix
        self._repair = repair

    def __enter__(self) -> None:
        try:
            self._context = self._repair()
            self._context.__enter__()
        except Exception as error:
            raise RepairError(f"fix {self._fix.name} cannot be applied: {in_a_line(error)}") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._context.__exit__(kind, error, trace)
        except BaseException as left:
            if left is not error:
                raise RepairLeftError(f"fix {self._fix.name} could not be undone: {in_a_line(left)}") from left
