"""SQNR of each output before and after: what the bars show."""

from __future__ import annotations

import math
from typing import Any

from harness.records import Row
from harness.report.groups import groups
from harness.report.levels import COLUMNS, level_frame
from tests.judgements import judged, nothing
from tests.rows import no_number, output_row, repaired_row


def lines(old: list[Row], new: list[Row]) -> list[dict[str, Any]]:
    """The frame's lines, NaN as None."""
    frame = level_frame(groups(*judged(old, new)))
    assert list(frame.columns) == COLUMNS
    return [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in line.items()}
        for line in frame.to_dict("records")
    ]


def test_a_line_holds_before_after_and_the_accepted_noise_floor() -> None:
    assert lines([output_row(noise_db=0.25)], [output_row(sqnr_db=24.0)]) == [
        {
            "title": "resnet/small/trained logits",
            "label": "x86-static",
            "before": 30.0,
            "after": 24.0,
            "noise_db": 0.25,
        }
    ]


def test_the_last_point_of_a_flow_counts() -> None:
    levels = {"lowered": 20.0, "float": 160.0, "converted": 30.0}
    rows: list[Row] = [output_row(point=point, sqnr_db=level) for point, level in levels.items()]
    assert [(line["before"], line["after"]) for line in lines(rows, rows)] == [(20.0, 20.0)]


def test_what_has_no_number_on_a_side_has_none_there() -> None:
    old: list[Row] = [output_row(output="failed"), output_row(output="missing")]
    new: list[Row] = [no_number("failed:lower", output="failed"), output_row(output="new")]
    found = {line["title"].split()[-1]: (line["before"], line["after"]) for line in lines(old, new)}
    assert found == {"failed": (30.0, None), "missing": (30.0, None), "new": (None, 30.0)}


def test_lines_stand_by_output_then_flow_then_variant() -> None:
    rows: list[Row] = [
        output_row(flow="flow10"),
        repaired_row(flow="flow2", variant="+a+b"),
        repaired_row(flow="flow2", variant="+b"),
        output_row(flow="flow2"),
        output_row(model="bert"),
    ]
    assert [(line["title"].split("/")[0], line["label"]) for line in lines(rows, rows)] == [
        ("bert", "x86-static"),
        ("resnet", "flow2"),
        ("resnet", "flow2 +b"),
        ("resnet", "flow2 +a+b"),
        ("resnet", "flow10"),
    ]


def test_without_rows_there_are_no_lines_but_numbers_are_still_numbers() -> None:
    frame = level_frame(groups(*nothing()))
    assert frame.empty
    assert [str(frame[name].dtype) for name in ("before", "after", "noise_db")] == ["float64"] * 3


def test_a_name_that_utf8_cannot_say_is_an_escape() -> None:
    [line] = lines([], [output_row(output="a\ud800b", flow="c\udfff")])
    assert (line["title"], line["label"]) == ("resnet/small/trained a\\ud800b", "c\\udfff")
