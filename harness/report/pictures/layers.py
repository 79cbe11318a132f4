"""dB along the network as a picture: what each layer has lost, what it loses by itself, and who is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.located import LayerLevel, Located
from harness.report import culprits
from harness.report.layer_axis import Axis, axis_of
from harness.report.pictures.canvas import FAINT, INK, RULE, extent, headline, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _PURPLE = "#0072b2", "#d55e00", "#cc79a7"
"""Of Okabe and Ito's palette, told apart with any colour vision."""
_MOST_NAMED, _MOST_LISTED, _MOST_PATHS = 45, 10, 400
_MOST_NUMBERED = 30
_WORST = 3
"""Layers whose local dB stands beside them."""


def draw_layers(located: Located, source: str) -> Figure:
    """Accumulated (line) and local (marks) dB of each layer in the order of the float graph; culprits are starred.

    What lies outside the axis, exact layers among it, stands at its ends; a layer without dB is a cross below.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    layers, axis = located.layers, axis_of(located.layers)
    wide, high = min(max(6.5, 0.32 * len(layers)), 9.0), 3.2
    figure = Figure(figsize=(wide + 4, high + 5))
    axes = figure.add_axes((2 / (wide + 4), 3 / (high + 5), wide / (wide + 4), high / (high + 5)))
    axes.set(xlim=(-0.7, len(layers) - 0.3), ylim=(axis.low - axis.margin, axis.high + axis.margin))
    _mark_culprits(axes, located, axis)
    _draw_levels(axes, layers, axis)
    _name_the_worst(axes, layers, axis)
    axes.yaxis.set_major_locator(MultipleLocator(5 if axis.high - axis.low <= 30 else 10))
    axes.set_ylabel("SQNR against the float graph, dB")
    if len(layers) <= _MOST_NAMED:
        axes.set_xticks(range(len(layers)), [short(layer.name, 32) for layer in layers], rotation=60, ha="right")
        axes.tick_params(axis="x", labelsize=8, rotation_mode="anchor")
    else:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(layers)} layers, in order of execution")
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3, color=RULE)
    left, bottom, _, top = extent(figure, axes)
    line = 1 / (high + 5)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(left, top + 0.02 * line),
        bbox_transform=figure.transFigure,
        ncols=5,
        frameon=False,
        borderpad=0.2,
        borderaxespad=0,
        handletextpad=0.4,
        columnspacing=1.4,
    )
    lines = _blame(located)
    figure.text(left, bottom - 0.12 * line, "\n".join(lines), va="top", fontsize=8.5, linespacing=1.5, color=INK)
    where = f"{located.model}/{located.size}, {located.flow} {located.variant}, {located.point} {located.output}"
    headline(figure, left, top + 0.36 * line, short(where, 140), f"dB along the network{source}")
    return figure


def _draw_levels(axes: Axes, layers: tuple[LayerLevel, ...], axis: Axis) -> None:
    crowded = len(layers) > _MOST_PATHS
    accumulated = [float("nan") if one.sqnr_db is None else axis.place(one.sqnr_db) for one in layers]
    axes.plot(
        range(len(layers)), accumulated, color=_BLUE, linewidth=1.3, marker="o", markersize=2 if crowded else 3.5,
        label="accumulated", zorder=2, rasterized=crowded,
    )  # fmt: skip
    local = [(place, one.local_db) for place, one in enumerate(layers) if one.local_db is not None]
    shown = [(place, axis.place(level)) for place, level in local if level <= axis.high]
    above = [(place, axis.high) for place, level in local if level > axis.high]
    without = [(place, axis.low) for place, one in enumerate(layers) if one.sqnr_db is None]
    looks = (
        (shown, "local: by itself", {"marker": "D", "color": _ORANGE, "s": 12 if crowded else 26}),
        (
            above,
            f"local, above {axis.high:g} dB or exact",
            {"marker": "^", "facecolor": "none", "edgecolor": _ORANGE, "s": 16},
        ),
        (without, "no dB", {"marker": "x", "color": FAINT, "s": 30}),
    )
    for points, label, look in looks:
        if points:
            across, up = zip(*points, strict=True)
            axes.scatter(across, up, label=label, zorder=3, rasterized=crowded, **look)


def _mark_culprits(axes: Axes, located: Located, axis: Axis) -> None:
    """A star at each culprit's layer, and its number above the axes."""
    places = culprits.places(located)
    for place in places:
        axes.axvline(place.layer, color=_PURPLE, linewidth=0.9, linestyle=":", zorder=1)
        if len(places) <= _MOST_NUMBERED:
            top = axes.get_xaxis_transform()
            axes.text(place.layer, 0.985, f" {place.culprit}", transform=top, va="top", fontsize=8, color=FAINT)
    if places:
        layers = [located.layers[place.layer] for place in places]
        levels = [one.sqnr_db if one.local_db is None else one.local_db for one in layers]
        up = [axis.low if level is None else axis.place(level) for level in levels]
        across = [place.layer for place in places]
        axes.scatter(across, up, marker="*", s=170, color=_PURPLE, edgecolor="white", linewidth=0.6, zorder=4,
                     label="culprit")  # fmt: skip


def _name_the_worst(axes: Axes, layers: tuple[LayerLevel, ...], axis: Axis) -> None:
    """The dB of the layers that lose most by themselves."""
    for place in culprits.worst_local(layers, _WORST):
        level = layers[place].local_db
        if level is not None and level < axis.high:
            axes.annotate(
                f"{level:.2f} dB", (place, axis.place(level)), (5, 6), textcoords="offset points", fontsize=8, zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
            )  # fmt: skip


def _blame(located: Located) -> list[str]:
    """The culprits in words, with the figures of all of them below."""
    told = [
        short(f"{count}. {culprits.text(located, one)}", 150)
        for count, one in enumerate(located.culprits[:_MOST_LISTED], start=1)
    ]
    more = len(located.culprits) - len(told)
    told += [f"and {more} more culprits"] if more > 0 else []
    figures = culprits.headline(located).removeprefix(f"{culprits.title(located)}: ")
    return [*told, *culprits.remarks(located)[:2], short(figures, 170)]
