"""SQNR over time, one series at a time: a plotly figure with changes of the stack and steps marked, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.report.history_frames import runs_frame, series_frame, several_platforms, stack_marks, steps_frame
from harness.report.html.figures import BLUE, ORANGE, Figure, folded, significant
from harness.report.phrases import number
from harness.report.speed_frames import SpeedTable, speed_tables
from harness.report.text import counted, plain, visible
from harness.steps import SeriesKey, Step, StepKind

_MOST_MARKS = 30
"""Changes of the stack that still leave room between their lines; of more the latest are marked."""
_MOST_ROWS = 200
"""Runs in the table of a series, the latest."""
_LEAST_SPAN_DB = 3.0
_NOT_MEASURED = "no number"
_UPWARDS = (StepKind.RISE, StepKind.RECOVERED)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a page shows of a history: a summary, the steps as text, and each series.

    `series` are names, those with the worst steps first. `traces` and `spans`, the ends of their dB axes, belong to
    them, place by place. Of `traces` each has `data` (plotly's), `platform` (which of `layout` is its), `rows` (run,
    when, SQNR or status, stack changes; latest run first) and `more` (how many runs have no row, in words).
    """

    summary: str
    steps: tuple[list[str], list[list[str]]]
    series: list[str]
    traces: list[Figure]
    spans: list[tuple[float, float]]
    layout: dict[str, Figure]
    speeds: tuple[tuple[SpeedTable, list[list[str]]], ...] = ()
    """Tables of the latest speeds, and their lines."""


def timeline(history: pd.DataFrame, steps: Sequence[Step], speeds: pd.DataFrame | None = None) -> Timeline:
    """The timeline of a history and of the steps found in it, worst first, and with what was timed."""
    runs, lines, marks = runs_frame(history), series_frame(history), stack_marks(history)
    text = steps_frame(steps, name_platform=several_platforms(history))
    by_series: dict[SeriesKey, list[tuple[Step, Any]]] = {}
    for step, line in zip(steps, text.itertuples(index=False, name=None), strict=True):
        by_series.setdefault(step.series, []).append((step, line))
    groups = {group["key"].iloc[0]: group for _, group in lines.groupby("key", sort=False)}
    keys = [*by_series, *(key for key in groups if key not in by_series)]
    run_names = dict(zip(runs["run"], runs["name"], strict=True))
    platforms = dict(zip(runs["run"], runs["platform"], strict=True))
    return Timeline(
        summary=_summary(runs, len(groups), len(steps)),
        steps=(list(text.columns), text.to_numpy().tolist()),
        series=[groups[key]["series"].iloc[0] for key in keys],
        traces=[
            {
                "platform": platforms[groups[key]["run"].iloc[0]],
                "data": _traces(groups[key], run_names, by_series.get(key, ())),
                "rows": _rows(groups[key].tail(_MOST_ROWS), run_names),
                "more": _more(len(groups[key]) - _MOST_ROWS),
            }
            for key in keys
        ],
        spans=[_span(groups[key]) for key in keys],
        layout={name: _layout(marks[marks["platform"] == name]) for name in runs["platform"].unique()},
        speeds=_speeds(speeds),
    )


def _speeds(speeds: pd.DataFrame | None) -> tuple[tuple[SpeedTable, list[list[str]]], ...]:
    return () if speeds is None else tuple((table, table.frame.to_numpy().tolist()) for table in speed_tables(speeds))


def _summary(runs: pd.DataFrame, series: int, steps: int) -> str:
    if runs.empty:
        return "The history holds no run."
    first, last = runs["started"].min(), runs["started"].max()
    return (
        f"{counted(len(runs), 'run')} from {first:%Y-%m-%d} to {last:%Y-%m-%d}, "
        f"{series:,} series, {counted(steps, 'step') if steps else 'no step'}."
    )


