"""The program: its verbs by name, and how each ends. What measures is imported by the verb that needs it."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import traceback

import click

from harness import __version__
from harness.commands import measuring, reading
from harness.errors import ExitCode, SqnrError
from harness.report.text import spoken


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="sqnr")
def cli() -> None:
    """Numerical accuracy regression harness for PyTorch PT2E quantization.

    Measures what released quantizers do to real models, and holds it against the baselines in the repository.

    Exit codes: 0 ok, 1 regression or change, 2 usage, configuration or unreadable baseline, 3 baseline stale,
    4 incomplete, 5 nothing measured, 70 internal error, 130 interrupted.
    """


for verb in (*measuring.VERBS, *reading.VERBS):
    cli.add_command(verb)


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
