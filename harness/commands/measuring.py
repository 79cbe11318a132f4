"""The verbs that measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import arguments
from harness.report.text import spoken

if TYPE_CHECKING:
    from harness.store import Run
    from harness.workspace import Workspace


@click.command()
@arguments.selecting
@click.option("--exclude", "excluded", multiple=True, metavar="QUANTIZER",
              help="Leave this quantizer in float, or all that fit a pattern of * and ?; repeatable.")  # fmt: skip
@click.option("--resume", "unfinished", metavar="RUN", help="Go on with a run that was interrupted or killed.")
@arguments.measuring
def run(unfinished: str | None, **options: Any) -> None:
    """Measure a suite or a selection into reports/RUN/.

    With several of --isa into one folder for each, then says which int8 kernels saturate (docs/saturation.md).
    """
    from harness.report.terminal import console, print_matrix
    from harness.workspace import find_workspace

    if unfinished is None and arguments.sweeps(options):
        from harness.verbs.sweeping import sweep_and_show

        sweep_and_show(find_workspace(), arguments.selection(options), arguments.hows(options))
        return
    measured = _measure(find_workspace(), options) if unfinished is None else _resume(unfinished, options)
    print_matrix(console(), measured.outputs)
    if measured.excluded:
        click.echo(spoken(f"left in float: {', '.join(measured.excluded)}"))
    click.echo(spoken(f"measured in {measured.seconds:.0f} s: {measured.folder}"))


@click.command()
@arguments.selecting
@arguments.measuring
@click.option("--history", is_flag=True, help="Add the run to history.parquet among the reports.")
@arguments.bundle
@arguments.as_json
def gate(as_json: bool, history: bool, bundle: bool, **options: Any) -> None:
    """Run, check and report in one: the exit code is the verdict."""
    from harness.report.terminal import console, print_matrix
    from harness.verbs.judging import judge_and_report
    from harness.verbs.reporting import keep_in_history
    from harness.workspace import find_workspace

    workspace = find_workspace()
    measured = _measure(workspace, options)
    if not as_json:
        print_matrix(console(), measured.outputs)
    if history:
        keep_in_history(workspace, measured)
    arguments.leave(judge_and_report(workspace, measured, as_json=as_json, bundles=bundle))


@click.command()
@arguments.run_argument
@click.option("--because", required=True, metavar="TEXT", help="Why these numbers are right; kept with them.")
@click.option("-m", "--model", "models", multiple=True, metavar="NAME", help="Only rows of this model.")
@click.option("-f", "--flow", "flows", multiple=True, metavar="NAME", help="Only rows of this flow.")
@click.option("--row", "rows", multiple=True, metavar="PATTERN", help="Only rows whose key fits, parts joined by '/'.")
@click.option("--dry-run", is_flag=True, help="Print old -> new and stop.")
@click.option("--noise-runs", type=click.IntRange(0), default=5, show_default=True,
              help="Jittered runs that measure noise floors, 2 at least; 0 keeps the stored ones.")  # fmt: skip
@arguments.measuring
def accept(run: str | None, because: str, dry_run: bool, noise_runs: int, **options: Any) -> None:
    """Make a stored run the baseline, with a reason.

    RUN is a folder in reports/, by default the latest. Prints old -> new first, and measures noise floors.
    """
    from harness.accept import Request
    from harness.store import find_run
    from harness.verbs import accepting
    from harness.workspace import find_workspace

    if noise_runs == 1:
        raise click.UsageError("--noise-runs 1: a spread needs two runs at least; 0 keeps the stored noise floors")
    workspace = find_workspace()
    request = Request(because, options["models"], options["flows"], options["rows"])
    accepting.accept(
        *(workspace, find_run(workspace.reports, run), request, arguments.how(options)),
        dry_run=dry_run,
        noise_runs=noise_runs,
    )


@click.command()
@arguments.run_argument
@arguments.selecting
@click.option("--point", metavar="POINT", help="converted or lowered; default: the flow's last.")
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="This output; default: what fails, or lost most."
)
@click.option(
    "--against", metavar="SOURCE", help="Take right values from +FIX, baseline, converted or fitted; default: the best."
)
@click.option("--sensitivity", is_flag=True, help="Also leave each quantizer in float alone; resumable.")
@click.option("--minimise", is_flag=True, help="Also write the smallest graph that shows the damage, as .pt2.")
@click.option("-o", "--into", "folder", type=arguments.PATH, metavar="DIR", help="Folder for the records.")
@arguments.measuring
@arguments.as_json
def locate(run: str | None, as_json: bool, **options: Any) -> None:
    """Which quantizers or layers explain what an output lost.

    Looks into the failing rows of a stored RUN, or into the cases that -m and -f name. Ends with 4 if a case could not
    be looked into.
    """
    from harness.verbs import locating
    from harness.workspace import find_workspace

    names = ("point", "outputs", "against", "sensitivity", "minimise", "folder")
    asked = locating.Asked(**{name: options[name] for name in names})
    chosen = arguments.selection(options)
    locating.check(chosen, run, asked)
    code = locating.locate_and_report(find_workspace(), run, chosen, asked, arguments.how(options), as_json=as_json)
    sys.exit(int(code))


@click.command()
@arguments.models
@arguments.jobs
def train(models: tuple[str, ...], jobs: int) -> None:
    """Retrain the small models, bit for bit.

    Rewrites models/weights/*.safetensors from the seed.
    """
    from harness.verbs.training import train_models
    from harness.workspace import find_workspace

    for line in train_models(find_workspace(), models, jobs):
        click.echo(spoken(line))


@click.command()
@click.argument("folder", type=arguments.PATH)
@click.option("--weights", type=arguments.PATH, metavar="PATH", help="The checkpoint, where the weights came from one.")
@click.option("--minimal", is_flag=True, help="Run its minimised graph too; loading one can run code, so trust it.")
@click.option("--timeout", type=click.FloatRange(1), default=1800, show_default=True, help="Seconds it may take.")
@arguments.as_json
def replay(folder: Path, weights: Path | None, minimal: bool, timeout: float, as_json: bool) -> None:
    """Measure the row of a replay bundle again.

    FOLDER is what `sqnr gate --bundle` or `sqnr locate` wrote, here or elsewhere. Ends with 0 if the row is the same to
    the last bit, else says what differs, likely causes first, and ends with 1.
    """
    from harness.verbs.replaying import replay_bundle
    from harness.workspace import find_workspace

    code = replay_bundle(find_workspace(), folder, weights, timeout, minimal=minimal, as_json=as_json)
    sys.exit(int(code))


def _measure(workspace: Workspace, options: dict[str, Any]) -> Run:
    from harness.execute import measure
    from harness.report.progress import showing_progress

    with showing_progress() as shown:
        return measure(workspace, arguments.selection(options), arguments.how(options), shown.start, shown.update)


def _resume(name: str, options: dict[str, Any]) -> Run:
    from harness.execute import resume
    from harness.report.progress import showing_progress
    from harness.suite import Selection
    from harness.workspace import find_workspace

    if arguments.selection(options) != Selection():
        raise click.UsageError(f"--resume {name} measures what that run planned: choose nothing beside it")
    with showing_progress() as shown:
        return resume(find_workspace(), name, arguments.how(options), shown.go_on, shown.update)


@click.command()
@click.argument("folder", type=arguments.PATH, default=".")
@click.option("--model", default="first", show_default=True, metavar="NAME", help="What to call the example's adapter.")
def init(folder: Path, model: str) -> None:
    """Make a folder a workspace of your own.

    Adds settings, an example model and reports/ to FOLDER, by default the current one; nothing is replaced.
    """
    from harness.verbs.starting import start_workspace

    for path in start_workspace(folder, model):
        click.echo(spoken(f"wrote {path}"))
    click.echo('next: sqnr run, sqnr accept --because "first baseline", sqnr gate')


VERBS = (init, run, gate, accept, locate, train, replay)
