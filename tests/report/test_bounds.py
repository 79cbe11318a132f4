"""Range bounds as numbers: each quantizer's range against what it saw, and the bounds that a fix moved."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from harness.report.bounds import moved_bounds, range_frame
from tests.rows import lost_edge, quantizer_row, with_nan


def moved(old: dict[str, Any], new: dict[str, Any]) -> list[dict[Any, Any]]:
    """The lines of one quantizer, released and repaired."""
    return moved_bounds([quantizer_row(**old), quantizer_row(variant="+fix", **new)]).to_dict("records")


def test_the_bound_of_a_symmetric_quantizer_is_its_upper_one() -> None:
    (line,) = range_frame([quantizer_row(zero_point=0, lo=-1.28, hi=1.27)]).to_dict("records")
    assert line["bound"] == 1.27


def test_another_bound_is_the_larger_magnitude_of_both_ends() -> None:
    row = quantizer_row(
        zero_point=146, lo=-2.0, hi=1.5, observed_lo=-0.5, observed_hi=3.0, clip_fraction=0.25, sqnr_db=12.0
    )
    (line,) = range_frame([row]).to_dict("records")
    numbers = [line[name] for name in ("bound", "absmax", "clip_fraction", "sqnr_db")]
    assert numbers == [2.0, 3.0, 0.25, 12.0]


def test_only_quantized_rows_have_a_range() -> None:
    lost, broken = lost_edge(quantizer="lost"), lost_edge(quantizer="broken", status="nonfinite")
    assert list(range_frame([quantizer_row(), lost, broken])["quantizer"]) == ["conv1:conv2d:0:input"]


def test_what_was_not_observed_is_not_a_number() -> None:
    row = quantizer_row(observed_lo=None, observed_hi=None, clip_fraction=None, sqnr_db=None)
    (line,) = range_frame([row]).to_dict("records")
    assert all(math.isnan(line[name]) for name in ("absmax", "clip_fraction", "sqnr_db"))


def test_quantizers_are_in_natural_order_and_variants_with_released_first() -> None:
    rows = [quantizer_row(quantizer=name, variant=v) for v in ("+b", "released") for name in ("layer10", "layer2")]
    frame = range_frame(rows)
    assert list(zip(frame["variant"], frame["quantizer"], strict=True)) == [
        ("released", "layer2"), ("released", "layer10"), ("+b", "layer2"), ("+b", "layer10")
    ]  # fmt: skip


def test_a_moved_bound_is_beside_the_released_one_and_the_largest_observed_value() -> None:
    (line,) = moved(
        {"lo": 0.0, "hi": 0.25, "observed_hi": 0.5}, {"zero_point": 142, "lo": -0.5, "hi": 0.4, "observed_hi": 0.5}
    )
    assert (line["absmax"], line["released"], line["repaired"]) == (0.5, 0.25, 0.5)


@pytest.mark.parametrize(("lo", "hi", "listed"), [
    (-1.0, 101.0, False), (-2.0, 100.0, False), (-1.0, 101.5, True), (-1.0, 98.5, True), (-2.5, 100.0, True),
])  # fmt: skip
def test_either_end_moves_a_range_by_more_than_one_percent_of_the_larger_bound(
    lo: float, hi: float, listed: bool
) -> None:
    assert bool(moved({"lo": -1.0, "hi": 100.0}, {"lo": lo, "hi": hi})) is listed


def test_a_range_of_zero_moves_with_any_change() -> None:
    assert moved({"lo": 0.0, "hi": 0.0}, {"lo": 0.0, "hi": 1e-30})
    assert not moved({"lo": 0.0, "hi": 0.0}, {"lo": 0.0, "hi": 0.0})


def test_a_quantizer_on_one_side_only_has_one_bound() -> None:
    (line,) = moved_bounds([quantizer_row(), lost_edge(variant="+fix")]).to_dict("records")
    assert (line["absmax"], line["released"]) == (2.5, 2.55)
    assert math.isnan(line["repaired"])
    (line,) = moved_bounds([lost_edge(), quantizer_row(variant="+fix")]).to_dict("records")
    assert (line["absmax"], line["repaired"]) == (2.5, 2.55)
    assert math.isnan(line["released"])


def test_what_released_code_does_not_have_at_all_is_not_compared() -> None:
    assert moved_bounds([quantizer_row(variant="+fix")]).empty
    assert moved_bounds([quantizer_row(), quantizer_row(variant="+fix", point="lowered", hi=9.0)]).empty


@pytest.mark.parametrize(("field", "number"), [("hi", "bound"), ("lo", "bound"), ("observed_hi", "absmax")])
def test_nan_at_one_end_is_no_range(field: str, number: str) -> None:
    assert math.isnan(range_frame([with_nan(quantizer_row(), field)])[number].iloc[0])


def test_names_that_pandas_cannot_hold_are_kept_as_escapes() -> None:
    assert list(range_frame([quantizer_row(quantizer="a\ud800")])["quantizer"]) == ["a\\ud800"]


def test_without_rows_the_columns_are_there() -> None:
    where = ["model", "size", "weights", "flow", "variant", "point", "quantizer"]
    assert list(range_frame([])) == [*where, "role", "bound", "absmax", "clip_fraction", "sqnr_db"]
    assert list(moved_bounds([])) == [*where, "absmax", "released", "repaired"]


def test_ten_thousand_rows_take_less_than_two_seconds() -> None:
    """A tenth of that on an idle core; the limit is for a busy one."""
    rows = [
        quantizer_row(quantizer=f"layer{n}", variant=v, hi=1.0 + n) for n in range(5000) for v in ("released", "+a")
    ]
    start = time.perf_counter()
    assert (len(range_frame(rows)), len(moved_bounds(rows))) == (10_000, 0)
    assert time.perf_counter() - start < 2.0
