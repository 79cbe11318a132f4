"""A history as figures: the traces of each series, its steps, and where the stack changed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

from harness.report.html import page
from harness.report.html.assets import pack_json
from harness.report.html.figures import Figure
from harness.report.html.timeline import Timeline, timeline
from harness.steps import find_steps
from tests.histories import frame_of, series
from tests.report.html.browser import Browser
from tests.report.html.pages import HOSTILE

X86, ARM = "linux-x86_64", "linux-aarch64"
NAME = "resnet/small/trained x86-static converted"


def of(frame: pd.DataFrame) -> Timeline:
    """The timeline of a history and its steps, once plotly and JSON have taken it."""
    found = timeline(frame, find_steps(frame))
    for one in found.traces:
        go.Figure({"data": one["data"], "layout": found.layout[one["platform"]]})
    pack_json([found.traces, found.layout])
    return found


def drawn(frame: pd.DataFrame) -> list[list[Figure]]:
    """The traces of each series."""
    return [one["data"] for one in of(frame).traces]


def test_a_series_is_its_levels_over_time() -> None:
    found = of(frame_of(series([40.0, 39.9, 40.0])))
    [[line]] = [one["data"] for one in found.traces]
    assert (line["y"], line["text"]) == ([40.0, 39.9, 40.0], ["run01", "run02", "run03"])
    assert [moment[:10] for moment in line["x"]] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert found.summary == "3 runs from 2026-01-01 to 2026-01-03, 1 series, no step."
    assert found.steps[1] == []


def test_the_series_with_the_worst_step_comes_first() -> None:
    frame = frame_of(
        series([40.0, 40.0], output="a"), series([40.0, 38.0], output="b"), series([40.0, 20.0], output="c")
    )
    assert of(frame).series == [f"{NAME} c", f"{NAME} b", f"{NAME} a"]
    assert [traces[0]["y"] for traces in drawn(frame)] == [[40.0, 20.0], [40.0, 38.0], [40.0, 40.0]]


@pytest.mark.parametrize(
    ("levels", "signs", "heights"),
    [
        ([40.0, 40.0, 38.0], ["triangle-down"], [38.0]),
        ([38.0, 38.0, 40.0], ["triangle-up"], [40.0]),
        ([40.0, "failed:lower", 40.0], ["triangle-down", "triangle-up"], [40.0, 40.0]),
    ],
    ids=["a drop", "a rise", "a failure and its recovery"],
)
def test_a_step_is_a_triangle_that_points_where_it_went(
    levels: list[float | str], signs: list[str], heights: list[float]
) -> None:
    [[*_, steps]] = drawn(frame_of(series(levels)))
    assert steps["name"] == "step, first run with it"
    assert (steps["marker"]["symbol"], steps["y"]) == (signs, heights)


def test_a_step_says_since_when_from_what_to_what_and_with_which_stack() -> None:
    [[_, steps]] = drawn(frame_of(series([40.0, 40.0, 38.0], torchao=["0.17.0", "0.17.0", "0.18.0"])))
    said = "run03<br>2026-01-03 00:00<br>40.00 dB → 38.00 dB<br>-2.00 dB<br>torchao 0.17.0 -&gt; 0.18.0"
    assert steps["text"] == [said]


def test_a_run_without_a_number_leaves_a_gap_and_a_cross_with_its_status() -> None:
    [[line, lost, _]] = drawn(frame_of(series([40.0, "failed:lower", 39.0])))
    assert (line["y"], line["connectgaps"]) == ([40.0, None, 39.0], False)
    assert (lost["name"], lost["y"], lost["text"]) == ("no number", [39.0], ["run02<br>failed:lower"])
    assert lost["marker"]["symbol"] == "x"


def test_a_series_that_never_had_a_number_is_crosses_alone() -> None:
    [[line, lost]] = drawn(frame_of(series(["failed:lower", "empty"])))
    assert (line["y"], lost["y"]) == ([None, None], [0.0, 0.0])


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_are_not_finite_are_gaps(number: float) -> None:
    frame = frame_of(series([40.0, number, 40.0]))
    [[line, lost]] = [one["data"] for one in timeline(frame, []).traces]
    assert (line["y"], len(lost["y"])) == ([40.0, None, 40.0], 1)
    pack_json(line)


def test_where_the_stack_changed_stands_a_dotted_line_with_its_packages() -> None:
    layout = of(frame_of(series([40.0] * 3, torchao=["0.17.0", "0.18.0", "0.18.0"]))).layout[X86]
    [line], [text] = layout["shapes"], layout["annotations"]
    assert (line["x0"][:10], line["x1"], line["line"]["dash"]) == ("2026-01-02", line["x0"], "dot")
    assert (text["x"], text["text"]) == (line["x0"], "torchao 0.17.0 -&gt; 0.18.0")


def test_a_series_has_the_stack_changes_of_its_own_platform() -> None:
    frame = frame_of(
        series([40.0] * 3, torchao=["0.17.0", "0.18.0", "0.18.0"]), series([30.0] * 3, platform=ARM, run_id=list("abc"))
    )
    found = of(frame)
    assert {one["platform"]: len(found.layout[one["platform"]]["shapes"]) for one in found.traces} == {X86: 1, ARM: 0}
    assert {name: len(layout["annotations"]) for name, layout in found.layout.items()} == {X86: 1, ARM: 0}


def test_of_two_platforms_the_one_with_the_step_comes_first_with_its_triangle() -> None:
    arm = series([30.0, 30.0], platform=ARM, run_id=["a", "b"])
    found = of(frame_of(arm, series([40.0, 38.0])))
    assert found.series == [f"{NAME} logits ({X86})", f"{NAME} logits ({ARM})"]
    assert [line[0] for line in found.steps[1]] == [f"{NAME} logits ({X86})"]
    assert [[trace["name"] for trace in one["data"]] for one in found.traces] == [
        ["SQNR", "step, first run with it"],
        ["SQNR"],
    ]
    assert ", 2 series, 1 step." in found.summary


def test_outputs_that_look_alike_are_series_of_their_own() -> None:
    """Two blanks and one are one blank to a reader."""
    found = of(frame_of(series([40.0, 40.0], output="a b"), series([40.0, 20.0], output="a  b")))
    assert found.series == [f"{NAME} a b"] * 2
    assert [one["data"][0]["y"] for one in found.traces] == [[40.0, 20.0], [40.0, 40.0]]


def test_the_table_of_a_series_has_its_runs_the_latest_first() -> None:
    levels, torchao = [40.0, "failed:lower", 38.126], ["0.17.0", "0.17.0", "0.18.0"]
    [one] = of(frame_of(series(levels, torchao=torchao))).traces
    assert one["rows"] == [
        ["run03", "2026-01-03 00:00", "38.13 dB", "torchao 0.17.0 -> 0.18.0"],
        ["run02", "2026-01-02 00:00", "failed:lower", ""],
        ["run01", "2026-01-01 00:00", "40.00 dB", ""],
    ]
    assert one["more"] == ""


@pytest.mark.parametrize(
    ("runs", "more"), [(200, ""), (201, "... and 1 earlier run"), (1300, "... and 1,100 earlier runs")]
)
def test_of_many_runs_the_latest_200_are_rows_and_the_others_are_counted(runs: int, more: str) -> None:
    [one] = of(frame_of(series([40.0] * runs))).traces
    assert (len(one["rows"]), one["rows"][0][0], one["more"]) == (200, f"run{runs}", more)


def test_one_run_is_no_runs() -> None:
    assert of(frame_of(series([40.0]))).summary == "1 run from 2026-01-01 to 2026-01-01, 1 series, no step."


def test_of_many_changes_of_the_stack_the_latest_are_marked() -> None:
    versions = [f"0.{number}" for number in range(40)]
    layout = of(frame_of(series([40.0] * 40, torchao=versions))).layout[X86]
    assert len(layout["shapes"]) == len(layout["annotations"]) == 30
    assert layout["annotations"][-1]["text"] == "torchao 0.38 -&gt; 0.39"


def test_no_run_is_said_plainly() -> None:
    found = of(frame_of())
    assert (found.summary, found.series, found.traces) == ("The history holds no run.", [], [])


def test_a_history_of_ten_thousand_rows_keeps_every_level_of_every_series() -> None:
    frame = frame_of(*(series([40.0] * 50, output=f"head{number}") for number in range(200)))
    found = of(frame)
    assert len(frame) == 10_000
    assert [len(one["data"][0]["y"]) for one in found.traces] == [50] * 200


def test_names_in_a_history_are_no_markup_to_plotly() -> None:
    names = [name.replace("\ud800", "") for name in HOSTILE]
    found = of(
        frame_of(*(series([40.0, 30.0, "empty"], output=name, run=name, torchao=[name, "2", "3"]) for name in names))
    )
    shown = [text for one in found.traces for trace in one["data"] for text in trace["text"]]
    shown += [note["text"] for note in found.layout[X86]["annotations"]]
    assert len(shown) > 3 * len(names)
    assert not [text for text in shown if set("<>") & set(text.replace("<br>", ""))]


def test_the_chooser_lays_out_the_table_and_the_stack_lines_of_the_chosen_series(
    browser: Browser, tmp_path: Path
) -> None:
    here = series([40.0, 38.0, "<b>failed"], torchao=["0.17.0", "0.18.0", "0.18.0"])
    frame = frame_of(here, series([30.0] * 201, platform=ARM, run_id=[f"arm{number}" for number in range(201)]))
    (file := tmp_path / "history.html").write_text(page.render_history(timeline(frame, find_steps(frame))), "utf-8")
    browser.open(file)
    browser.one("#history summary").click()
    cells = (
        "return [...document.querySelectorAll('#series-runs > tbody > tr')].map((row) => row.innerText.split('\\t'))"
    )
    lines = "return document.querySelector('#history .plot').layout?.shapes?.length"
    more = "return document.querySelector('#series-more').textContent"
    browser.one("#history .plot")
    browser.until(f"{lines} === 1")
    assert browser.run(cells) == [
        ["run03", "2026-01-03 00:00", "<b>failed", ""],
        ["run02", "2026-01-02 00:00", "38.00 dB", "torchao 0.17.0 -> 0.18.0"],
        ["run01", "2026-01-01 00:00", "40.00 dB", ""],
    ]
    assert browser.run(more) == ""
    browser.one("#series").send_keys(f"{NAME} logits ({ARM})")
    browser.until(f"{lines} === 0")
    assert len(browser.run(cells)) == 200
    assert browser.run(more) == "... and 1 earlier run"
    assert browser.complaints() == []
