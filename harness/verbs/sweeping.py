"""What `run` does with several instruction sets: a run for each, and which int8 kernels saturate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from harness.execute import Options, measure
from harness.report.isa_table import print_sweep
from harness.report.progress import showing_progress
from harness.report.terminal import console, print_line
from harness.saturation import flagged
from harness.store import Run
from harness.suite import Selection
from harness.workspace import Workspace


def sweep_and_show(workspace: Workspace, selection: Selection, each: Sequence[Options]) -> None:
    """Measure a selection under the instruction set of each of the options, and print a table of all at the end."""
    out = console()

    def tell(isa: str, run: Run) -> None:
        print_line(out, f"{isa}: measured in {run.seconds:.0f} s: {run.folder}")

    runs = sweep(workspace, selection, each, tell)
    if selection.excluded:
        print_line(out, f"left in float: {', '.join(selection.excluded)}")
    print_sweep(out, {isa: run.outputs for isa, run in runs.items()})


def sweep(
    workspace: Workspace,
    selection: Selection,
    each: Sequence[Options],
    on_run: Callable[[str, Run], None] = lambda _isa, _run: None,
) -> dict[str, Run]:
    """A stored run for each of the options by instruction set, in their order; rows that saturate say so.

    Each run is stored, and all so far held against each other, before the next one starts: what ends a sweep early
    costs only the run that was under way.
    """
    runs: dict[str, Run] = {}
    for options in each:
        with showing_progress() as shown:
            start = partial(shown.start, isa=options.isa)
            runs[options.isa] = measure(workspace, selection, options, start, shown.update)
        for isa, rows in flagged({isa: run.outputs for isa, run in runs.items()}).items():
            if rows != runs[isa].outputs:
                runs[isa].outputs = rows
                runs[isa].save()
        on_run(options.isa, runs[options.isa])
    return runs
