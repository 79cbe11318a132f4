"""Range bounds as pictures: which a fix moved, and how the range of each quantizer fits what it saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from harness.records import Role
from harness.report.pictures.canvas import FAINT, INK, RULE, extent, headline, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_ORANGE, _BLUE, _RED = "#e69f00", "#0072b2", "#d55e00"
"""Of Okabe and Ito's palette, told apart with any colour vision."""
_CLASSES = (
    (0.0, "none", "o", "#9a9a9a"),
    (1e-3, "up to 0.1 %", "s", _BLUE),
    (1e-2, "0.1 to 1 %", "^", _ORANGE),
    (np.inf, "over 1 %", "X", _RED),
)
"""Classes of the clipped share: upper end, label, marker, colour."""
_WORTH_A_NAME = 1e-3
_MOST_MOVED, _MOST_NAMED, _MOST_PATHS = 60, 8, 600
_SMALLEST, _LARGEST = 1e-300, 1e300
_LOOKS: dict[str, dict[str, Any]] = {
    "largest observed value": {"marker": "|", "color": INK, "markersize": 13, "markeredgewidth": 2},
    "released bound": {"marker": "o", "color": _ORANGE, "markersize": 7.5},
    "released bound, clips": {"marker": "X", "color": _RED, "markersize": 8},
    "repaired bound": {"marker": "D", "color": _BLUE, "markersize": 5},
}


def draw_moved_bounds(moved: pd.DataFrame, title: str, source: str) -> Figure:
    """A line for each quantizer of `moved_bounds`: largest observed value, and its bound as released and repaired."""
    from matplotlib.figure import Figure

    shown = moved.loc[_how_far(moved).sort_values(ascending=False, kind="stable").index[:_MOST_MOVED].sort_values()]
    wide, high = 5.6, 0.25 * len(shown) + 0.2
    figure = Figure(figsize=(wide + 6, high + 4))
    axes = figure.add_axes((4 / (wide + 6), 2 / (high + 4), wide / (wide + 6), high / (high + 4)))
    places = np.arange(len(shown))
    observed, released, repaired = (_placeable(shown[name]) for name in ("absmax", "released", "repaired"))
    clips = released < observed
    axes.hlines(places[clips], released[clips], observed[clips], color=_RED, linewidth=2, alpha=0.35)
    series = (observed, released.where(~clips), released.where(clips), repaired)
    for (name, look), values in zip(_LOOKS.items(), series, strict=True):
        if values.notna().any():
            axes.plot(values, places, linestyle="none", label=name, **look)
    axes.set(xscale="log", xlim=_ends(observed, released, repaired), ylim=(len(shown) - 0.4, -0.6))
    axes.set_xlabel("magnitude, in the tensor's own units (log scale)")
    axes.set_yticks(places, [short(name) for name in shown["quantizer"]])
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    _finish(axes, axes.xaxis)
    left, _, _, top = extent(figure, axes)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(left, top + 0.03 / (high + 4)),
        bbox_transform=figure.transFigure,
        ncols=len(_LOOKS),
        frameon=False,
        borderpad=0.2,
        borderaxespad=0,
        handletextpad=0.3,
        columnspacing=1.4,
    )
    count = int((moved["released"] < moved["absmax"]).sum())
    note = f"{len(moved)} range bounds moved; {count} clip as released"
    one_sided = int(moved[["released", "repaired"]].isna().any(axis=1).sum())
    note += f"; {one_sided} with a quantizer on one side only" if one_sided else ""
    note += f"; shown are the {len(shown)} that moved most" if len(shown) < len(moved) else ""
    headline(figure, left, top + 0.45 / (high + 4), title, f"{note}; run {short(source)}")
    return figure


