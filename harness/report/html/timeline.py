"""SQNR over time as plotly figures: one series at a time, with changes of the stack and steps marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.report.history_frames import runs_frame, series_frame, stack_marks, steps_frame
from harness.report.html.figures import BLUE, ORANGE, Figure, folded, significant
from harness.report.text import plain
from harness.steps import Step, StepKind

_MOST_MARKS = 30
"""Changes of the stack that still leave room between their lines; of more the latest are marked."""
_LEAST_SPAN_DB = 3.0
_NOT_MEASURED = "no number"
_UPWARDS = (StepKind.RISE, StepKind.RECOVERED)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a page shows of a history: a summary, the steps as text, and the traces of each series.

    `series` are names, those with the worst steps first; `traces` and `spans`, the ends of their dB axes, belong to
    them, place by place.
    """

    summary: str
    steps: tuple[list[str], list[list[str]]]
    series: list[str]
    traces: list[list[Figure]]
    spans: list[tuple[float, float]]
    layout: Figure


def timeline(history: pd.DataFrame, steps: Sequence[Step]) -> Timeline:
    """The timeline of a history and of the steps found in it, worst first."""
    runs, lines, text = runs_frame(history), series_frame(history), steps_frame(steps)
    by_series: dict[str, list[tuple[Step, Any]]] = {}
    for step, line in zip(steps, text.itertuples(index=False, name=None), strict=True):
        by_series.setdefault(line[0], []).append((step, line))
    groups = {str(name): group for name, group in lines.groupby("series", sort=False)}
    names = [*(name for name in by_series if name in groups), *(name for name in groups if name not in by_series)]
    run_names = dict(zip(runs["run"], runs["name"], strict=True))
    return Timeline(
        summary=_summary(runs, len(groups), len(steps)),
        steps=(list(text.columns), text.to_numpy().tolist()),
        series=names,
        traces=[_traces(groups[name], run_names, by_series.get(name, ())) for name in names],
        spans=[_span(groups[name]) for name in names],
        layout=_layout(stack_marks(history)),
    )


def _summary(runs: pd.DataFrame, series: int, steps: int) -> str:
    if runs.empty:
        return "The history holds no run."
    first, last = runs["started"].min(), runs["started"].max()
    return (
        f"{_count(len(runs), 'run')} from {first:%Y-%m-%d} to {last:%Y-%m-%d}, "
        f"{_count(series, 'output')} of cases, {_count(steps, 'step') if steps else 'no step'}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
