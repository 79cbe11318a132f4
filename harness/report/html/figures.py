"""Figures as plotly specifications: plain dicts that the page hands to plotly.js when they are looked at.

Colours are Okabe and Ito's and Cividis, which colour-blind readers can tell apart; every trace has a sign, a pattern
or a marker of its own. Text is escaped for plotly, which takes a subset of HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.report.text import plain, visible

Figure = dict[str, Any]

BLUE, ORANGE, GREEN, SKY = "#0072B2", "#D55E00", "#009E73", "#56B4E9"
_MOST_LABELS = 40
"""Quantizers whose names fit below an axis; more are named on hover only."""
_LONGEST_TICK, _LONGEST_LABEL = 34, 72
"""Characters of a quantizer's name below an axis, and of any other beside one."""
_MOST_FOLDED = 12
"""Lines of a name or sentence in a hover label."""
_MANY_POINTS = 1500
"""From so many on, WebGL draws faster than SVG."""
_PALE = [[0.0, "#f19b6b"], [0.25, "#fbd5bd"], [0.5, "#f5f5f5"], [0.75, "#bcdcec"], [1.0, "#7fb8d8"]]
"""Orange over white to blue, light enough for dark text in every cell."""
_LEAST_SHOWN_DB, _MOST_SHOWN_DB = -20.0, 80.0
"""Ends of the bars' axis: below there is only noise, above differences are rounding."""
_SHOWN_DB = (0.0, 60.0)
"""Ends of the colour scale of the fix matrix."""


def matrix_figure(frame: pd.DataFrame) -> Figure:
    """Heat map of `fix_matrix`: a row for each output, a column for each flow and variant, dB in every cell."""
    columns = list(dict.fromkeys(zip(frame["flow"], frame["variant"], strict=True)))
    flows, variants = _labels(flow for flow, _ in columns), _labels(variant for _, variant in columns)
    rows = list(dict.fromkeys(frame["row"]))
    cells = {(row, flow, variant): (level, text, hover) for row, flow, variant, level, text, hover in zip(
        *(frame[name] for name in ("row", "flow", "variant", "sqnr_db", "text", "hover")), strict=True)}  # fmt: skip
    empty = (math.nan, "", "not measured")
    grid = [[cells.get((row, *column), empty) for column in columns] for row in rows]
    return {
        "data": [
            {
                "type": "heatmap",
                "x": [[flows[flow] for flow, _ in columns], [_stacked(variants[variant]) for _, variant in columns]],
                "y": list(_labels(rows).values()),
                "z": [[significant(level) for level, _, _ in line] for line in grid],
                "text": [[plain(text) for _, text, _ in line] for line in grid],
                "customdata": [[folded(hover) for _, _, hover in line] for line in grid],
                "texttemplate": "%{text}",
                "hovertemplate": "%{customdata}<extra></extra>",
                "textfont": {"color": "#1f2328"},
                "colorscale": _PALE,
                "zmin": _SHOWN_DB[0],
                "zmax": _SHOWN_DB[1],
                "xgap": 2,
                "ygap": 2,
                "colorbar": {"title": {"text": "SQNR, dB", "side": "right"}, "thickness": 12},
            }
        ],
        "layout": {
            "height": 260 + 34 * len(rows),
            "margin": {"l": 10, "r": 10, "t": 34, "b": 10},
            "plot_bgcolor": "#c9ced6",
            "xaxis": {"automargin": True, "tickangle": -60, "showdividers": True, "showgrid": False},
            "yaxis": {"type": "category", "automargin": True, "autorange": "reversed", "showgrid": False},
        },
        "least_width": 200 + 62 * len(columns),
    }


