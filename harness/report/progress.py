"""What is being measured: a bar for each model on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.report.terminal import print_line
from harness.report.text import counted, spoken

if TYPE_CHECKING:
    from harness.parts import Progress as Step  # brings the measuring processes with it
    from harness.store import Run


class Shown:
    """Receives a run's start and its steps; names in them are shown as they are, never as markup."""

    def __init__(self, console: Console, bars: Progress | None) -> None:
        self._console = console
        self._bars = bars
        self._total = 0
        self._done = 0
        self._tasks: dict[object, object] = {}

    def start(self, run: Run, isa: str = "") -> None:
        """Announce the plan, and the instruction set where there will be other runs under others."""
        count = len(run.plan.cases)
        what = f"{run.plan.suite} under {isa}" if isa else run.plan.suite
        self.expect(count, f"{what}: {counted(count, 'case')} -> {run.folder}")

    def go_on(self, run: Run, measured: int) -> None:
        """Announce what is left of a plan of which so many cases have been measured."""
        count = len(run.plan.cases)
        self.expect(count - measured, f"{run.plan.suite}: {measured} of {count} cases are measured -> {run.folder}")

    def expect(self, cases: int, title: str) -> None:
        """Announce so many cases."""
        self._total, self._done = cases, 0
        if self._bars is None:
            print_line(self._console, title)
        else:
            self._tasks["all"] = self._bars.add_task(spoken(title), total=cases)

    def update(self, step: Step) -> None:
        """A stage began, or a case was finished."""
        model = "/".join(step.job.subject[:2])
        if step.stage is None:
            self._done += 1
        if self._bars is not None:
            task = self._tasks["all"]
            text = f"{model} {step.case.flow}" + (f": {step.stage}" if step.stage else "")
            self._bars.update(task, completed=self._done, description=spoken(text))  # type: ignore[arg-type]
        elif step.stage is None:
            print_line(self._console, f"[{self._done}/{self._total}] {step.case} {step.seconds:.1f} s")


@contextmanager
def showing_progress(console: Console | None = None) -> Iterator[Shown]:
    """Progress on a console; by default on standard error, so that standard output stays for results."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield Shown(console, None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        yield Shown(console, bars)
