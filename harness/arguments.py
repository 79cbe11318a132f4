"""Options and arguments that several verbs share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.environment import ALL, ISAS, chosen_isas

if TYPE_CHECKING:
    from harness.execute import Options
    from harness.judge import Judgement
    from harness.suite import Selection

F = TypeVar("F", bound=Callable[..., Any])


models = click.option("-m", "--model", "models", multiple=True, metavar="NAME", help="Only this model; repeatable.")
jobs = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default=True,
    help="Measuring processes, one thread each.",
)


def selecting(verb: F) -> F:
    """Options that choose cases."""
    for option in (
        models,
        click.option("-f", "--flow", "flows", multiple=True, metavar="NAME", help="Only this flow; repeatable."),
        click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; repeatable."),
        click.option(
            "--suite", metavar="NAME", help="Suite to plan: gate (default), kernels, nightly, or the workspace's."
        ),
        click.option("--size", metavar="SIZE", help="Plan this size of every model instead of a suite."),
        click.option(
            "--lower/--no-lower",
            "lowered",
            default=None,
            help="Measure every flow's lowering too, or none; else as the suite says.",
        ),
        click.option("--weights", metavar="KIND|PATH", help="trained, seeded, pretrained, or a checkpoint."),
    ):
        verb = option(verb)
    return verb


def measuring(verb: F) -> F:
    """Options that say how to measure; none of them but --no-pin and --isa changes a number."""
    for option in (
        jobs,
        click.option(
            "--timeout", type=click.FloatRange(1), default=1800, show_default=True, help="Seconds one model may take."
        ),
        click.option(
            "--memory", type=click.FloatRange(0.1), metavar="GIB", help="GiB of data one measuring process may have."
        ),
        click.option("--shuffle", type=int, metavar="SEED", help="Measure in a shuffled order; no byte may change."),
        click.option("--no-pin", is_flag=True, help="Use every instruction set the CPU has; not for baselines."),
        click.option(
            "--isa",
            "isas",
            type=click.Choice([*ISAS, ALL]),
            multiple=True,
            help="Pin another instruction set than avx2; not for baselines. `sqnr run` takes several, or all.",
        ),
    ):
        verb = option(verb)
    return verb


class _NamedPath(click.ParamType):  # type: ignore[type-arg]  # generic for the type checker alone
    """A path; an empty one, such as an unset variable gives, would be the current folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        if not str(value):
            self.fail("an empty name", param, ctx)
        return Path(value)


PATH = _NamedPath()
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
bundle = click.option("--bundle", is_flag=True, help="Write a folder for each failing row that `sqnr replay` takes.")
run_argument = click.argument("run", required=False, metavar="[RUN]")


def selection(options: dict[str, Any]) -> Selection:
    """What the options of `selecting` choose."""
    from harness.suite import Selection

    names = ("suite", "models", "flows", "variants", "size", "weights", "lowered", "excluded")
    return Selection(**{name: options[name] for name in names if name in options})


def how(options: dict[str, Any]) -> Options:
    """What the options of `measuring` say; raises `UsageError` where several instruction sets were asked for."""
    if sweeps(options):
        raise click.UsageError(f"{_asked(options)}: only `sqnr run` measures with several instruction sets")
    [one] = hows(options)
    return one


def sweeps(options: dict[str, Any]) -> bool:
    """Whether several instruction sets were asked for; all of a processor may be one."""
    return len(set(options["isas"])) > 1 or ALL in options["isas"]


def hows(options: dict[str, Any]) -> list[Options]:
    """What the options of `measuring` say, for each instruction set that was asked for, best first."""
    from harness.execute import Options

    if options["isas"] and options["no_pin"]:
        raise click.UsageError(f"{_asked(options)} pins an instruction set and --no-pin none: give one of them")
    own = Options(options["jobs"], options["timeout"], options["memory"], not options["no_pin"], options["shuffle"])
    return [replace(own, isa=isa) for isa in chosen_isas(options["isas"]) or ("",)]


def _asked(options: dict[str, Any]) -> str:
    return " ".join(f"--isa {isa}" for isa in options["isas"])


def leave(judgement: Judgement) -> None:
    """End the process with a judgement's exit code."""
    sys.exit(int(judgement.exit_code))