def bars_figure(levels: pd.DataFrame) -> Figure:
    """Before and after of one output, dB, through every flow and variant; error bars are the noise floor.

    `levels` has a line for each case: `label`, `before`, `after` and `noise_db`, all in dB. The axis ends where
    differences are rounding; longer bars are cut there, and their numbers stand beside them.
    """
    labels = [_stacked(label) for label in _labels(levels["label"]).values()]
    noise = [significant(value) for value in levels["noise_db"]]
    error = {"type": "data", "array": [value or 0.0 for value in noise], "thickness": 1.5, "width": 4}
    told = ["none" if value is None else f"{value:.2g} dB" for value in noise]

    def trace(name: str, field: str, text: list[str], **looks: Any) -> Figure:
        hover = "%{y}<br>" + name + ": %{customdata[0]}<br>noise floor: %{customdata[1]}<extra></extra>"
        values = [significant(value) for value in levels[field]]
        exact = ["none" if value is None else f"{value:.2f} dB" for value in values]
        ends = [None if value is None else min(max(value, _LEAST_SHOWN_DB), _MOST_SHOWN_DB) for value in values]
        return {"type": "bar", "orientation": "h", "name": name, "x": ends, "y": labels, "error_x": error,
                "customdata": list(zip(exact, told, strict=True)), "hovertemplate": hover, "text": text,
                "textposition": "outside", "cliponaxis": False, **looks}  # fmt: skip

    beside = ["" if value is None else f"{value:.1f}" for value in map(significant, levels["after"])]
    hatched = {"color": SKY, "pattern": {"shape": "/", "fgcolor": BLUE, "solidity": 0.2}}
    lowest = float(levels[["before", "after"]].min().min())
    start = max(lowest, _LEAST_SHOWN_DB) - 12 if lowest < 0 else 0.0
    return {
        "data": [
            trace("before", "before", [], marker=hatched),
            trace("after", "after", beside, marker={"color": BLUE}),
        ],
        "layout": {
            "height": 120 + 34 * len(labels),
            "barmode": "group",
            "bargap": 0.2,
            "margin": {"l": 10, "r": 10, "t": 64, "b": 40},
            "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
            "xaxis": {"title": {"text": "SQNR, dB"}, "range": [start, _MOST_SHOWN_DB + 12]},
            "yaxis": {
                "type": "category",
                "automargin": True,
                "autorange": "reversed",
                "tickfont": {"size": 10},
                "showgrid": False,
            },
        },
        "least_width": 360,
    }


def moved_figure(frame: pd.DataFrame) -> Figure:
    """Range bounds that one fix moved (lines of `moved_bounds`): largest value, bound as released and repaired."""
    looks = (
        ("largest value", "absmax", {"symbol": "circle-open", "size": 11, "color": "#888888", "line": {"width": 2}}),
        ("bound as released", "released", {"symbol": "x", "size": 9, "color": ORANGE}),
        ("bound repaired", "repaired", {"symbol": "diamond", "size": 7, "color": BLUE}),
    )
    names = [folded(name) for name in frame["quantizer"]]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": list(range(len(frame))),
            "y": _positive(frame[field]),
            "marker": marker,
            "text": names,
            "hovertemplate": "%{text}<br>" + name + ": %{y:.9g}<extra></extra>",
        }
        for name, field, marker in looks
    ]
    return {"data": traces, "layout": _logarithmic(list(frame["quantizer"]), "largest magnitude")}


