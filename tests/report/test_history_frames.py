"""The history as tables for people: series, steps, and where the stack changed."""

from __future__ import annotations

import time

import pandas as pd
import pytest

from harness import history
from harness.report.history_frames import (
    runs_frame,
    series_frame,
    series_name,
    several_platforms,
    stack_marks,
    steps_frame,
)
from harness.steps import find_steps
from tests.histories import frame_of, series
from tests.rows import case


def told(frame: pd.DataFrame) -> pd.DataFrame:
    """The steps of a history as text."""
    return steps_frame(find_steps(frame), name_platform=several_platforms(frame))


def test_a_series_is_called_by_case_point_and_output() -> None:
    fixed = case(model="slices", flow="cadence-hoist", variant="+fix")
    assert series_name(fixed, "lowered", "centre") == "slices/small/trained cadence-hoist +fix lowered centre"
    assert series_name(fixed, "lowered", "centre", platform="linux-aarch64", pinned=False).endswith(
        " lowered centre (linux-aarch64, unpinned)"
    )


def test_runs_are_numbered_in_order_of_time_over_the_whole_history() -> None:
    frame = frame_of(series([None, 30.0, None, 31.0], output="a"), series([30.0, None, 29.0], output="b"))
    runs = runs_frame(frame)
    assert list(zip(runs["run"], runs["name"], strict=True)) == [(0, "run01"), (1, "run02"), (2, "run03"), (3, "run04")]
    assert list(runs.columns) == ["run", "run_id", "name", "started", "suite", "run_status", "platform"]


def test_series_are_long_rounded_and_in_order() -> None:
    frame = frame_of(series([30.126, "failed:lower"], output="b"), series([None, 29.0], output="a"))
    long = series_frame(frame)
    assert list(long.columns) == ["key", "series", "run", "started", "sqnr_db", "status", "stack_changes"]
    told = long[["series", "run", "status"]].values.tolist()
    name = "resnet/small/trained x86-static converted"
    assert told == [[f"{name} a", 1, "measured"], [f"{name} b", 0, "measured"], [f"{name} b", 1, "failed:lower"]]
    assert long["sqnr_db"].fillna(-1).tolist() == [29.0, 30.13, -1]
    assert long["started"].dt.day.tolist() == [2, 1, 2]


def test_platforms_are_named_only_where_there_are_several_and_unpinned_runs_always() -> None:
    alone = frame_of(series([30.0]), series([30.0], pinned=False))
    assert [name.partition(" logits")[2] for name in series_frame(alone)["series"]] == [" (unpinned)", ""]
    both = frame_of(series([30.0]), series([None, 30.0], platform="linux-aarch64"))
    assert [name.partition(" logits")[2] for name in series_frame(both)["series"]] == [
        " (linux-aarch64)",
        " (linux-x86_64)",
    ]


def test_steps_read_as_a_table() -> None:
    torchao = ["0.17.0"] * 2 + ["0.18.0"]
    frame = frame_of(series([40.0, 40.0, 38.0], torchao=torchao), series([40.0, "failed:lower"], output="digit"))
    assert told(frame).to_dict("records") == [
        {
            "what": "resnet/small/trained x86-static converted digit",
            "since run": "run02",
            "when": "2026-01-02 00:00",
            "before → after": "40.00 dB → failed:lower",
            "change": "failed",
            "stack changes": "none",
        },
        {
            "what": "resnet/small/trained x86-static converted logits",
            "since run": "run03",
            "when": "2026-01-03 00:00",
            "before → after": "40.00 dB → 38.00 dB",
            "change": "-2.00 dB",
            "stack changes": "torchao 0.17.0 -> 0.18.0",
        },
    ]


def test_a_recovery_comes_from_nothing() -> None:
    [line] = told(frame_of(series(["failed:lower", 40.0]))).to_dict("records")
    assert (line["before → after"], line["change"]) == ("none → 40.00 dB", "recovered")


def test_steps_of_several_platforms_name_theirs() -> None:
    frame = frame_of(series([40.0, 38.0]), series([40.0, 38.0], platform="linux-aarch64"))
    assert [name.partition("logits ")[2] for name in told(frame)["what"]] == [
        "(linux-aarch64)",
        "(linux-x86_64)",
    ]


