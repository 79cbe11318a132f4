"""The HTML report: one file that opens offline, of a judged run, of two runs, or of a history of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import pandas as pd

from harness import __version__, extra
from harness.errors import ExitCode
from harness.files import storable
from harness.judge import Judgement
from harness.located import Located
from harness.records import Case
from harness.report import phrases
from harness.report.advice import advice
from harness.report.bounds import moved_bounds, range_frame
from harness.report.changes import changes
from harness.report.environments import settings
from harness.report.fix_matrix import LEGEND, fix_matrix
from harness.report.frames import bounds_frame, coverage_frame, fix_frame, idle_fixes
from harness.report.groups import groups
from harness.report.html import assets, figures, view
from harness.report.html.figures import Figure
from harness.report.html.located_view import located_views
from harness.report.html.timeline import Timeline
from harness.report.kernels import TITLE, WORDS, kernel_frame
from harness.report.levels import level_frame
from harness.report.order import natural, point_order
from harness.report.text import counted, revealed, visible
from harness.store import Run
from harness.verdicts import Outcome

_LEAST_MOVED = 2
"""From so many moved bounds on they are worth a figure; the table has all."""
_SIGNS = {ExitCode.OK: "✓", ExitCode.STALE: "▲"}
_TONES = {ExitCode.OK: "good", ExitCode.STALE: "note"}


@dataclass(slots=True)
class _Data:
    """What the page's script draws: figures by name, and the rows of tables too long to be laid out at once."""

    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, list[list[Any]]] = field(default_factory=dict)

    def add(self, name: str, figure: Figure) -> str:
        """Keep a figure; returns its name, for the template."""
        self.figures[name] = figure
        return name


def render(run: Run, judgement: Judgement, history: Timeline | None = None, located: Sequence[Located] = ()) -> str:
    """The page of a judged run, with its history where there is one, and what was located in it.

    Raises `UsageError` if the extra `report` is not installed.
    """
    found = groups(run, judgement)
    names = view.anchors(group.case for group in found)
    data = _Data()
    outcomes = Counter(verdict.outcome for verdict in judgement.verdicts)
    matrix = fix_matrix(run.outputs)
    views = located_views(located, data.figures, data.tables)
    kernels = _table(kernel_frame(run.outputs))
    context = {
        "title": f"{_SIGNS.get(judgement.exit_code, '✗')} Numerical accuracy: {run.name}",
        "kicker": "Numerical accuracy of quantized models",
        "verdict_sign": _SIGNS.get(judgement.exit_code, "✗"),
        "run": run,
        "judgement": judgement,
        "meaning": phrases.meaning(judgement),
        "exit_code": int(judgement.exit_code),
        "tone": _TONES.get(judgement.exit_code, "bad"),
        "counts": [(phrases.SYMBOLS[one], one.value, outcomes[one]) for one in Outcome if outcomes[one]],
        "waived": sum(1 for verdict in judgement.verdicts if verdict.waived),
        "advice": advice(run, judgement),
        "changes": changes(found),
        "anchors": names,
        "failures": view.failures(run, found, names),
        "matrix": "" if matrix.empty else data.add("fix-matrix", figures.matrix_figure(matrix)),
        "legend": LEGEND,
        "cells": _cells(matrix),
        "fixes": _table(fix_frame(run.outputs)),
        "idle": idle_fixes(run.outputs),
        "moved": _moved(run, data),
        "moved_table": _table(bounds_frame(run.quantizers)),
        "bars": _bars(found, data),
        "kernels": kernels,
        "kernels_title": TITLE,
        "kernels_words": WORDS,
        "cases": view.case_views(found, names),
        "ranges": _ranges(run, data, names),
        "coverage": _table(coverage_frame(run.quantizers)),
        "quantizers": _quantizers(run, judgement, data, names),
        "settings": settings(run, judgement),
        "located": views,
        "located_cases": {
            view.key: names[one.case] for view, one in zip(views, located, strict=True) if one.case in names
        },
    }
    context["sections"] = [
        ("changes", "What changed"),
        *([("failures", "Failures")] if context["failures"] else []),
        *([("culprits", "Culprits")] if views else []),
        ("fixes", "Fixes"),
        ("outputs", "Outputs"),
        *([("lowering", "After lowering")] if kernels[1] else []),
        ("cases", "Cases"),
        ("quantizers", "Quantizers"),
        *([("history", "History")] if history is not None else []),
        ("environment", "Environment"),
    ]
    return _lay_out("report.html.j2", context, data, history)


def render_history(history: Timeline) -> str:
    """The page of a history alone."""
    context = {
        "title": "SQNR over time",
        "kicker": "Numerical accuracy of quantized models",
        "verdict_sign": "▲" if history.steps[1] else "✓",
        "meaning": "SQNR over time",
        "tone": "note",
        "sections": [("history", "History")],
    }
    return _lay_out("timeline.html.j2", context, _Data(), history)


