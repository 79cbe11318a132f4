"""The verb `noise`: what another instruction set or machine did to rows, in units of their noise floors."""

from __future__ import annotations

import datetime
import json

from harness import baseline as baselines
from harness.compare import Rows
from harness.errors import NothingMeasuredError
from harness.judge import rows_of
from harness.noise import Moves, moves
from harness.report.noise_text import as_json, print_noise
from harness.report.terminal import console
from harness.report.text import for_programs, spoken
from harness.store import Run, find_run
from harness.workspace import Workspace


def show_noise(workspace: Workspace, base: str, heads: tuple[str, ...], *, machine: bool) -> None:
    """Print how far the rows of each run in `heads` are from those of `base`; JSON if a `machine` reads it.

    Floors are those of the baselines of the platform on which `base` was measured. Raises `NoBaselineError` if there
    are none, and `NothingMeasuredError` where no row of a run has a floor.
    """
    old = find_run(workspace.reports, base)
    runs = [find_run(workspace.reports, head) for head in heads]
    platform = str(old.environment.get("platform", workspace.platform_baselines.name))
    accepted = baselines.read(workspace.baselines / platform)
    floors = Rows(accepted.outputs, accepted.quantizers)
    found = {run.name: _moves(workspace, old, run, floors) for run in runs}
    if machine:
        content = {"base": old.name, "heads": {name: as_json(one) for name, one in found.items()}}
        print(for_programs(json.dumps(content, indent=1, allow_nan=False)))
        return
    out = console()
    for name, one in found.items():
        print_noise(out, spoken(old.name), spoken(name), one)


def _moves(workspace: Workspace, base: Run, head: Run, floors: Rows) -> Moves:
    tolerances = workspace.settings.tolerances(base.plan.suite, datetime.date.today())
    found = moves(rows_of(base), rows_of(head), floors, tolerances)
    if not (found.outputs or found.bounds):
        raise NothingMeasuredError(
            f"runs {base.name} and {head.name} share no row that has a noise floor in the baselines "
            f"({found.without_floor} rows have none): accept with --noise-runs 5"
        )
    return found
