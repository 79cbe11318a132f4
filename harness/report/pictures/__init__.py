"""Static pictures of a stored run, for slides and documents; needs matplotlib, of the extra `report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness import extra
from harness.located import Located
from harness.records import RELEASED
from harness.report.bounds import moved_bounds, range_frame
from harness.report.fix_matrix import fix_matrix
from harness.report.order import point_order
from harness.report.pictures import canvas
from harness.report.pictures.canvas import short
from harness.report.pictures.layers import draw_layers
from harness.report.pictures.matrix import draw_fix_matrix
from harness.report.pictures.ranges import draw_moved_bounds, draw_ranges, drawable
from harness.store import Run

MOST_RANGE_PLOTS, MOST_LAYER_PLOTS = 30, 30
_FEWEST_MOVED = 2
_CASE = ["model", "size", "weights", "flow", "variant"]
_Case = tuple[str, ...]
_Cases = list[tuple[_Case, pd.DataFrame]]


def draw(run: Run, folder: Path, located: Sequence[Located] = ()) -> list[Path]:
    """Write pictures of a run into `folder`, SVG and PNG of each, and return their paths.

    `fix-matrix` if a flow has fixes; `range-bounds-<model>-<size>-<flow>-<fix>` for each variant that moved two bounds
    or more; `range-plot-<model>-<size>-<flow>` of released code; `layers-<model>-<size>-<flow>-<variant>-<point>-` and
    the output's name for each located output (`left_out` says of what not). What has nothing to show has no picture.
    Raises `UsageError` if matplotlib is missing or the folder cannot be written.
    """
    extra.require("the pictures", "matplotlib")
    written: list[Path] = []
    taken: set[str] = set()
    with canvas.style():
        cells = fix_matrix(run.outputs)
        if not cells.empty:
            name, title = canvas.stem("fix-matrix", taken=taken), "What each fix is worth"
            written += canvas.save(draw_fix_matrix(cells, run.name), folder, name, title)
        ranges = range_frame(run.quantizers)
        weighed = _several_weights(ranges)
        for case, moved in _moved_cases(run):
            where = _where(case, weighed)
            title = f"{_title(where)}: range bounds that {short(case[4], 48)} moved"
            name = canvas.stem("range-bounds", *where, case[4], taken=taken)
            written += canvas.save(draw_moved_bounds(moved, title, run.name), folder, name, title)
        for case, part in _plotted_cases(run, ranges)[0]:
            where = _where(case, weighed)
            title = f"{_title(where)}: ranges of released code"
            name = canvas.stem("range-plot", *where, taken=taken)
            written += canvas.save(draw_ranges(part, title, run.name), folder, name, title)
        for one in _drawable(located)[:MOST_LAYER_PLOTS]:
            where = [one.model, one.size, one.flow, one.variant, one.point, one.output]
            name, title = (
                canvas.stem("layers", *where, taken=taken),
                f"dB along the network: {short(' '.join(where), 96)}",
            )
            written += canvas.save(draw_layers(one, f"; run {short(run.name)}"), folder, name, title)
    return written


def left_out(run: Run, located: Sequence[Located] = ()) -> list[str]:
    """What `draw` has no picture of, as there would be too many: a line for each reason."""
    plotted, fixless, clipping_less = _plotted_cases(run, range_frame(run.quantizers))
    lines = []
    if fixless:
        lines.append(f"no range plots of flows without fixes: {', '.join(short(flow) for flow in fixless)}")
    if clipping_less:
        lines.append(f"no range plots of {clipping_less} more cases, which clip less than the {len(plotted)} drawn")
    more = len(_drawable(located)) - MOST_LAYER_PLOTS
    if more > 0:
        lines.append(f"no picture of the layers of {more} more located outputs")
    return lines


def _drawable(located: Sequence[Located]) -> list[Located]:
    """The records that have layers."""
    return [one for one in located if one.layers]


def _moved_cases(run: Run) -> _Cases:
    """Each variant that moved bounds enough for a picture, at the point where it moved most."""
    chosen: dict[_Case, pd.DataFrame] = {}
    for key, part in moved_bounds(run.quantizers).groupby([*_CASE, "point"], sort=False):
        case = tuple(map(str, key[:-1]))
        if len(part) >= max(_FEWEST_MOVED, len(chosen.get(case, ())) + 1):
            chosen[case] = part
    return list(chosen.items())


def _plotted_cases(run: Run, ranges: pd.DataFrame) -> tuple[_Cases, list[str], int]:
    """Released cases to plot, each at the last point with something to show; flows and how many cases are left out.

    If there are more than `MOST_RANGE_PLOTS`, only flows that have fixes, and of these the cases that clip most.
    """
    found: dict[_Case, pd.DataFrame] = {}
    released = ranges[ranges["variant"] == RELEASED]
    for key, part in released.groupby([*_CASE, "point"], sort=False):
        case = tuple(map(str, key[:-1]))
        later = case not in found or point_order(str(key[-1])) > point_order(str(found[case]["point"].iloc[0]))
        if later and not drawable(part).empty:
            found[case] = part
    if len(found) <= MOST_RANGE_PLOTS:
        return list(found.items()), [], 0
    mended = {row.flow for row in run.outputs if row.variant != RELEASED}
    fixless = list(dict.fromkeys(case[3] for case in found if case[3] not in mended))
    kept = [case for case in found if case[3] in mended]
    worst = sorted(kept, key=lambda case: -found[case]["clip_fraction"].max())[:MOST_RANGE_PLOTS]
    return [(case, found[case]) for case in kept if case in set(worst)], fixless, len(kept) - len(worst)


def _several_weights(ranges: pd.DataFrame) -> set[tuple[str, ...]]:
    """Models and sizes that were measured with more than one kind of weights."""
    kinds = ranges.groupby(["model", "size"])["weights"].nunique()
    return set(kinds[kinds > 1].index)


def _where(case: _Case, weighed: set[tuple[str, ...]]) -> list[str]:
    """Model, size, weights where there are several, and flow."""
    return [*case[:2], *(case[2:3] if case[:2] in weighed else ()), case[3]]


def _title(where: list[str]) -> str:
    return f"{'/'.join(short(part, 24) for part in where[:-1])}, {short(where[-1], 36)}"
