"""One selection measured under several instruction sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.execute import Options, measure
from harness.report.isa_table import print_sweep
from harness.report.progress import showing_progress
from harness.report.terminal import console, print_line
from harness.saturation import flagged, swept
from harness.store import Run
from harness.suite import Selection
from harness.workspace import Workspace


def sweep(
    workspace: Workspace,
    selection: Selection,
    each: Sequence[Options],
    on_run: Callable[[Run], None] = lambda _run: None,
) -> list[Run]:
    """A stored run for each of the options, the first with the best instruction set; rows that saturate say so.

    Every run is stored before the next one starts, so that an interruption loses what it was measuring alone.
    """
    runs: list[Run] = []
    for options in each:
        with showing_progress() as shown:
            run = measure(workspace, selection, options, shown.start, shown.update)
        if runs:
            run.outputs = flagged(run.outputs, runs[0].outputs)
            run.save()
        runs.append(run)
        on_run(run)
    return runs


def sweep_and_show(workspace: Workspace, selection: Selection, each: Sequence[Options]) -> None:
    """As `sweep`, with a line for each run and the table at the end."""
    out = console()

    def told(run: Run) -> None:
        print_line(out, f"measured in {run.seconds:.0f} s: {run.folder}")

    runs = sweep(workspace, selection, each, told)
    isas = [options.isa for options in each]
    rows = [(isa, run.outputs) for isa, run in zip(isas, runs, strict=True)]
    print_sweep(out, isas, swept(rows))
