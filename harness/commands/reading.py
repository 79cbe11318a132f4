"""The verbs that read what was stored, and those that look at what is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness import arguments
from harness.errors import ExitCode
from harness.report.text import spoken


@click.command("list")
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


@click.command()
@arguments.run_argument
@arguments.bundle
@arguments.as_json
def check(run: str | None, bundle: bool, as_json: bool) -> None:
    """Judge a stored run by the baselines.

    RUN is a folder in reports/, by default the latest.
    """
    from harness.store import find_run
    from harness.verbs.judging import judge_and_report
    from harness.workspace import find_workspace

    workspace = find_workspace()
    stored = find_run(workspace.reports, run)
    named = run is not None
    arguments.leave(judge_and_report(workspace, stored, as_json=as_json, named=named, bundles=bundle))


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
@click.argument("base")
@click.argument("head")
@click.option(
    "-o", "--output", type=arguments.PATH, metavar="DIR", help="Folder for the reports; default: one in HEAD's."
)
@arguments.as_json
def compare(base: str, head: str, output: Path | None, as_json: bool) -> None:
    """Judge run HEAD by run BASE; needs no baseline.

    Cases, rows and tolerances are compared as if BASE had been accepted. Samples are paired: one that collapsed is a
    regression, whatever the mean says.
    """
    from harness.judge import judge_runs
    from harness.report import samples
    from harness.report.terminal import console
    from harness.store import find_run
    from harness.verbs.judging import judge_samples, say, show_folder, write_samples
    from harness.verbs.reporting import write_verdict
    from harness.workspace import find_workspace

    workspace = find_workspace()
    old, new = find_run(workspace.reports, base), find_run(workspace.reports, head)
    judgement, moved = judge_samples(workspace, old, new, judge_runs(workspace, base=old, head=new))
    say(new, judgement, as_json=as_json, named=True)
    if not as_json:
        samples.print_samples(console(), moved)
    folder = output or new.folder / f"against-{old.name}"
    write_verdict(new, judgement, folder)
    write_samples(folder, moved)
    if not as_json:
        show_folder(folder)
    arguments.leave(judgement)


@click.command()
@click.argument("base")
@click.argument("heads", nargs=-1, required=True, metavar="HEAD...")
@arguments.as_json
def noise(base: str, heads: tuple[str, ...], as_json: bool) -> None:
    """How far runs moved from BASE, in noise floors.

    For runs of one stack on several machines or instruction sets (`sqnr run --isa`): shows whether the accepted floors
    foretell what a machine does to each row, and which multiple of them holds all rows. Judges nothing.
    """
    from harness.verbs.noising import show_noise
    from harness.workspace import find_workspace

    show_noise(find_workspace(), base, heads, machine=as_json)


VERBS = (list_, check, report, history, fixes, compare, noise)
