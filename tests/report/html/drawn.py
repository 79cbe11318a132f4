"""Figures of made-up rows, once plotly and JSON have taken them."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import plotly.graph_objects as go

from harness.records import OutputRow, QuantizerRow
from harness.report.bounds import moved_bounds, range_frame
from harness.report.fix_matrix import fix_matrix
from harness.report.html.assets import pack_json
from harness.report.html.figures import Figure, bars_figure, matrix_figure, moved_figure, range_figure
from harness.report.levels import COLUMNS


def valid(figure: Figure) -> Figure:
    """The figure, once plotly and JSON have taken it."""
    go.Figure({name: part for name, part in figure.items() if name != "least_width"})
    pack_json(figure)
    return figure


def matrix(*rows: OutputRow) -> Figure:
    (trace,) = valid(matrix_figure(fix_matrix(rows)))["data"]
    found: Figure = trace
    return found


def bars(*lines: tuple[str, float | None, float | None, float | None]) -> Figure:
    """Of (label, before, after, noise floor)."""
    frame = pd.DataFrame([("title", *line) for line in lines], columns=COLUMNS)
    return valid(bars_figure(frame.astype({"before": float, "after": float, "noise_db": float})))


def moved(rows: Iterable[QuantizerRow]) -> dict[str, Figure]:
    return {trace["name"]: trace for trace in valid(moved_figure(moved_bounds(rows)))["data"]}


def ranges(*rows: QuantizerRow) -> tuple[Figure, Figure, Figure]:
    """Representable, observed, layout."""
    figure = valid(range_figure(range_frame(rows)))
    representable, observed = figure["data"]
    return representable, observed, figure["layout"]
