"""The verbs. Thin: each imports what it needs, so that `--help` is quick and CSV-only verbs never load torch."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import __version__, arguments
from harness.errors import ExitCode, SqnrError
from harness.report.text import spoken

if TYPE_CHECKING:
    from harness.judge import Judgement
    from harness.store import Run
    from harness.workspace import Workspace


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="sqnr")
def cli() -> None:
    """Numerical accuracy regression harness for PyTorch PT2E quantization.

    Measures what released quantizers do to real models, and holds it against the baselines in the repository.

    Exit codes: 0 ok, 1 regression or change, 2 usage, configuration or unreadable baseline, 3 baseline stale,
    4 incomplete, 5 nothing measured, 70 internal error, 130 interrupted.
    """


@cli.command("list")
@arguments.as_json
def list_(as_json: bool) -> None:
    """Models, flows, suites and installed releases."""
    from harness.verbs.listing import inventory, print_inventory
    from harness.workspace import find_workspace

    found = inventory(find_workspace())
    if as_json:
        import json

        click.echo(json.dumps(found, indent=1))
    else:
        print_inventory(found)


@cli.command()
@arguments.selecting
@arguments.measuring
def run(**options: Any) -> None:
    """Measure a suite or a selection into reports/RUN/."""
    from harness.report.terminal import console, print_matrix
    from harness.workspace import find_workspace

    measured = _measure(find_workspace(), options)
    print_matrix(console(), measured.outputs)
    click.echo(spoken(f"measured in {measured.seconds:.0f} s: {measured.folder}"))


@cli.command()
@arguments.run_argument
@arguments.as_json
def check(run: str | None, as_json: bool) -> None:
    """Judge a stored run by the baselines.

    RUN is a folder in reports/, by default the latest.
    """
    from harness.store import find_run
    from harness.verbs.judging import judge_and_report
    from harness.workspace import find_workspace

    workspace = find_workspace()
    stored = find_run(workspace.reports, run)
    _exit(judge_and_report(workspace, stored, as_json=as_json, named=run is not None))


@cli.command()
@arguments.selecting
@arguments.measuring
@click.option("--history", is_flag=True, help="Add the run to history.parquet among the reports.")
@arguments.as_json
def gate(as_json: bool, history: bool, **options: Any) -> None:
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
    _exit(judge_and_report(workspace, measured, as_json=as_json))


@cli.command()
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


@cli.command()
@arguments.run_argument
@click.option("-o", "--output", type=arguments.PATH, metavar="DIR", help="Folder to write into; default: the run's.")
@click.option(
    "--figures",
    type=arguments.PATH,
    metavar="DIR",
    help="Also draw fixes and range bounds into DIR, as SVG and PNG.",
)
@click.option(
    "--history", type=arguments.PATH, metavar="FILE", help="History to show; default: the one among the reports."
)
def report(run: str | None, output: Path | None, figures: Path | None, history: Path | None) -> None:
    """Write a stored run's reports: HTML, markdown, JUnit, JSON, CSV.

    RUN is a folder in reports/, by default the latest. Prints its tables too.
    """
    from harness.verbs.reporting import report_run
    from harness.workspace import find_workspace

    report_run(find_workspace(), run, output, figures, history)


@cli.command()
@click.argument("sources", nargs=-1, type=arguments.PATH, metavar="[FOLDER|ZIP]...")
@click.option(
    "--into",
    type=arguments.PATH,
    metavar="FILE",
    help="Table to keep them in; default: reports/history.parquet.",
)
@arguments.as_json
def history(sources: tuple[Path, ...], into: Path | None, as_json: bool) -> None:
    """Collect stored runs, and show where SQNR moved over time.

    Takes the reports of this workspace, or folders and archives that hold runs. A run that is already there is no
    second one.
    """
    from harness.report.terminal import console
    from harness.verbs import remembering
    from harness.verbs.reporting import write_history
    from harness.workspace import find_workspace

    workspace = find_workspace()
    file = remembering.history_file(workspace, into)
    remembered = remembering.remember(workspace, sources, into)
    page = write_history(remembered, file)
    if as_json:
        click.echo(remembering.as_json(remembered, file), nl=False)
        return
    remembering.print_history(console(), remembered, file)
    if page:
        click.echo(spoken(f"report: {page}"))


@cli.command()
@arguments.as_json
def fixes(as_json: bool) -> None:
    """Which installed releases still have which defect.

    Measures each with its probe, as released and repaired. Ends with 4 if a fix is unknown or inert.
    """
    from harness.verbs.fixing import as_text, diagnose_all, print_diagnoses

    found = diagnose_all()
    if as_json:
        click.echo(as_text(found))
    else:
        print_diagnoses(found)
    untold = any(diagnosis.state in ("unknown", "inert") for diagnosis in found)
    sys.exit(int(ExitCode.INCOMPLETE if untold else ExitCode.OK))


@cli.command()
@click.argument("base")
@click.argument("head")
@click.option(
    "-o", "--output", type=arguments.PATH, metavar="DIR", help="Folder for the reports; default: one in HEAD's."
)
@arguments.as_json
def compare(base: str, head: str, output: Path | None, as_json: bool) -> None:
    """Judge run HEAD by run BASE; needs no baseline.

    Cases, rows and tolerances are compared as if BASE had been accepted.
    """
    from harness.judge import judge_runs
    from harness.store import find_run
    from harness.verbs.judging import say, show_folder
    from harness.verbs.reporting import write_verdict
    from harness.workspace import find_workspace

    workspace = find_workspace()
    old, new = find_run(workspace.reports, base), find_run(workspace.reports, head)
    judgement = judge_runs(workspace, base=old, head=new)
    say(new, judgement, as_json=as_json, named=True)
    folder = output or new.folder / f"against-{old.name}"
    write_verdict(new, judgement, folder)
    if not as_json:
        show_folder(folder)
    _exit(judgement)


@cli.command()
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


def _measure(workspace: Workspace, options: dict[str, Any]) -> Run:
    from harness.execute import measure
    from harness.report.progress import showing_progress

    with showing_progress() as shown:
        return measure(workspace, arguments.selection(options), arguments.how(options), shown.start, shown.update)


def _exit(judgement: Judgement) -> None:
    sys.exit(int(judgement.exit_code))


def _say_usage(error: click.ClickException) -> None:
    """As click does, but for names that would speak to the terminal or to GitHub."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    click.echo(f"Error: {spoken(error.format_message())}", err=True)


def main() -> None:
    """Entry point: user errors become one line and their exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a sign that the encoding lacks is no reason to lose a verdict
            stream.reconfigure(errors="backslashreplace")
    gc.disable()  # this process lives for one verb, and sweeping rows is a tenth of a report's time
    # A run that is told to end keeps what it measured and leaves no process behind, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        _say_usage(error)
        sys.exit(ExitCode.USAGE)
    except SqnrError as error:
        click.echo(f"sqnr: {spoken(error)}", err=True)
        sys.exit(int(error.exit_code))
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("sqnr: interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if os.environ.get("SQNR_DEBUG"):
            traceback.print_exc()
        hint = "SQNR_DEBUG=1 shows where"
        click.echo(f"sqnr: internal error: {type(error).__name__}: {spoken(error)} ({hint})", err=True)
        sys.exit(ExitCode.INTERNAL)
