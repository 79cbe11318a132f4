"""The fix matrix and the bars: what they show, what they say on hover, and that plotly takes them."""

from __future__ import annotations

import pytest

from harness.records import OutputRow
from harness.report.fix_matrix import fix_matrix
from harness.report.html.figures import matrix_figure
from tests.report.html.drawn import bars, matrix
from tests.report.html.pages import LONG
from tests.rows import no_number, output_row, repaired_row

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
