"""dB along the network: accumulated and local of every layer, in the order in which the float graph runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.located import LayerLevel, Located
from harness.report import culprits
from harness.report.deltas import shortened
from harness.report.html.figures import BLUE, ORANGE, Figure, folded, significant
from harness.report.layer_axis import Axis, axis_of
from harness.report.text import plain, visible

_PURPLE = "#CC79A7"
_MOST_LABELS, _LONGEST_TICK = 40, 34
"""Layers whose names fit below the axis; more are named on hover and in the table only."""
_MOST_NUMBERS, _MOST_LEVELS = 40, 12
"""Marks of culprits that have their number beside them, and their dB too."""
_MANY_LAYERS, _MANY_POINTS = 100, 1500
"""From so many on marks are small; from so many on WebGL draws faster than SVG."""
_LEAST_WIDTH, _MOST_WIDTH = 300, 900
"""A figure is not drawn narrower than this, and two pixels for each layer, pixels."""


def layer_figure(located: Located) -> Figure:
    """A line of accumulated and marks of local dB, culprits starred and numbered as in their list.

    What is above the axis, exact layers among them, stands at its upper end as a triangle, what is below it at the
    lower end; layers whose status leaves no dB are crosses there, and a gap in the line.
    """
    layers, axis = located.layers, axis_of(located.layers)
    told = _told(located)
    kind = "scattergl" if len(layers) > _MANY_POINTS else "scatter"
    hover = {"hovertemplate": "%{customdata}<extra></extra>"}

    def trace(name: str, chosen: Sequence[int], levels: Sequence[float | None], **looks: Any) -> Figure:
        placed = [significant(axis.place(level)) if level is not None else None for level in levels]
        said = [told[place] for place in chosen]
        return {"type": kind, "name": name, "x": list(chosen), "y": placed, "customdata": said, **hover, **looks}

    everywhere = range(len(layers))
    local = [place for place in everywhere if (level := layers[place].local_db) is not None and level <= axis.high]
    above = [place for place in everywhere if (level := layers[place].local_db) is not None and level > axis.high]
    without = [place for place in everywhere if layers[place].sqnr_db is None]
    many = len(layers) > _MANY_LAYERS
    small = {"size": 3 if many else 6}
    traces = [
        trace("accumulated", everywhere, [layer.sqnr_db for layer in layers], mode="lines+markers", connectgaps=False,
              line={"color": BLUE, "width": 1.5}, marker={"color": BLUE, **small}),
        trace("local", local, [layers[place].local_db for place in local], mode="markers",
              marker={"color": ORANGE, "symbol": "diamond", "size": 5 if many else 8}),
        trace(f"local, above {axis.high:g} dB or exact", above, [axis.high] * len(above), mode="markers",
              marker={"color": ORANGE, "symbol": "triangle-up-open", "size": 7}),
        trace("no dB", without, [axis.low] * len(without), mode="markers",
              marker={"color": "#888888", "symbol": "x", "size": 9}),
        {**_culprits(located, axis, told), "type": kind, **hover},
    ]  # fmt: skip
    width = min(_LEAST_WIDTH + 2 * len(layers), _MOST_WIDTH)
    return {"data": [one for one in traces if one["x"]], "layout": _layout(located, axis), "least_width": width}


def _culprits(located: Located, axis: Axis, told: Sequence[str]) -> Figure:
    """Stars at the local dB of the culprits' layers, or at the accumulated dB where there is no local one."""
    places = culprits.places(located)
    layers = [located.layers[place.layer] for place in places]
    levels = [layer.sqnr_db if layer.local_db is None else layer.local_db for layer in layers]
    return {
        "name": "culprit",
        "mode": "markers+text" if len(places) <= _MOST_NUMBERS else "markers",
        "x": [place.layer for place in places],
        "y": [significant(axis.place(axis.low if level is None else level)) for level in levels],
        "text": [
            f"{place.culprit}: {culprits.level(level)}".removesuffix(" dB")
            if len(places) <= _MOST_LEVELS
            else str(place.culprit)
            for place, level in zip(places, levels, strict=True)
        ],
        "textposition": "top right",
        "cliponaxis": False,
        "marker": {"color": _PURPLE, "symbol": "star", "size": 15, "line": {"width": 1, "color": "#888888"}},
        "customdata": [told[place.layer] for place in places],
    }


def _told(located: Located) -> list[str]:
    """What hovering tells of each layer: whichever of its marks is hit, a culprit is told first."""
    told = [_facts(layer) for layer in located.layers]
    for place in culprits.places(located):
        line = f"culprit {place.culprit}: {culprits.text(located, located.culprits[place.culprit - 1])}"
        told[place.layer] = f"{folded(line)}<br>{told[place.layer]}"
    return told


def _facts(layer: LayerLevel) -> str:
    accumulated = culprits.level(layer.sqnr_db, layer.status)
    source = f" at {folded(shortened(layer.source, 200))}" if layer.source else ""
    facts = [
        f"<b>{folded(shortened(layer.name, 300))}</b>",
        f"{folded(culprits.ops(layer))}{source}",
        f"accumulated: {accumulated}, worst channel: {culprits.level(layer.worst_channel_db)}",
        f"local: {culprits.level(layer.local_db)}",
        f"{layer.samples} samples",
    ]
    return "<br>".join(facts)


def _layout(located: Located, axis: Axis) -> Figure:
    count = len(located.layers)
    named = count <= _MOST_LABELS
    ticks: Figure = {
        "showticklabels": False,
        "title": {"text": f"{count} layers, in order of execution"},
    }
    if named:
        names = [plain(_end(visible(layer.name))) for layer in located.layers]
        ticks = {"tickvals": list(range(count)), "ticktext": names, "tickangle": -60}
    margin = max(0.5, 0.01 * count)
    return {
        "height": 520 if named else 440,
        "margin": {"l": 60, "r": 10, "t": 80, "b": 10 if named else 40},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "xaxis": {
            "automargin": True,
            "zeroline": False,
            "showgrid": named,
            "range": [-margin, count - 1 + margin],
            **ticks,
        },
        "yaxis": {
            "title": {"text": "SQNR against the float graph, dB"},
            "range": [axis.low - axis.margin, axis.high + axis.margin],
        },
        "shapes": [
            {
                "type": "line",
                "x0": place.layer,
                "x1": place.layer,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "layer": "below",
                "line": {"color": _PURPLE, "width": 1, "dash": "dot"},
            }
            for place in culprits.places(located)[:_MOST_NUMBERS]
        ],
    }


def _end(name: str) -> str:
    return name if len(name) <= _LONGEST_TICK else "…" + name[-_LONGEST_TICK:]
