"""The verb `history`: collect stored runs into one table, find the steps in it, and say both."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from harness import baseline as baselines
from harness import history
from harness.errors import NoBaselineError, TableError, UsageError
from harness.history_sources import collect
from harness.records import OutputRow, Status
from harness.report.terminal import print_line, shown
from harness.steps import Allowance, Step, find_steps
from harness.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

FILE = "history.parquet"
PAGE = ".html"
"""How the name of the page ends that is written beside the table."""
BASE = "base"
"""Folder among the reports with runs of other commits, measured now: `nox -s gate -- --base REF` puts them there."""
_MOST_LINES = 20


class Remembered(NamedTuple):
    """A history, its steps (worst first), what could not be taken, how many runs were new to it, and its speeds."""

    frame: pd.DataFrame
    steps: list[Step]
    notes: list[str]
    new: int
    speeds: pd.DataFrame


def history_file(workspace: Workspace, into: Path | None = None) -> Path:
    """Where the history lies: `into`, or history.parquet among the reports.

    Raises `UsageError` for a name that ends with .html: the page beside the table has it.
    """
    if into and into.name.lower().endswith(PAGE):
        raise UsageError(f"{into}: the page beside the table has such a name; name the table, {FILE} say")
    return into or workspace.reports / FILE


def remember(workspace: Workspace, sources: Sequence[Path] = (), into: Path | None = None) -> Remembered:
    """Collect the runs of `sources` (default: the reports but for `base/`) into the history, and find its steps.

    Raises `UsageError` for a source that does not exist, a file that cannot be written or a package that is not
    installed, and `TableError` for a file that is no history; the file is then as it was.
    """
    file = history_file(workspace, into)
    leave_out = [] if sources else [workspace.reports / BASE]
    if not sources and workspace.reports.is_dir():
        sources = [workspace.reports]
    runs, notes = collect(sources, history.known_ids(file), leave_out)
    new = history.append(file, runs) if runs else 0
    return _recalled(workspace, file if file.exists() else None, notes, new)


def recall(workspace: Workspace, file: Path | None = None) -> Remembered:
    """A history as it is stored, and its steps. Raises what `harness.history.read` raises."""
    return _recalled(workspace, history_file(workspace, file), [], 0)


def _recalled(workspace: Workspace, file: Path | None, notes: list[str], new: int) -> Remembered:
    frame, speeds = history.read_both(file) if file else (history.empty(), history.empty_speeds())
    return Remembered(frame, find_steps(frame, allowance(workspace, frame, notes)), notes, new, speeds)


def allowance(workspace: Workspace, frame: pd.DataFrame, notes: list[str]) -> Allowance:
    """By a row's key, the drop that the gate allows it: the settings', raised by the row's own noise floor.

    Of several suites that measured a row the strictest counts. The noise floors are those of this machine's baselines,
    read when first asked for; `notes` gets a line if they cannot be read.
    """
    measured_by = frame.groupby(list(history.KEY))["suite"].unique().to_dict()
    today = datetime.date.today()

    @cache
    def noise_floors() -> dict[tuple[str, ...], float]:
        try:
            accepted = baselines.read(workspace.platform_baselines).outputs
        except NoBaselineError:
            return {}
        except TableError as error:
            notes.append(f"no noise floors: {error}")
            return {}
        return {key: row.noise_db or 0.0 for key, row in accepted.items()}

    def allowed(key: tuple[str, ...]) -> float:
        model, size, weights, flow, variant, point, output = key
        row = OutputRow(model, size, weights, flow, variant, point, output, Status.MEASURED)
        tolerances = [workspace.settings.tolerance_for(row, suite, today) for suite in measured_by[key]]
        noise_db = noise_floors().get(key, 0.0)
        return min(max(item.sqnr_drop_db, item.noise_multiple * noise_db) for item in tolerances)

    return allowed


def print_history(console: Console, remembered: Remembered, file: Path, most: int = _MOST_LINES) -> None:
    """How many runs and which span, the steps, the latest speeds, and what could not be taken."""
    from harness.report.history_frames import several_platforms, steps_frame
    from harness.report.speed_frames import speed_tables

    frame, steps, notes, new, speeds = remembered
    for note in notes[:most]:
        print_line(console, f"note: {note}")
    if len(notes) > most:
        console.print(f"... and {len(notes) - most} more notes", highlight=False)
    if steps:
        lines = steps_frame(steps[:most], name_platform=several_platforms(frame))
        _print_table(console, "Steps in SQNR, worst first", lines, words=set(lines.columns) - {"change"})
    if len(steps) > most:
        console.print(f"... and {len(steps) - most} more steps: --json has all", highlight=False)
    for table in speed_tables(speeds):
        _print_table(console, table.title, table.frame, words=("model",))
        print_line(console, table.note)
    runs, first, last = _span(remembered)
    if runs:
        text = f"{_count(runs, 'run')} ({new} new), {first:%Y-%m-%d} to {last:%Y-%m-%d}, {_count(len(steps), 'step')}"
    else:
        text = "no finished run found, start with `sqnr run`"
    print_line(console, f"{text}: {file}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print_table(console: Console, title: str, lines: pd.DataFrame, words: Collection[str]) -> None:
    table = Table(title=title, title_justify="left")
    for column in lines.columns:
        table.add_column(shown(column), justify="left" if column in words else "right", overflow="fold")
    for line in lines.itertuples(index=False):
        table.add_row(*map(shown, line))
    console.print(table)


def as_json(remembered: Remembered, file: Path) -> str:
    """The same for programs: numbers exact, times in ISO 8601, null where there is none."""
    from harness.report.speed_frames import latest

    _, steps, notes, new, speeds = remembered
    runs, first, last = _span(remembered)
    content = {
        "file": str(file),
        "runs": runs,
        "new": new,
        "first": first.isoformat() if runs else None,
        "last": last.isoformat() if runs else None,
        "steps": [_plain(step) for step in steps],
        "speeds": _plain_speeds(latest(speeds)),
        "notes": notes,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _plain(step: Step) -> dict[str, Any]:
    names = ("model", "size", "weights", "flow", "variant")
    own = ("point", "output", "kind", "run", "run_id", "before", "old_db", "new_db", "change_db", "status", "platform")
    return {
        **{name: getattr(step.case, name) for name in names},
        **{name: getattr(step, name) for name in (*own, "pinned")},
        "started": step.started.isoformat(),
        "stack_changes": list(step.stack_changes),
    }


def _plain_speeds(speeds: pd.DataFrame) -> list[dict[str, Any]]:
    lines = speeds.assign(started=[when.isoformat() for when in speeds["started"]]).astype(object)
    records: list[dict[str, Any]] = lines.where(lines.notna(), None).to_dict("records")
    return records


def _span(remembered: Remembered) -> tuple[int, Any, Any]:
    """How many runs and benchmarks, and when the first and the last began."""
    began = {
        run_id: started
        for frame in (remembered.frame, remembered.speeds)
        for run_id, started in zip(frame["run_id"], frame["started"], strict=True)
    }
    return len(began), min(began.values(), default=None), max(began.values(), default=None)
