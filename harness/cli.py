"""The verbs. Thin: each imports what it needs, so that `--help` is quick and CSV-only verbs never load torch."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness import __version__
from harness.errors import ExitCode, SqnrError

if TYPE_CHECKING:
    from harness.execute import Options
    from harness.judge import Judgement
    from harness.store import Run
    from harness.suite import Selection
    from harness.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])


def _selecting(verb: F) -> F:
    """Options that choose cases."""
    for option in (
        click.option("-m", "--model", "models", multiple=True, metavar="NAME", help="Only this model; repeatable."),
        click.option("-f", "--flow", "flows", multiple=True, metavar="NAME", help="Only this flow; repeatable."),
        click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; repeatable."),
        click.option("--suite", metavar="NAME", help="Suite to plan: gate (default), nightly, or the workspace's."),
        click.option("--size", metavar="SIZE", help="Plan this size of every model instead of a suite."),
        click.option("--weights", metavar="KIND|PATH", help="trained, seeded, pretrained, or a checkpoint."),
    ):
        verb = option(verb)
    return verb


def _measuring(verb: F) -> F:
    """Options that say how to measure; none of them but --no-pin changes a number."""
    for option in (
        click.option("-j", "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True,
                     help="Measuring processes, one thread each."),
        click.option("--timeout", type=click.FloatRange(1), default=1800, show_default=True,
                     help="Seconds one model may take."),
        click.option("--shuffle", type=int, metavar="SEED", help="Measure in a shuffled order; no byte may change."),
        click.option("--no-pin", is_flag=True, help="Use every instruction set the CPU has; not for baselines."),
    ):  # fmt: skip
        verb = option(verb)
    return verb


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_run_argument = click.argument("run", required=False, metavar="[RUN]")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="sqnr")
def cli() -> None:
    """Numerical accuracy regression harness for PyTorch PT2E quantization.

    Measures what released quantizers do to real models, and holds it against the baselines in the repository.

    Exit codes: 0 ok, 1 regression or change, 2 usage, configuration or unreadable baseline, 3 baseline stale,
    4 incomplete, 5 nothing measured, 70 internal error, 130 interrupted.
    """


@cli.command("list")
@_json
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
@_selecting
@_measuring
def run(**options: Any) -> None:
    """Measure a suite or a selection into reports/RUN/."""
    from harness.report.terminal import console, print_matrix
    from harness.workspace import find_workspace

    measured = _measure(find_workspace(), options)
    print_matrix(console(), measured.outputs)
    click.echo(f"measured in {measured.seconds:.0f} s: {measured.folder}")


@cli.command()
@_run_argument
@_json
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
@_selecting
@_measuring
@_json
def gate(as_json: bool, **options: Any) -> None:
    """Run, check and report in one: the exit code is the verdict."""
    from harness.report.terminal import console, print_matrix
    from harness.verbs.judging import judge_and_report
    from harness.workspace import find_workspace

    workspace = find_workspace()
    measured = _measure(workspace, options)
    if not as_json:
        print_matrix(console(), measured.outputs)
    _exit(judge_and_report(workspace, measured, as_json=as_json))


@cli.command()
@_run_argument
@click.option("--because", required=True, metavar="TEXT", help="Why these numbers are right; kept with them.")
@click.option("-m", "--model", "models", multiple=True, metavar="NAME", help="Only rows of this model.")
@click.option("-f", "--flow", "flows", multiple=True, metavar="NAME", help="Only rows of this flow.")
@click.option("--row", "rows", multiple=True, metavar="PATTERN", help="Only rows whose key fits, parts joined by '/'.")
@click.option("--dry-run", is_flag=True, help="Print old -> new and stop.")
@click.option("--noise-runs", type=click.IntRange(0), default=5, show_default=True,
              help="Jittered runs that measure noise floors, 2 at least; 0 keeps the stored ones.")  # fmt: skip
@_measuring
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
        *(workspace, find_run(workspace.reports, run), request, _options(options)),
        dry_run=dry_run,
        noise_runs=noise_runs,
    )


@cli.command()
@_run_argument
@click.option("-o", "--output", metavar="FILE", help="Markdown file; default: report.md in the run's folder.")
def report(run: str | None, output: str | None) -> None:
    """Print a stored run's tables and write its report.

    RUN is a folder in reports/, by default the latest.
    """
    from pathlib import Path

    from harness.files import write_atomically
    from harness.judge import judge_or_none
    from harness.report import markdown
    from harness.report.terminal import console, print_judgement, print_matrix
    from harness.store import find_run
    from harness.workspace import find_workspace

    workspace = find_workspace()
    stored = find_run(workspace.reports, run)
    judgement = judge_or_none(workspace, stored)
    print_matrix(console(), stored.outputs)
    print_judgement(console(), judgement)
    path = Path(output) if output else stored.folder / "report.md"
    write_atomically(path, markdown.render(stored, judgement))
    click.echo(f"report: {path}")


@cli.command()
@_json
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
@_json
def compare(base: str, head: str, as_json: bool) -> None:
    """Judge run HEAD by run BASE; needs no baseline.

    Cases, rows and tolerances are compared as if BASE had been accepted.
    """
    from harness.judge import judge_runs
    from harness.report import verdict_json
    from harness.report.terminal import console, print_judgement
    from harness.store import find_run
    from harness.workspace import find_workspace

    workspace = find_workspace()
    old, new = find_run(workspace.reports, base), find_run(workspace.reports, head)
    judgement = judge_runs(workspace, base=old, head=new)
    if as_json:
        click.echo(verdict_json.render(new, judgement), nl=False)
    else:
        print_judgement(console(), judgement, advise=False)
    _exit(judgement)


@cli.command()
@click.option("-m", "--model", "models", multiple=True, metavar="NAME", help="Only this model; repeatable.")
@click.option("-j", "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
def train(models: tuple[str, ...], jobs: int) -> None:
    """Retrain the small models, bit for bit.

    Rewrites models/weights/*.safetensors from the seed.
    """
    from harness.verbs.training import train_models
    from harness.workspace import find_workspace

    for line in train_models(find_workspace(), models, jobs):
        click.echo(line)


def _measure(workspace: Workspace, options: dict[str, Any]) -> Run:
    from harness.execute import measure
    from harness.report.progress import showing_progress

    selection, how = _selection(options), _options(options)
    with showing_progress() as shown:
        return measure(workspace, selection, how, shown.start, shown.update)


def _selection(options: dict[str, Any]) -> Selection:
    from harness.suite import Selection

    names = ("suite", "models", "flows", "variants", "size", "weights")
    return Selection(**{name: options[name] for name in names})


def _options(options: dict[str, Any]) -> Options:
    from harness.execute import Options

    return Options(options["jobs"], options["timeout"], not options["no_pin"], options["shuffle"])


def _exit(judgement: Judgement) -> None:
    sys.exit(int(judgement.exit_code))


def main() -> None:
    """Entry point: user errors become one line and their exit code."""
    # A run that is told to end keeps what it measured and leaves no process behind, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except SqnrError as error:
        click.echo(f"sqnr: {error}", err=True)
        sys.exit(int(error.exit_code))
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("sqnr: interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if os.environ.get("SQNR_DEBUG"):
            traceback.print_exc()
        hint = "SQNR_DEBUG=1 shows where"
        click.echo(f"sqnr: internal error: {type(error).__name__}: {error} ({hint})", err=True)
        sys.exit(ExitCode.INTERNAL)
