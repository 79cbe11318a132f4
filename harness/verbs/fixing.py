"""The verb `fixes`: the state of every known fix on the installed releases, measured."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from harness import fixes
from harness.execute import Options, measuring_processes
from harness.fixes.states import Diagnosis
from harness.records import FixState
from harness.report.phrases import probe_value
from harness.report.terminal import console

_MOST_SECONDS = 120.0
"""For all probes of one package; they take some ten seconds."""
_COLOURS = {
    FixState.NEEDED: "yellow",
    FixState.UPSTREAMED: "green",
    FixState.INERT: "red",
    FixState.NOT_INSTALLED: "dim",
    FixState.UNKNOWN: "red",
}


def diagnose_all() -> list[Diagnosis]:
    """Measure all fixes, a process for each package; by name."""
    with measuring_processes(Options(timeout=_MOST_SECONDS)) as workers:
        return workers.diagnose(fixes.installed())


def as_text(found: Sequence[Diagnosis]) -> str:
    """JSON with exact values; NaN and infinity, which it has no numbers for, as text."""
    plain = [{name: _plain(value) for name, value in asdict(diagnosis).items()} for diagnosis in found]
    return json.dumps(plain, indent=1, allow_nan=False)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_diagnoses(found: Sequence[Diagnosis]) -> None:
    """A table of fixes, as released and repaired; below it what is measured, where it is known and reported."""
    out = console()
    table = Table(title="Known defects of the installed releases, measured", title_justify="left")
    table.add_column("fix", no_wrap=True)
    for heading in ("installed", "state", "released", "repaired"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            one.name,
            escape(f"{one.package} {one.version}".strip()),
            f"[{_COLOURS[one.state]}]{one.state}[/]",
            escape(probe_value(one.released)),
            escape(probe_value(one.repaired)),
        )
    out.print(table)
    for one in found:
        trapped = "" if one.trapped is None else f"; half repaired: {probe_value(one.trapped)}"
        note = f"; {one.note}" if one.note else ""
        known = f"known in {one.package} {', '.join(one.known)}"
        out.print(
            f"{one.name}: {one.measures}; {known}; {one.link}{trapped}{note}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
