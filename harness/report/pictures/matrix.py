"""The fix matrix as a heat map."""

from __future__ import annotations

import textwrap
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import pandas as pd

from harness.report.fix_matrix import LEGEND
from harness.report.order import natural, variant_order
from harness.report.pictures.canvas import FAINT, INK, extent, headline, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORST, _BEST = 0.0, 60.0
"""dB at the ends of the colours: at 0 the error is as large as the signal, from 60 on it hardly matters."""
_WIDE, _HIGH, _RULE, _GAP = 0.7, 0.36, 0.02, 0.14
"""Inches: a cell's size with the line after it, and the gap between flows."""
_MOST_ROWS, _MOST_COLUMNS = 20, 16
_ABSENT = "#e9e9e9"
_Column = tuple[str, str]


def draw_fix_matrix(cells: pd.DataFrame, source: str) -> Figure:
    """A heat map of the cells of `fix_matrix`, a column for each flow and variant; `source` names the run."""
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(cells["row"]))
    columns = sorted(
        set(zip(cells["flow"], cells["variant"], strict=True)), key=lambda c: (natural(c[0]), variant_order(c[1]))
    )
    tops = {row: place * _HIGH for place, row in enumerate(rows[:_MOST_ROWS])}
    lefts = _lefts(columns[:_MOST_COLUMNS])
    width, height = max(lefts.values()) + _WIDE, len(tops) * _HIGH
    figure = Figure(figsize=(width + 4, height + 4))
    axes = figure.add_axes((2 / (width + 4), 2 / (height + 4), width / (width + 4), height / (height + 4)))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_frame_on(False)
    axes.set_yticks([top + _HIGH / 2 for top in tops.values()], [short(row) for row in tops])
    axes.set_xticks([left + _WIDE * 0.6 for left in lefts.values()], [_label(variant) for _, variant in lefts])
    axes.tick_params(length=0, pad=5)
    for label in axes.get_xticklabels():
        label.set(rotation=35, ha="right", rotation_mode="anchor", linespacing=1.2)
    for flow, group in groupby(lefts.items(), key=lambda item: item[0][0]):
        _draw_flow(axes, flow, [left for _, left in group])
    _draw_cells(figure, axes, cells, tops, lefts)
    left, bottom, _, _ = extent(figure, axes)
    notes = [(sign, meaning) for sign, meaning in LEGEND.items() if (cells["mark"] == sign).any()]
    left_out = {"rows": len(rows) - len(tops), "columns": len(columns) - len(lefts)}
    notes += [("…", f"left out for want of room: {count} {what}") for what, count in left_out.items() if count]
    for place, lines in ((left, [sign for sign, _ in notes]), (left + 0.22 / (width + 4), [text for _, text in notes])):
        figure.text(place, bottom, "\n".join(lines), va="top", linespacing=1.5)
    subtitle = f"SQNR against fp32 eager, dB, at the last point of each flow; run {short(source)}"
    headline(figure, left, (2 + height + 0.5) / (height + 4), "What each fix is worth", subtitle)
    return figure


def _lefts(columns: list[_Column]) -> dict[_Column, float]:
    """The left edge of each column, in inches, with a gap where another flow begins."""
    lefts = {columns[0]: 0.0}
    for before, column in pairwise(columns):
        lefts[column] = lefts[before] + _WIDE + (_GAP if before[0] != column[0] else 0.0)
    return lefts


def _label(variant: str) -> str:
    """A variant as a line for each of its fixes."""
    fixes = [f"+{fix}" for fix in variant.split("+")[1:]] if variant.startswith("+") else [variant]
    return "\n".join(
        short(fix, 34) for fix in (fixes if len(fixes) < 4 else [*fixes[:2], f"and {len(fixes) - 2} more"])
    )


def _draw_flow(axes: Axes, flow: str, lefts: list[float]) -> None:
    """The name of a flow over its columns, and a line that holds them together."""
    start, end = lefts[0], lefts[-1] + _WIDE
    axes.plot([start + 0.02, end - 0.02], [-0.08, -0.08], color=FAINT, linewidth=1, clip_on=False)
    room = max(10, int((end - start) / 0.076))
    name = "\n".join(textwrap.wrap(short(flow, 2 * room - 4), room)[:2])
    axes.text((start + end) / 2, -0.16, name, ha="center", va="baseline", fontweight="bold", linespacing=1.1)


def _draw_cells(
    figure: Figure, axes: Axes, cells: pd.DataFrame, tops: dict[str, float], lefts: dict[_Column, float]
) -> None:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize, to_hex
    from matplotlib.patches import Rectangle

    colours = matplotlib.colormaps["viridis"].resampled(48)
    shown = cells[cells["row"].isin(tops)]
    for row, flow, variant, level, text in zip(
        *(shown[name] for name in ("row", "flow", "variant", "sqnr_db", "text")), strict=True
    ):
        if (flow, variant) not in lefts:
            continue
        x, y = lefts[flow, variant], tops[row]
        fill = _ABSENT if pd.isna(level) else to_hex(colours(float((level - _WORST) / (_BEST - _WORST))))
        axes.add_patch(Rectangle((x, y), _WIDE - _RULE, _HIGH - _RULE, facecolor=fill, edgecolor="none", clip_on=False))
        axes.text(
            x + (_WIDE - _RULE) / 2,
            y + (_HIGH - _RULE) / 2,
            short(text, 14),
            color=_ink(fill),
            fontsize=9 if len(text) < 9 else 7,
            ha="center",
            va="center_baseline",
        )
    width = figure.get_size_inches()[0]
    right = axes.get_position()
    scale = figure.add_axes((right.x1 + 0.2 / width, right.y0, 0.14 / width, right.height))
    bar = figure.colorbar(ScalarMappable(Normalize(_WORST, _BEST), colours), cax=scale, extend="both")
    bar.set_label("SQNR, dB", labelpad=8)
    bar.outline.set_visible(False)
    scale.tick_params(length=2)


def _ink(fill: str) -> str:
    """Black or white, whichever has more contrast (WCAG 2 relative luminance)."""
    from matplotlib.colors import to_rgb

    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(fill)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if luminance > 0.179 else "white"
