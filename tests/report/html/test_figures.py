"""Figures: what they show, what they say on hover, and that plotly takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from harness.records import OutputRow, QuantizerRow
from harness.report.bounds import moved_bounds, range_frame
from harness.report.fix_matrix import fix_matrix
from harness.report.html.assets import pack_json
from harness.report.html.figures import (
    Figure,
    bars_figure,
    folded,
    matrix_figure,
    moved_figure,
    range_figure,
    significant,
)
from harness.report.levels import COLUMNS
from harness.report.order import storable
from tests.report.html.pages import HOSTILE, LONG
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row, with_nan

NAN, INF = math.nan, math.inf


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


# The fix matrix


def test_a_cell_holds_its_decibels_its_text_and_its_sentence() -> None:
    trace = matrix(output_row(sqnr_db=2.5), repaired_row(sqnr_db=33.25))
    assert (trace["x"], trace["y"]) == ([["x86-static", "x86-static"], ["released", "+fix"]], ["resnet/small logits"])
    assert trace["z"] == [[2.5, 33.25]]
    assert trace["text"] == [["2.5", "33.2"]]
    assert trace["customdata"][0][1].replace("<br>", " ") == (
        "resnet/small logits through x86-static with +fix, converted: "
        "2.50 dB as released, 33.25 dB repaired, gain +30.75 dB. The fix is needed: it changed the quantized graph."
    )


@pytest.mark.parametrize(
    ("row", "level", "text"),
    [
        (repaired_row(fix_state="inert"), 30.0, "= 30.0"),
        (repaired_row(fix_state="upstreamed"), 30.0, "↑ 30.0"),
        (repaired_row(fix_state="unknown"), 30.0, "? 30.0"),
        (no_number("failed:lower", variant="+fix", fix_state="needed"), None, "! lower"),
        (repaired_row(status="exact", sqnr_db=160.0), 160.0, "exact"),
    ],
    ids=["inert", "upstreamed", "unknown", "failed", "exact"],
)
def test_a_sign_in_the_cell_says_what_its_colour_does_not(row: OutputRow, level: float | None, text: str) -> None:
    trace = matrix(output_row(), row)
    assert (trace["z"][0][1], trace["text"][0][1]) == (level, text)


def test_a_cell_that_was_not_measured_is_empty_and_says_so() -> None:
    rows = [output_row(), repaired_row(), output_row(model="vit")]
    trace = matrix(*rows)
    assert (trace["z"][1][1], trace["text"][1][1], trace["customdata"][1][1]) == (None, "", "not measured")


def test_each_cell_is_in_the_row_and_column_of_its_names() -> None:
    levels = {(m, f, v): 10.0 * m + 2.0 * f + v for m in range(3) for f in range(2) for v in range(2)}
    variants = ("released", "+fix")
    rows = [
        output_row(model=f"m{m}", flow=f"f{f}", variant=variants[v], sqnr_db=level)
        for (m, f, v), level in reversed(levels.items())
    ]
    trace = matrix(*rows)
    for (m, f, v), level in levels.items():
        column = list(zip(*trace["x"], strict=True)).index((f"f{f}", variants[v]))
        assert trace["z"][trace["y"].index(f"m{m}/small logits")][column] == level


def test_several_fixes_stand_below_each_other() -> None:
    trace = matrix(output_row(), repaired_row(variant="+a+b"))
    assert trace["x"][1] == ["released", "+a<br>+b"]


def test_names_that_look_alike_keep_cells_of_their_own() -> None:
    """White space becomes one blank, and what is cut off may be all that differs."""
    names = ["a b", "a\nb", "first" + LONG, "second" + LONG]
    trace = matrix(*(row for name in names for row in (output_row(output=name), repaired_row(output=name))))
    assert len(set(trace["y"])) == len(trace["z"]) == 4
    flows = matrix(*(row for name in names for row in (output_row(flow=name), repaired_row(flow=name))))
    assert len(set(zip(*flows["x"], strict=True))) == 8
    assert max(map(len, [*trace["y"], *flows["x"][0]])) < 100


# Bars


def test_bars_hold_before_and_after_with_the_noise_floor_as_error_bars() -> None:
    figure = bars(("x86-static", 30.0, 24.0, 0.25), ("x86-dynamic", 40.0, 41.5, 0.5))
    before, after = figure["data"]
    assert (before["name"], before["x"], after["name"], after["x"]) == ("before", [30.0, 40.0], "after", [24.0, 41.5])
    assert before["error_x"]["array"] == after["error_x"]["array"] == [0.25, 0.5]
    assert after["text"] == ["24.0", "41.5"]
    assert after["customdata"] == [("24.00 dB", "0.25 dB"), ("41.50 dB", "0.5 dB")]
    assert before["marker"]["pattern"]["shape"], "hatched, so that not the colour alone tells before from after"
    assert "pattern" not in after["marker"]


def test_bars_are_cut_where_the_axis_ends_and_their_number_stays() -> None:
    figure = bars(("exact", 160.0, 160.0, None), ("noise", -55.4, 20.0, None))
    before, after = figure["data"]
    assert before["x"] == [80.0, -20.0]
    assert (after["text"], after["customdata"][0][0]) == (["160.0", "20.0"], "160.00 dB")
    assert figure["layout"]["xaxis"]["range"] == [-32.0, 92.0]
    assert bars(("good", 30.0, 30.0, None))["layout"]["xaxis"]["range"] == [0.0, 92.0]


def test_a_side_without_a_number_has_no_bar() -> None:
    before, after = bars(("new", None, 30.0, None), ("failed", 30.0, None, 0.1))["data"]
    assert (before["x"], after["x"]) == ([None, 30.0], [30.0, None])
    assert (after["text"], after["customdata"][1]) == (["30.0", ""], ("none", "0.1 dB"))


def test_labels_of_bars_that_look_alike_are_told_apart() -> None:
    labels = bars(("a b", 1.0, 1.0, None), ("a  b", 2.0, 2.0, None), ("<b>", 3.0, 3.0, None))["data"][0]["y"]
    assert labels == ["a b", "a b (2)", "&lt;b&gt;"]


def test_labels_that_look_like_numbers_or_dates_are_names() -> None:
    for layout in (bars(("2026", 1.0, 1.0, None))["layout"], matrix_figure(fix_matrix([repaired_row()]))["layout"]):
        assert layout["yaxis"]["type"] == "category"


# Range bounds


def test_a_fix_shows_the_largest_value_and_both_bounds_with_markers_of_their_own() -> None:
    rows = [quantizer_row(quantizer=f"gamma{n}", hi=0.5, observed_hi=1.0 + n) for n in range(2)]
    traces = moved([*rows, *(quantizer_row(quantizer=f"gamma{n}", variant="+fix", hi=2.0 + n) for n in range(2))])
    assert {name: trace["y"] for name, trace in traces.items()} == {
        "largest value": [2.5, 2.5],
        "bound as released": [0.5, 0.5],
        "bound repaired": [2.0, 3.0],
    }
    assert len({trace["marker"]["symbol"] for trace in traces.values()}) == 3
    assert traces["bound repaired"]["text"] == ["gamma0", "gamma1"]


def test_a_side_without_a_quantizer_has_no_bound() -> None:
    traces = moved([lost_edge(), quantizer_row(variant="+fix", hi=2.0, observed_lo=None, observed_hi=None)])
    assert [trace["y"] for trace in traces.values()] == [[None], [None], [2.0]]


def test_a_quantizer_that_clips_is_a_cross_and_says_how_much() -> None:
    rows = [
        quantizer_row(quantizer="a", hi=2.0, observed_hi=1.5),
        quantizer_row(quantizer="b", hi=2.0, observed_hi=4.0, clip_fraction=0.125, role="weight", sqnr_db=12.5),
    ]
    representable, observed, _ = ranges(*rows)
    assert (representable["y"], observed["y"]) == ([2.0, 2.0], [1.5, 4.0])
    assert observed["marker"]["symbol"] == ["circle", "x"]
    assert observed["marker"]["color"] == [0.0, 0.125]
    assert observed["customdata"][1] == ["b", "weight", "12.5 %", "12.50 dB"]
    assert representable["marker"]["symbol"] not in observed["marker"]["symbol"]


def test_what_a_log_axis_cannot_show_is_left_out() -> None:
    representable, observed, layout = ranges(quantizer_row(hi=0.0, lo=0.0, observed_lo=0.0, observed_hi=0.0))
    assert layout["yaxis"]["type"] == "log"
    assert (representable["y"], observed["y"]) == ([None], [None])


def test_few_quantizers_are_named_by_their_ends_and_many_are_counted() -> None:
    name = "encoder.layers.encoder_layer_11.mlp.0:linear.input"
    *_, few = ranges(quantizer_row(quantizer=name))
    assert few["xaxis"]["ticktext"] == ["…" + name[-34:]]
    *_, many = ranges(*(quantizer_row(quantizer=f"layer{n}") for n in range(41)))
    assert (many["xaxis"]["showticklabels"], many["xaxis"]["title"]["text"]) == (
        False,
        "41 quantizers, in the order of their names",
    )


def test_thousands_of_quantizers_are_drawn_by_the_graphics_card() -> None:
    assert ranges(quantizer_row())[0]["type"] == "scatter"
    assert ranges(*(quantizer_row(quantizer=f"layer{n}") for n in range(1501)))[0]["type"] == "scattergl"


# Numbers and names


@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_no_number_that_is_not_finite_reaches_json(number: float) -> None:
    bars(("x", number, number, number), ("y", 30.0, number, None))
    broken = []
    for field in ("lo", "hi", "observed_lo", "observed_hi", "clip_fraction", "sqnr_db"):
        broken.append(with_nan(quantizer_row(quantizer=field), field))
        object.__setattr__(broken[-1], field, number)
    ranges(*broken)
    moved([*broken, *(quantizer_row(quantizer=row.quantizer, variant="+fix", hi=9.0) for row in broken)])
    cell = with_nan(repaired_row(), "sqnr_db")
    object.__setattr__(cell, "sqnr_db", number)
    matrix(output_row(), cell)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1 / 3, 0.333333333), (123456789012.0, 123456789000.0), (-1e-30 / 3, -3.33333333e-31), (0.0, 0.0), (None, None),
     (NAN, None), (INF, None), (-INF, None)],
)  # fmt: skip
def test_numbers_are_rounded_to_nine_digits(value: float | None, rounded: float | None) -> None:
    assert significant(value) == rounded


def test_digits_can_be_fewer() -> None:
    assert significant(2 / 3, 3) == 0.667


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_is_markup_to_plotly(name: str) -> None:
    rows = [
        output_row(output=name, flow=name),
        repaired_row(output=name, flow=name, variant=f"+{name}"),
        no_number("failed:lower", output=name, flow=name, variant="+broken", error=name),
    ]
    quantizers = [quantizer_row(quantizer=name), quantizer_row(quantizer=name, variant="+fix", hi=9.0)]
    figures: list[Any] = [matrix(*rows), bars((storable(name), 1.0, 1.0, None)), moved(quantizers), ranges(*quantizers)]
    for text in _texts(figures):
        without = text.replace("<br>", "").replace("<extra></extra>", "")
        assert not set("<>") & set(without)
        assert not any(sign in text for sign in "\u202e\x1b\r\n\ud800")


def _texts(part: Any) -> Iterable[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for inner in part.values():
            yield from _texts(inner)
    elif isinstance(part, list | tuple):
        for inner in part:
            yield from _texts(inner)


def test_a_sentence_is_broken_between_words_and_a_long_word_anywhere() -> None:
    assert folded("one two three", width=7) == "one two<br>three"
    assert folded("abcdefghij", width=4) == "abcd<br>efgh<br>ij"
    assert folded("a < b") == "a &lt; b"


def test_what_fills_a_hover_label_is_cut() -> None:
    lines = folded("x" * 10_000).split("<br>")
    assert (len(lines), lines[-1]) == (13, "…")
