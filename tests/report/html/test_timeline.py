"""A history as figures: the traces of each series, its steps, and where the stack changed."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
import pytest

from harness.report.html.assets import pack_json
from harness.report.html.timeline import Timeline, timeline
from harness.steps import find_steps
from tests.histories import frame_of, series
from tests.report.html.pages import HOSTILE

NAME = "resnet/small/trained x86-static converted"


def of(frame: pd.DataFrame) -> Timeline:
    """The timeline of a history and its steps, once plotly and JSON have taken it."""
    found = timeline(frame, find_steps(frame))
    for traces in found.traces:
        go.Figure({"data": traces, "layout": found.layout})
    pack_json([found.traces, found.layout])
    return found


def test_a_series_is_its_levels_over_time() -> None:
    found = of(frame_of(series([40.0, 39.9, 40.0])))
    [[line]] = found.traces
    assert (line["y"], line["text"]) == ([40.0, 39.9, 40.0], ["run01", "run02", "run03"])
    assert [moment[:10] for moment in line["x"]] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert found.summary == "3 runs from 2026-01-01 to 2026-01-03, 1 output of cases, no step."
    assert found.steps[1] == []


def test_the_series_with_the_worst_step_comes_first() -> None:
    frame = frame_of(
        series([40.0, 40.0], output="a"), series([40.0, 38.0], output="b"), series([40.0, 20.0], output="c")
    )
    assert of(frame).series == [f"{NAME} c", f"{NAME} b", f"{NAME} a"]
    assert [traces[0]["y"] for traces in of(frame).traces] == [[40.0, 20.0], [40.0, 38.0], [40.0, 40.0]]


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
    [[*_, steps]] = of(frame_of(series(levels))).traces
    assert steps["name"] == "step, first run with it"
    assert (steps["marker"]["symbol"], steps["y"]) == (signs, heights)


def test_a_step_says_since_when_from_what_to_what_and_with_which_stack() -> None:
    [[_, steps]] = of(frame_of(series([40.0, 40.0, 38.0], torchao=["0.17.0", "0.17.0", "0.18.0"]))).traces
    said = "run03<br>2026-01-03 00:00<br>40.00 dB → 38.00 dB<br>-2.00 dB<br>torchao 0.17.0 -&gt; 0.18.0"
    assert steps["text"] == [said]


def test_a_run_without_a_number_leaves_a_gap_and_a_cross_with_its_status() -> None:
    [[line, lost, _]] = of(frame_of(series([40.0, "failed:lower", 39.0]))).traces
    assert (line["y"], line["connectgaps"]) == ([40.0, None, 39.0], False)
    assert (lost["name"], lost["y"], lost["text"]) == ("no number", [39.0], ["run02<br>failed:lower"])
    assert lost["marker"]["symbol"] == "x"


def test_a_series_that_never_had_a_number_is_crosses_alone() -> None:
    [[line, lost]] = of(frame_of(series(["failed:lower", "empty"]))).traces
    assert (line["y"], lost["y"]) == ([None, None], [0.0, 0.0])


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_are_not_finite_are_gaps(number: float) -> None:
    frame = frame_of(series([40.0, number, 40.0]))
    [[line, lost]] = timeline(frame, []).traces
    assert (line["y"], len(lost["y"])) == ([40.0, None, 40.0], 1)
    pack_json(line)


def test_where_the_stack_changed_stands_a_dotted_line_with_its_packages() -> None:
    layout = of(frame_of(series([40.0] * 3, torchao=["0.17.0", "0.18.0", "0.18.0"]))).layout
    [line], [text] = layout["shapes"], layout["annotations"]
    assert (line["x0"][:10], line["x1"], line["line"]["dash"]) == ("2026-01-02", line["x0"], "dot")
    assert (text["x"], text["text"]) == (line["x0"], "torchao 0.17.0 -&gt; 0.18.0")


def test_of_many_changes_of_the_stack_the_latest_are_marked() -> None:
    versions = [f"0.{number}" for number in range(40)]
    layout = of(frame_of(series([40.0] * 40, torchao=versions))).layout
    assert len(layout["shapes"]) == len(layout["annotations"]) == 30
    assert layout["annotations"][-1]["text"] == "torchao 0.38 -&gt; 0.39"


def test_no_run_is_said_plainly() -> None:
    found = of(frame_of())
    assert (found.summary, found.series, found.traces) == ("The history holds no run.", [], [])


def test_a_history_of_ten_thousand_rows_keeps_every_level_of_every_series() -> None:
    frame = frame_of(*(series([40.0] * 50, output=f"head{number}") for number in range(200)))
    found = of(frame)
    assert len(frame) == 10_000
    assert [len(traces[0]["y"]) for traces in found.traces] == [50] * 200


def test_names_in_a_history_are_no_markup_to_plotly() -> None:
    names = [name.replace("\ud800", "") for name in HOSTILE]
    found = of(
        frame_of(*(series([40.0, 30.0, "empty"], output=name, run=name, torchao=[name, "2", "3"]) for name in names))
    )
    shown = [text for traces in found.traces for trace in traces for text in trace["text"]]
    shown += [note["text"] for note in found.layout["annotations"]]
    assert len(shown) > 3 * len(names)
    assert not [text for text in shown if set("<>") & set(text.replace("<br>", ""))]
