"""A history of runs as pandas tables, rounded for reading; names are made visible, and escaped by who renders them.

Everywhere `run` is the place of a run in order of time, 0 for the first of the whole history.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from harness.environment import STACK
from harness.history import KEY
from harness.records import Case
from harness.report.phrases import number
from harness.report.text import visible
from harness.steps import Step, stack_changes

_SERIES = [*KEY, "platform", "pinned"]
_NONE = "none"


def runs_frame(history: pd.DataFrame) -> pd.DataFrame:
    """A line for each run, oldest first: run, run_id, name, started, suite, run_status, platform."""
    return _runs(history)[["run", "run_id", "name", "started", "suite", "run_status", "platform"]]


def _runs(history: pd.DataFrame) -> pd.DataFrame:
    """The first line of each run, oldest run first, with the run's place and visible name."""
    runs = history.drop_duplicates("run_id").sort_values(["started", "run", "run_id"], ignore_index=True)
    return runs.assign(name=runs["run"].map(visible), run=runs.index)


def series_frame(history: pd.DataFrame) -> pd.DataFrame:
    """SQNR over time in long form: series, run, started, sqnr_db (NaN where there is none), status.

    A series is called like `slices/small/trained cadence-hoist +fix lowered centre`; its platform is added where the
    history has several, and `unpinned` where the instruction sets were.
    """
    series = history.groupby(_SERIES, sort=True, dropna=False).ngroup()
    places = _places(history)
    several = history["platform"].nunique() > 1
    unique = history[_SERIES].assign(number=series).drop_duplicates("number").sort_values("number")
    names = [
        series_name(Case(*line[:5]), *line[5:7], platform=line[7] if several else "", pinned=line[8])
        for line in unique[_SERIES].itertuples(index=False, name=None)
    ]
    long = pd.DataFrame(
        {
            "series": np.array(names, dtype=object)[series.to_numpy()] if names else [],
            "run": places,
            "started": history["started"],
            "sqnr_db": history["sqnr_db"].round(2),
            "status": history["status"],
        }
    )
    return long.assign(number=series).sort_values(["number", "run"]).drop(columns="number").reset_index(drop=True)


def series_name(case: Case, point: str, output: str, *, platform: str = "", pinned: bool = True) -> str:
    """What a series is called: `slices/small/trained cadence-hoist +fix lowered centre (linux-aarch64, unpinned)`."""
    more = ", ".join(word for word in (platform, "" if pinned else "unpinned") if word)
    return visible(f"{case} {point} {output}" + (f" ({more})" if more else ""))


def steps_frame(steps: Iterable[Step]) -> pd.DataFrame:
    """Steps as text: what, since run, when, before and after, change, stack changes; in the order given."""
    steps = list(steps)
    several = len({step.platform for step in steps}) > 1
    lines = [
        [
            series_name(
                *(step.case, step.point, step.output),
                platform=step.platform if several else "",
                pinned=step.pinned,
            ),
            visible(step.run),
            f"{step.started:%Y-%m-%d %H:%M}",
            f"{_level(step.old_db, _NONE)} → {_level(step.new_db, step.status)}",
            step.kind.value if step.change_db is None else f"{step.change_db:+.2f} dB",
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
    before = runs.groupby("platform", dropna=False)[list(STACK)].shift()
    first = runs.groupby("platform", dropna=False).cumcount() == 0
    moved = (runs[list(STACK)] != before).any(axis=1) & ~first
    texts = [
        visible(", ".join(stack_changes(then, now)))
        for then, now in zip(
            before[moved].to_dict("records"), runs.loc[moved, list(STACK)].to_dict("records"), strict=True
        )
    ]
    return runs.loc[moved, ["run", "name", "started", "platform"]].assign(text=texts).reset_index(drop=True)


def _places(history: pd.DataFrame) -> pd.Series:
    """For each line of a history the place of its run in order of time."""
    runs = _runs(history)
    return history["run_id"].map(dict(zip(runs["run_id"], runs["run"], strict=True))).astype("int64")
