"""A history of runs as pandas tables, rounded for reading; names are made visible, and escaped by who renders them.

Everywhere `run` is the place of a run in order of time, 0 for the first of the whole history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from harness.environment import STACK
from harness.records import Case
from harness.report.phrases import fixed, number
from harness.report.text import visible
from harness.steps import SERIES, Step, stack_changes

_NONE = "none"


def runs_frame(history: pd.DataFrame) -> pd.DataFrame:
    """A line for each run, oldest first: run, run_id, name, started, suite, run_status, platform."""
    return _runs(history)[["run", "run_id", "name", "started", "suite", "run_status", "platform"]]


def _runs(history: pd.DataFrame) -> pd.DataFrame:
    """The first line of each run, oldest run first, with the run's place and visible name."""
    runs = history.drop_duplicates("run_id").sort_values(["started", "run", "run_id"], ignore_index=True)
    return runs.assign(name=runs["run"].map(visible), run=runs.index)


def several_platforms(history: pd.DataFrame) -> bool:
    """Whether series of this history have to be told apart by their platform too."""
    return bool(history["platform"].nunique() > 1)


def series_frame(history: pd.DataFrame) -> pd.DataFrame:
    """SQNR over time in long form: key, series, run, started, sqnr_db (NaN where there is none), status, stack_changes.

    `key` is `Step.series`. `series` is its name, like `slices/small/trained cadence-hoist +fix lowered centre`; the
    platform is added where the history has several, and `unpinned` where the instruction sets were. `stack_changes`
    are those since the run before of the series, as text; empty if there are none.
    """
    number = history.groupby(list(SERIES), sort=True, dropna=False).ngroup()
    several = several_platforms(history)
    lines = history.assign(number=number, place=_places(history)).sort_values(["number", "place"], ignore_index=True)
    keys = [*lines.drop_duplicates("number")[list(SERIES)].itertuples(index=False, name=None)]
    names = [_name(*key, name_platform=several) for key in keys]
    return pd.DataFrame(
        {
            "key": pd.Series([keys[number] for number in lines["number"]], dtype=object),
            "series": pd.Series([names[number] for number in lines["number"]], dtype=object),
            "run": lines["place"],
            "started": lines["started"],
            "sqnr_db": lines["sqnr_db"].round(2),
            "status": lines["status"],
            "stack_changes": _stack_moves(lines, "number"),
        }
    )


def _name(*key: Any, name_platform: bool) -> str:
    *case, point, output, platform, pinned = key
    return series_name(Case(*case), point, output, platform=platform if name_platform else "", pinned=pinned)


def series_name(case: Case, point: str, output: str, *, platform: str = "", pinned: bool = True) -> str:
    """What a series is called: `slices/small/trained cadence-hoist +fix lowered centre (linux-aarch64, unpinned)`."""
    more = ", ".join(word for word in (platform, "" if pinned else "unpinned") if word)
    return visible(f"{case} {point} {output}" + (f" ({more})" if more else ""))


def steps_frame(steps: Iterable[Step], *, name_platform: bool) -> pd.DataFrame:
    """Steps as text: what, since run, when, before and after, change, stack changes; in the order given.

    `name_platform` is `several_platforms` of their history, so that its series are called alike everywhere.
    """
    lines = [
        [
            _name(*step.series, name_platform=name_platform),
            visible(step.run),
            f"{step.started:%Y-%m-%d %H:%M}",
            f"{_level(step.old_db, _NONE)} → {_level(step.new_db, step.status)}",
            step.kind.value if step.change_db is None else f"{fixed(step.change_db, 2, '+')} dB",
            visible(", ".join(step.stack_changes)) or _NONE,
        ]
        for step in steps
    ]
    return pd.DataFrame(lines, columns=["what", "since run", "when", "before → after", "change", "stack changes"])


def _level(sqnr_db: float | None, otherwise: str) -> str:
    return visible(otherwise) if sqnr_db is None else number("sqnr_db", sqnr_db)


def stack_marks(history: pd.DataFrame) -> pd.DataFrame:
    """The runs whose stack differs from that of the run before on their platform: run, name, started, platform, text.

    The text names the packages, such as `torchao 0.17.0 -> 0.18.0, nncf 3.3.0 -> 3.4.0`.
    """
    runs = _runs(history)
    marks = runs.assign(text=_stack_moves(runs, "platform"))[["run", "name", "started", "platform", "text"]]
    return marks[marks["text"] != ""].reset_index(drop=True)


def _stack_moves(lines: pd.DataFrame, group: str) -> pd.Series:
    """What of the stack differs from the line before in its group, for each line, as text; empty if nothing does."""
    groups, stack = lines.groupby(group, dropna=False), list(STACK)
    before = groups[stack].shift()
    moved = (lines[stack] != before).any(axis=1) & (groups.cumcount() > 0)
    texts = pd.Series("", index=lines.index, dtype=object)
    pairs = zip(before[moved].to_dict("records"), lines.loc[moved, stack].to_dict("records"), strict=True)
    texts[moved] = [visible(", ".join(stack_changes(then, now))) for then, now in pairs]
    return texts


def _places(history: pd.DataFrame) -> pd.Series:
    """For each line of a history the place of its run in order of time."""
    runs = _runs(history)
    return history["run_id"].map(dict(zip(runs["run_id"], runs["run"], strict=True))).astype("int64")
