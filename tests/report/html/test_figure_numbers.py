"""Figures of range bounds, and what any figure makes of numbers that are none and of names that are markup."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from harness.files import storable
from harness.report.html.figures import folded, significant
from tests.report.html.drawn import bars, matrix, moved, ranges
from tests.report.html.pages import HOSTILE
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row, with_nan

NAN, INF = math.nan, math.inf


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