def _rows(lines: pd.DataFrame, run_names: dict[int, str]) -> list[list[str]]:
    columns = (lines[name] for name in ("run", "started", "sqnr_db", "status", "stack_changes"))
    return [
        [
            run_names[run],
            f"{started:%Y-%m-%d %H:%M}",
            visible(status) if significant(level) is None else number("sqnr_db", level),
            stack,
        ]
        for run, started, level, status, stack in zip(*columns, strict=True)
    ][::-1]


def _more(runs: int) -> str:
    return f"... and {counted(runs, 'earlier run')}" if runs > 0 else ""


def _traces(lines: pd.DataFrame, run_names: dict[int, str], steps: Iterable[tuple[Step, Any]]) -> list[Figure]:
    times = [moment.isoformat() for moment in lines["started"]]
    names = [plain(run_names[run]) for run in lines["run"]]
    levels = [significant(level) for level in lines["sqnr_db"]]
    measured: Figure = {
        "type": "scatter", "mode": "lines+markers", "name": "SQNR", "x": times, "y": levels, "text": names,
        "line": {"color": BLUE, "width": 1.5}, "marker": {"size": 6}, "connectgaps": False,
        "hovertemplate": "%{text}<br>%{x|%Y-%m-%d %H:%M}<br>%{y:.2f} dB<extra></extra>",
    }  # fmt: skip
    known = [level for level in levels if level is not None]
    floor = min(known, default=0.0)
    lost = [place for place, level in enumerate(levels) if level is None]
    statuses = list(lines["status"])
    failed: Figure = {
        "type": "scatter", "mode": "markers", "name": _NOT_MEASURED, "x": [times[place] for place in lost],
        "y": [floor] * len(lost), "text": [f"{names[place]}<br>{plain(statuses[place])}" for place in lost],
        "marker": {"symbol": "x", "size": 10, "color": ORANGE}, "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
    marks = [
        (step.started.isoformat(), floor if step.new_db is None else step.new_db, step.kind in _UPWARDS, line)
        for step, line in steps
    ]
    stepped: Figure = {
        "type": "scatter", "mode": "markers", "name": "step, first run with it",
        "x": [when for when, *_ in marks], "y": [level for _, level, *_ in marks],
        "text": ["<br>".join(folded(part) for part in line[1:]) for *_, line in marks],
        "marker": {"symbol": ["triangle-up" if upwards else "triangle-down" for *_, upwards, _ in marks],
                   "size": 15, "color": ORANGE, "line": {"width": 1, "color": "#ffffff"}},
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
    return [measured, *([failed] if lost else []), *([stepped] if marks else [])]


def _span(lines: pd.DataFrame) -> tuple[float, float]:
    """Ends of the axis: the values with some room, and never so near that noise looks like a step."""
    low, high = lines["sqnr_db"].min(), lines["sqnr_db"].max()
    if pd.isna(low):
        return 0.0, _LEAST_SPAN_DB
    room = max(_LEAST_SPAN_DB - (high - low), 0.1 * (high - low)) / 2
    return round(low - room, 2), round(high + room, 2)


def _layout(marks: pd.DataFrame) -> Figure:
    """Layout with a dotted line where the stack changed, and its packages beside it."""
    shown = [(moment.isoformat(), plain(text)) for moment, text in zip(marks["started"], marks["text"], strict=True)]
    shown = shown[-_MOST_MARKS:]
    line = {"dash": "dot", "width": 1.5, "color": "#888888"}
    return {
        "height": 430,
        "margin": {"l": 60, "r": 20, "t": 64, "b": 40},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "showlegend": True,
        "xaxis": {"type": "date"},
        "yaxis": {"title": {"text": "SQNR, dB"}},
        "shapes": [
            {"type": "line", "x0": when, "x1": when, "y0": 0, "y1": 1, "yref": "paper", "line": line}
            for when, _ in shown
        ],
        "annotations": [
            {"x": when, "y": 1, "yref": "paper", "text": text, "textangle": -90, "xanchor": "right", "yanchor": "top",
             "showarrow": False, "font": {"size": 10.5}}
            for when, text in shown
        ],
    }  # fmt: skip