def range_figure(frame: pd.DataFrame) -> Figure:
    """Observed against representable range of one case's quantizers (lines of `range_frame`), log scale.

    The clipped share is told by the marker (a cross where anything is clipped) and by its colour.
    """
    kind = "scattergl" if len(frame) > _MANY_POINTS else "scatter"
    place = list(range(len(frame)))
    clipped = frame["clip_fraction"].fillna(0.0).clip(0.0, 1.0)
    told = [
        [folded(name), role, f"{100 * share:.3g} %", "none" if math.isnan(level) else f"{level:.2f} dB"]
        for name, role, share, level in zip(
            frame["quantizer"], frame["role"], clipped, frame["sqnr_db"].astype(float), strict=True
        )
    ]
    facts = "%{customdata[0]} (%{customdata[1]})<br>"
    own = "<br>clipped: %{customdata[2]}<br>own SQNR: %{customdata[3]}<extra></extra>"
    most = max(0.01, float(clipped.max()) if len(frame) else 0.0)
    colours = {
        "color": [significant(value) for value in clipped],
        "colorscale": "Cividis",
        "cmin": 0.0,
        "cmax": most,
        "symbol": ["x" if share > 0 else "circle" for share in clipped],
        "size": 8,
        "line": {"width": 1, "color": "#888888"},
        "colorbar": {"title": {"text": "clipped share", "side": "right"}, "thickness": 12, "tickformat": ".1%"},
    }
    bar = {"symbol": "line-ew-open", "size": 13, "color": ORANGE, "line": {"width": 3}}
    return {
        "data": [
            {"type": kind, "mode": "markers", "name": "representable", "x": place, "y": _positive(frame["bound"]),
             "marker": bar, "customdata": told, "hovertemplate": facts + "representable: ±%{y:.4g}" + own},
            {"type": kind, "mode": "markers", "name": "observed (× where clipped)", "x": place,
             "y": _positive(frame["absmax"]), "marker": colours, "customdata": told,
             "hovertemplate": facts + "observed: ±%{y:.4g}" + own},
        ],
        "layout": _logarithmic(list(frame["quantizer"]), "largest magnitude"),
    }  # fmt: skip


def _logarithmic(names: Sequence[str], title: str) -> Figure:
    """Layout with quantizers along x, named where they fit, and a log axis."""
    named = len(names) <= _MOST_LABELS
    ticks: Mapping[str, Any] = {"showticklabels": False,
                                "title": {"text": f"{len(names)} quantizers, in the order of their names"}}  # fmt: skip
    if named:
        labels = [plain(_short(visible(name), _LONGEST_TICK)) for name in names]
        ticks = {"tickvals": list(range(len(names))), "ticktext": labels, "tickangle": -60}
    return {
        "height": 460 if named else 380,
        "margin": {"l": 60, "r": 10, "t": 64, "b": 10},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "xaxis": {"automargin": True, "zeroline": False, **ticks},
        "yaxis": {"type": "log", "title": {"text": title}, "tickformat": ".3~r"},
    }


def _stacked(variant: str) -> str:
    """An escaped variant with each of its fixes on a line of its own."""
    return variant.replace("+", "<br>+").removeprefix("<br>")


def _labels(names: Iterable[str]) -> dict[str, str]:
    """A label for each distinct name, escaped and cut; numbered where equal, which an axis would take for one."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        label = plain(_short(visible(name), _LONGEST_LABEL))
        found[name] = label if label not in taken else f"{label} ({len(found) + 1})"
        taken.add(found[name])
    return found


def _short(name: str, most: int) -> str:
    """The end of a long name: its beginning is what it shares with its neighbours."""
    return name if len(name) <= most else "…" + name[-most:]


def _positive(values: Iterable[float]) -> list[float | None]:
    """What a log axis can show."""
    return [significant(value) if value > 0 else None for value in values]


def significant(value: float | None, digits: int = 9) -> float | None:
    """A number rounded to so many significant digits; None where there is none, or no finite one."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def folded(text: str, width: int = 90) -> str:
    """Escaped text, broken into lines that fit a hover label and cut after some; a long word is broken anywhere."""
    lines, line = [], ""
    for word in text.split(" "):
        pieces = [word[start : start + width] for start in range(0, len(word), width)] or [""]
        for piece in pieces:
            if line and len(line) + len(piece) >= width:
                lines.append(line)
                line = ""
            line = f"{line} {piece}" if line else piece
    lines.append(line)
    cut = lines if len(lines) <= _MOST_FOLDED else [*lines[:_MOST_FOLDED], "…"]
    return "<br>".join(plain(part) for part in cut)