def draw_ranges(ranges: pd.DataFrame, title: str, source: str) -> Figure:
    """Representable against observed range of each quantizer of one case of `range_frame`, by largest magnitude."""
    from matplotlib.figure import Figure

    drawn = drawable(ranges)
    size = 4.6
    figure = Figure(figsize=(size + 7, size + 4))
    axes = figure.add_axes((2 / (size + 7), 2 / (size + 4), size / (size + 7), size / (size + 4)))
    ends = _ends(drawn["absmax"], drawn["bound"])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.plot(ends, ends, color=FAINT, linewidth=0.8, zorder=1)
    axes.fill_between(ends, ends, [ends[0]] * 2, color=_RED, alpha=0.06, linewidth=0, zorder=0)
    axes.text(0.97, 0.03, "range too small", color=FAINT, ha="right", transform=axes.transAxes)
    axes.text(0.03, 0.97, "range larger than needed", color=FAINT, va="top", transform=axes.transAxes)
    lower = -np.inf
    for upper, name, marker, colour in _CLASSES:
        part = drawn[(drawn["clip_fraction"] > lower) & (drawn["clip_fraction"] <= upper)]
        lower = upper
        axes.scatter(
            part["absmax"],
            part["bound"],
            s=34 if upper < 1 else 52,
            marker=marker,
            color=colour,
            edgecolor="white",
            linewidth=0.5,
            label=f"{name}   ({len(part)})",
            zorder=2 if upper < 1 else 3,
            rasterized=len(drawn) > _MOST_PATHS,
        )
    axes.set_xlabel("largest observed magnitude, in the tensor's own units (log scale)")
    axes.set_ylabel("largest representable magnitude (log scale)")
    for axis in (axes.xaxis, axes.yaxis):
        _finish(axes, axis)
    axes.legend(
        title="clipped share of the elements",
        loc="upper left",
        bbox_to_anchor=(1.03, 1.01),
        alignment="left",
        frameon=False,
        borderpad=0,
        borderaxespad=0,
    )
    _name_the_worst(axes, drawn)
    left, _, _, top = extent(figure, axes)
    note = f"{len(drawn)} quantizers at {short(str(drawn['point'].iloc[0]))}"
    note += f", {len(ranges) - len(drawn)} not drawn (biases, unobserved or zero ranges)" * (len(ranges) > len(drawn))
    headline(figure, left, top + 0.15 / (size + 4), title, f"{note}; run {short(source)}")
    return figure


def drawable(ranges: pd.DataFrame) -> pd.DataFrame:
    """The rows that have a place on log axes; biases, which int32 always holds, would only stretch them."""
    placed = _placeable(ranges["bound"]).notna() & _placeable(ranges["absmax"]).notna()
    return ranges[placed & ranges["clip_fraction"].notna() & (ranges["role"] != Role.BIAS)]


def _name_the_worst(axes: Axes, drawn: pd.DataFrame) -> None:
    """Numbers at the points that clip most, and their names beside the axes."""
    worst = drawn[drawn["clip_fraction"] > _WORTH_A_NAME].nlargest(_MOST_NAMED, "clip_fraction")
    lines = []
    for number, row in enumerate(worst.itertuples(), start=1):
        axes.annotate(
            str(number), (row.absmax, row.bound), (6, 0), textcoords="offset points", fontsize=8, va="center", zorder=4
        )
        lines.append(f"{number}   {short(row.quantizer, 42)}   {100 * row.clip_fraction:.3g} %")
    if lines:
        axes.text(1.03, 0.74, "Most clipped", transform=axes.transAxes, va="top")
        axes.text(1.03, 0.69, "\n".join(lines), transform=axes.transAxes, va="top", fontsize=8, linespacing=1.6)


def _how_far(moved: pd.DataFrame) -> pd.Series[float]:
    """By how much each bound moved, as a logarithm; infinite where one side has none."""
    change = np.log(_placeable(moved["released"])) - np.log(_placeable(moved["repaired"]))
    return change.abs().fillna(np.inf)


def _placeable(values: pd.Series[float]) -> pd.Series[float]:
    """The values that a log axis can show; NaN for the others."""
    return values.where((values > _SMALLEST) & (values < _LARGEST))


def _ends(*columns: pd.Series[float]) -> tuple[float, float]:
    """Limits of a log axis about all values: a margin of 8 %, and at least a factor of five from end to end."""
    values = np.log10(pd.concat(columns).dropna().to_numpy(dtype=float))
    low, high = (values.min(), values.max()) if len(values) else (-1.0, 1.0)
    margin = max(0.08 * (high - low), (np.log10(5.0) - (high - low)) / 2)
    return 10.0 ** max(low - margin, -305.0), 10.0 ** min(high + margin, 305.0)


def _finish(axes: Axes, axis: Axis) -> None:
    """Few, plainly written ticks on a log axis, and no frame."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = sorted(np.log10(axis.get_view_interval()))
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high - low < 2.3 else (1.0,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3, color=RULE)