def test_a_step_is_called_as_its_series_where_only_one_of_two_platforms_has_steps() -> None:
    frame = frame_of(series([40.0, 38.0]), series([30.0, 30.0], platform="linux-aarch64"))
    [name] = told(frame)["what"]
    assert name.endswith("logits (linux-x86_64)")
    assert name in set(series_frame(frame)["series"])
    [step] = find_steps(frame)
    long = series_frame(frame)
    assert set(long.loc[long["key"] == step.series, "series"]) == {name}


def test_a_series_says_in_which_of_its_runs_the_stack_is_another_than_in_its_run_before() -> None:
    """torchao moves in run 2, which measured `b` alone: `a` sees it in run 3."""
    torchao = ["0.17.0", "0.18.0", "0.18.0"]
    frame = frame_of(
        series([30.0, None, 30.0], output="a", torchao=torchao),
        series([30.0, 30.0, 30.0], output="b", torchao=torchao),
        series([30.0, 30.0], output="c", platform="linux-aarch64"),
    )
    long = series_frame(frame)
    moved = long[long["stack_changes"] != ""]
    assert [key[6] for key in moved["key"]] == ["a", "b"]
    assert moved["run"].tolist() == [2, 1]
    assert set(moved["stack_changes"]) == {"torchao 0.17.0 -> 0.18.0"}


def test_the_stack_is_marked_where_it_differs_from_the_run_before_on_that_platform() -> None:
    """Runs 1, 3, 4 on x86, of which run 4 has another torchao and a first nncf; runs 2 and 5 on Arm, all alike."""
    x86 = {"torchao": ["0.17.0"] * 3 + ["0.18.0"], "nncf": [""] * 3 + ["3.4.0"]}
    arm = {"torchao": "0.16.0", "platform": "linux-aarch64"}
    frame = frame_of(series([30.0, None, 30.0, 30.0], **x86), series([None, 30.0, None, None, 30.0], **arm))
    [mark] = stack_marks(frame).drop(columns="started").to_dict("records")
    assert mark == {
        "run": 3,
        "name": "run04",
        "platform": "linux-x86_64",
        "text": "torchao 0.17.0 -> 0.18.0, nncf not installed -> 3.4.0",
    }


def test_hostile_names_are_one_visible_line_and_markup_is_left_to_the_renderer() -> None:
    output = "<script>\n\u202e\x1b[31m"
    frame = frame_of(series([40.0, 38.0], output=output, run="run\u202e", torchao=["1\n", "2\x07"]))
    seen = "<script> \\u202e\\x1b[31m"
    assert set(series_frame(frame)["series"]) == {f"resnet/small/trained x86-static converted {seen}"}
    [line] = told(frame).to_dict("records")
    assert line["what"].endswith(seen)
    assert (line["since run"], line["stack changes"]) == ("run\\u202e", "torchao 1 -> 2\\x07")
    assert stack_marks(frame)["text"].tolist() == ["torchao 1 -> 2\\x07"]
    assert set(runs_frame(frame)["name"]) == {"run\\u202e"}


@pytest.mark.parametrize("frame", [history.empty(), frame_of(series([float("nan")] * 3))], ids=["no line", "all NaN"])
def test_nothing_measured_is_a_table_too(frame) -> None:
    assert len(series_frame(frame)) == len(frame)
    assert series_frame(frame)["sqnr_db"].isna().all()
    assert len(stack_marks(frame)) == 0
    assert len(told(frame)) == 0
    assert list(steps_frame([], name_platform=False).columns) == [
        "what",
        "since run",
        "when",
        "before → after",
        "change",
        "stack changes",
    ]


def test_ten_thousand_lines_take_under_a_second() -> None:
    """500 series of 20 runs; 0.1 s where this was written."""
    frame = frame_of(*(series([40.0] * 20, flow=f"f{index}") for index in range(500)))
    start = time.perf_counter()
    assert len(series_frame(frame)) == 10_000
    assert (len(runs_frame(frame)), len(stack_marks(frame))) == (20, 0)
    assert time.perf_counter() - start < 1.0
