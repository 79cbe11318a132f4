"""What was located, on the page: the figure of dB along the network, the culprits' lines, and the numbers as tables."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from harness.located import LayerLevel, Located, Sensitivity
from harness.report.html import assets, page
from harness.report.html.figures import Figure
from harness.report.html.layer_figure import layer_figure
from tests.judgements import judged, nothing
from tests.located_records import called, culprit, layer, located, no_level
from tests.report.html.drawn import valid
from tests.report.html.pages import HOSTILE, Page, words_of
from tests.rows import output_row

_LIBRARIES = assets.libraries()


def traces(*layers: LayerLevel, **changes: Any) -> dict[str, Figure]:
    figure = valid(layer_figure(located(layers=layers, **{"culprits": (), **changes})))
    return {trace["name"]: trace for trace in figure["data"]}


def located_page(*records: Located) -> Page:
    with mock.patch.object(assets, "libraries", return_value=_LIBRARIES):
        return Page(page.render_located(records))


# The figure


def test_accumulated_is_a_line_and_local_a_mark_for_each_layer_in_order() -> None:
    found = traces(layer(sqnr_db=30.0, local_db=40.0), layer(sqnr_db=20.5, local_db=None), layer(sqnr_db=21.0))
    assert (found["accumulated"]["x"], found["accumulated"]["y"]) == ([0, 1, 2], [30.0, 20.5, 21.0])
    assert "lines" in found["accumulated"]["mode"]
    assert (found["local"]["x"], found["local"]["y"], found["local"]["mode"]) == ([0, 2], [40.0, 40.0], "markers")
    assert set(found) == {"accumulated", "local"}


def test_exact_layers_stand_at_the_top_and_do_not_stretch_the_axis() -> None:
    found = traces(layer(sqnr_db=160.0, local_db=160.0), layer(sqnr_db=30.0, local_db=12.0))
    assert found["accumulated"]["y"] == [40.0, 30.0]
    assert (found["local, above 40 dB or exact"]["x"], found["local, above 40 dB or exact"]["y"]) == ([0], [40.0])
    assert found["local"]["x"] == [1]
    assert "accumulated: exact" in found["accumulated"]["customdata"][0]


@pytest.mark.parametrize("status", ["mismatch", "nonfinite_actual", "zero_signal", "empty"])
def test_a_layer_without_decibels_is_a_gap_in_the_line_and_a_cross_that_says_why(status: str) -> None:
    found = traces(layer(), no_level(status), layer())
    assert found["accumulated"]["y"] == [30.0, None, 30.0]
    assert found["accumulated"]["connectgaps"] is False
    assert (found["no dB"]["x"], found["no dB"]["y"]) == ([1], [0.0])
    assert f"accumulated: {status}" in found["no dB"]["customdata"][0]


def test_hovering_tells_name_ops_source_levels_and_samples() -> None:
    found = traces(layer(name="a:slice", op="slice", actual_op="slice_copy", local_db=0.34))
    assert found["local"]["customdata"][0].split("<br>") == [
        "<b>a:slice</b>",
        "slice -&gt; slice_copy at models/net.py:7",
        "accumulated: 30.00 dB, worst channel: 20.00 dB",
        "local: 0.34 dB",
        "8 samples",
    ]


def test_culprits_are_stars_with_their_number_at_their_own_damage() -> None:
    layers = layer(name="a:mul", local_db=3.0), layer(), layer(name="b:mul", local_db=None, sqnr_db=9.0)
    blamed = culprit(names=("b:mul.self",)), culprit(names=("a:mul.self",))
    stars = traces(*layers, culprits=blamed)["culprit"]
    assert (stars["x"], stars["y"], stars["text"]) == ([0, 2], [3.0, 9.0], ["2: 3.00", "1: 9.00"])
    assert stars["customdata"][0].startswith("culprit 2: a:mul.self: range [-1, 1.7] -&gt; [0, 100]")


def test_ten_layers_are_named_below_the_axis_and_eight_hundred_are_counted() -> None:
    few, many = (layer_figure(located(layers=tuple(layer(name=f"l{n}") for n in range(k)))) for k in (10, 800))
    assert few["layout"]["xaxis"]["ticktext"] == [f"l{n}" for n in range(10)]
    assert many["layout"]["xaxis"]["title"]["text"] == "800 layers, in order of execution"
    assert "ticktext" not in many["layout"]["xaxis"]
    assert many["least_width"] <= 900


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_is_markup_in_a_figure(name: str) -> None:
    figure = valid(layer_figure(called(name)))
    said = [text for trace in figure["data"] for text in trace["customdata"]]
    for text in (*said, *figure["layout"]["xaxis"]["ticktext"]):
        assert "<" not in text.replace("<br>", "").replace("<b>", "").replace("</b>", "")


# The page


def test_a_page_without_a_run_has_a_headline_lines_and_tables_for_each_output() -> None:
    record = located(
        only_float=("drop:dropout",),
        sensitivity=(Sensitivity(("a", "b"), 12.5, 31.0),),
        minimal=False,
        culprits=(culprit(), culprit(kind="layer", names=("fc:linear",))),
    )
    found = located_page(record, located(output="score", culprits=(), layers=()))
    first, second = found.all("//section[@id='culprits']/details")
    assert "10.00 dB as it is; 40.00 dB with +fix" in words_of(first)
    assert [words_of(item) for item in first.xpath("./ol/li")] == [
        "conv1:conv2d.input: range [-1, 1.7] → [0, 100] (clipping, models/net.py:7)",
        "fc:linear: left in float (clipping, models/net.py:7)",
    ]
    assert "not each of them was seen to be needed" in words_of(first)
    assert "1 layer of the float graph alone drop:dropout" in words_of(first)
    assert "no culprit was found" in words_of(second)
    assert not second.xpath(".//figure | .//table")
    names = [table.get("data-rows") for table in first.xpath(".//table")]
    rows, groups = (found.data["tables"][name] for name in names)
    assert rows[0] == [1, "conv1:conv2d", "conv2d", "models/net.py:7", 30.0, 40.0, 20.0, 8, "measured ★ culprit 1"]
    assert groups == [["a, b", 12.5, 31.0]]


def test_anchors_are_distinct_whatever_outputs_are_called() -> None:
    found = located_page(*(located(output=name) for name in ("a b", "a-b", "a/b", "<>", "")))
    anchors = [part.get("id") for part in found.all("//details[@class='located']")]
    assert len(set(anchors)) == len(anchors) == 5
    assert set(found.data["figures"]) == set(anchors)


def test_a_run_shows_what_was_located_in_it_and_links_to_it_from_what_changed() -> None:
    made = judged([output_row(sqnr_db=40.0)], [output_row(sqnr_db=10.0)])
    with mock.patch.object(assets, "libraries", return_value=_LIBRARIES):
        found = Page(page.render(*made, None, [located(), located(model="other")]))
    mine, other = found.all("//details[@class='located']")
    assert [link.get("href") for link in found.all("//table[@id='changes-table']//td[last()]//a")] == [
        f"#{mine.get('id')}"
    ]
    assert mine.xpath("./summary/a/@href") == ["#case-resnet-small-trained-x86-static"]
    assert other.xpath("./summary/a") == [], "the run has no such case"
    assert "Culprits" in [words_of(link) for link in found.all("//nav//a")]


def test_a_run_in_which_nothing_was_located_has_no_such_section() -> None:
    with mock.patch.object(assets, "libraries", return_value=_LIBRARIES):
        found = Page(page.render(*nothing()))
    assert not found.all("//section[@id='culprits']")
    assert "Culprits" not in [words_of(link) for link in found.all("//nav//a")]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_becomes_an_element(name: str) -> None:
    tame, wild = located_page(called("name")), located_page(called(name))
    assert [part.tag for part in wild.tree.iter()] == [part.tag for part in tame.tree.iter()]


def test_a_record_of_ten_thousand_layers_makes_a_small_page() -> None:
    layers = tuple(layer(name=f"stage{n // 100}.block{n}:conv2d", sqnr_db=n % 47 + 0.5) for n in range(10_000))
    text = located_page(located(layers=layers)).text
    assert len(text) - sum(map(len, _LIBRARIES.values())) < 1_000_000