def render_located(located: Sequence[Located]) -> str:
    """The page of what was located, without a run; raises `UsageError` if the extra `report` is not installed."""
    data = _Data()
    count = len(located)
    context = {
        "title": "Culprits",
        "kicker": "Numerical accuracy of quantized models",
        "verdict_sign": "★",
        "meaning": f"Where the damage comes from: {counted(count, 'output')}",
        "tone": "note",
        "sections": [("culprits", "Culprits")],
        "located": located_views(located, data.figures, data.tables),
    }
    return _lay_out("located_page.html.j2", context, data, None)


def _lay_out(template: str, context: dict[str, Any], data: _Data, history: Timeline | None) -> str:
    extra.require("the HTML report", "jinja2", "plotly", "itables")
    import jinja2
    from markupsafe import Markup, escape

    loader = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else visible(value),
    )
    loader.filters["asis"] = lambda line: Markup(revealed(str(escape(line))))
    loader.globals.update(version=__version__, style=assets.own("report.css"), script=assets.own("report.js"))
    content: dict[str, Any] = {"figures": data.figures, "tables": data.tables}
    if history is not None:
        content["timeline"] = {"layout": history.layout, "series": history.traces, "spans": history.spans}
    packed = {**assets.libraries(), "data": assets.pack_json(content)}
    return loader.get_template(template).render(**context, history=history, packed=packed)


def _table(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of a frame."""
    return [str(name) for name in frame.columns], frame.astype(str).to_numpy().tolist()


def _cells(matrix: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the fix matrix as a table."""
    gains = ["" if math.isnan(gain) else phrases.fixed(gain, 2, "+") for gain in matrix["gain_db"]]
    shown = matrix[["row", "flow", "variant", "point", "text"]].assign(gain=gains)
    return _table(shown.set_axis(["output", "flow", "variant", "point", "SQNR, dB", "gain, dB"], axis="columns"))


def _moved(run: Run, data: _Data) -> list[tuple[str, str]]:
    """(title, figure) of each fix that moved several range bounds, ConvNeXt's LayerScales under `nncf-mul` say."""
    found: list[tuple[str, str]] = []
    keys = ["model", "size", "weights", "flow", "variant", "point"]
    for key, lines in moved_bounds(run.quantizers).groupby(keys, sort=False):
        model, size, weights, flow, variant, point = key
        if len(lines) >= _LEAST_MOVED:
            title = f"{Case(model, size, weights, flow, variant)}, {point}: {len(lines)} range bounds moved"
            found.append((title, data.add(f"moved-{len(found)}", figures.moved_figure(lines))))
    return found


def _bars(found: Any, data: _Data) -> list[tuple[str, str]]:
    """(title, figure) of each output of each model, before and after."""
    return [
        (str(title), data.add(f"bars-{index}", figures.bars_figure(lines)))
        for index, (title, lines) in enumerate(level_frame(found).groupby("title", sort=False))
    ]


def _ranges(run: Run, data: _Data, names: dict[Case, str]) -> dict[str, list[tuple[str, str]]]:
    """(title, figure) of the quantizers of each case and point, by the case's anchor."""
    found: dict[str, list[tuple[str, str]]] = {}
    stored = {tuple(map(storable, astuple(case))): anchor for case, anchor in names.items()}
    keys = ["model", "size", "weights", "flow", "variant", "point"]
    for (*case, point), lines in range_frame(run.quantizers).groupby(keys, sort=False):
        anchor = stored[tuple(case)]
        figure = data.add(f"range-{anchor}-{point}", figures.range_figure(lines))
        found.setdefault(anchor, []).append((point, figure))
    return found


def _quantizers(run: Run, judgement: Judgement, data: _Data, names: dict[Case, str]) -> int:
    """Keep the rows of all quantizers for the page's largest table; returns how many there are."""
    signs = {
        verdict.key: f"{phrases.SYMBOLS[verdict.outcome]} {verdict.outcome}"
        for verdict in judgement.verdicts
        if verdict.kind == "quantizer"
    }
    places = {case: place for place, case in enumerate(sorted(names, key=view.case_order))}
    order = {name: natural(name) for name in {row.quantizer for row in run.quantizers}}
    rows = sorted(run.quantizers, key=lambda row: (places[row.case], point_order(row.point), order[row.quantizer]))
    data.tables["quantizers"] = [
        [
            names[row.case],
            visible(row.case),
            row.point,
            visible(row.quantizer),
            " ".join(filter(None, (row.role, row.mode, row.dtype, row.granularity))),
            *(figures.significant(value, 5) for value in (row.lo, row.hi, row.observed_lo, row.observed_hi)),
            figures.significant(None if row.clip_fraction is None else 100 * row.clip_fraction, 3),
            figures.significant(row.sqnr_db, 4),
            figures.significant(row.expected_db, 4),
            row.cause or ("" if row.status == "quantized" else row.status),
            signs.get(row.key, ""),
        ]
        for row in rows
    ]
    return len(rows)
