"""What another machine did to rows, in noise floors: each number can be redone by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.compare import Rows
from harness.noise import Move, Moves, beyond_allowance, moves, summary
from harness.records import Row
from harness.report.noise_text import as_json, groups_of, sentence
from harness.settings import Tolerance
from tests.rows import by_key, output_row, outputs_of, quantizer_row, quantizers_of


def rows(*some: Row) -> Rows:
    return Rows(by_key(outputs_of(some)), by_key(quantizers_of(some)))


def moved(base: Row, head: Row, floor: float | None) -> Moves:
    """One row in two runs, its floor in the baseline."""
    name = "noise_rel" if hasattr(base, "lo") else "noise_db"
    return moves(rows(base), rows(head), rows(with_floor(base, name, floor)), lambda _row: Tolerance())


def with_floor(row: Row, name: str, floor: float | None) -> Row:
    make = quantizer_row if name == "noise_rel" else output_row
    values: dict[str, Any] = {field: getattr(row, field) for field in row.__dataclass_fields__}
    return make(**{**values, name: floor})


def only(found: Moves) -> Move:
    (move,) = (*found.outputs, *found.bounds)
    return move


# One row


def test_a_change_is_counted_in_floors_and_the_sign_is_kept() -> None:
    move = only(moved(output_row(sqnr_db=30.0), output_row(sqnr_db=29.5), 0.25))
    assert (move.change, move.floors) == (-0.5, 2.0)


def test_half_a_decibel_is_allowed_whatever_the_floor() -> None:
    small = only(moved(output_row(sqnr_db=30.0), output_row(sqnr_db=29.5), 0.125))
    assert (small.by_floor, small.allowed, small.floors, small.needed) == (False, 0.5, 4.0, 0.0)


def test_a_larger_floor_decides_and_what_is_needed_is_the_least_multiple_that_allows_the_change() -> None:
    move = only(moved(output_row(sqnr_db=30.0), output_row(sqnr_db=31.0), 0.25))
    assert (move.by_floor, move.allowed, move.needed) == (True, 0.75, 4.0)
    assert beyond_allowance([move]) == [move]
    assert sentence(move) == (
        "resnet/small/trained x86-static converted logits: +1.00 dB, 4.00 floors of 0.250 dB, allowed 0.75 dB"
    )


def test_a_row_without_noise_that_moved_is_infinitely_far() -> None:
    move = only(moved(output_row(sqnr_db=30.0), output_row(sqnr_db=29.0), 0.0))
    assert (move.floors, move.needed) == (math.inf, math.inf)
    still = only(moved(output_row(), output_row(), 0.0))
    assert (still.floors, still.needed) == (0.0, 0.0)


@pytest.mark.parametrize(("mode", "least"), [("static", 1e-3), ("dynamic", 1e-2)])
def test_bounds_are_relative_to_the_larger_one_as_they_are_judged(mode: str, least: float) -> None:
    base = quantizer_row(mode=mode, lo=-4.0, hi=2.0)
    move = only(moved(base, quantizer_row(mode=mode, lo=-4.5, hi=2.25), 0.0625))
    assert (move.change, move.floors, move.least) == (0.125, 2.0, least)


# Which rows


def test_rows_above_80_db_in_both_runs_and_rows_without_a_floor_are_left_out_and_counted() -> None:
    quiet = moved(output_row(sqnr_db=140.0), output_row(sqnr_db=130.0), 0.25)
    bare = moved(output_row(sqnr_db=30.0), output_row(sqnr_db=29.0), None)
    assert (quiet.outputs, quiet.quiet, bare.outputs, bare.without_floor) == ((), 1, (), 1)


def test_a_row_that_failed_or_is_in_one_run_only_is_not_compared() -> None:
    failed = output_row(status="failed:convert", sqnr_db=None)
    assert moved(output_row(), failed, 0.25) == Moves((), (), 0, 0)
    assert moves(rows(output_row()), rows(), rows(), lambda _row: Tolerance()) == Moves((), (), 0, 0)


def test_variants_that_share_one_measurement_count_once() -> None:
    pairs = [(output_row(variant=name, sqnr_db=30.0), output_row(variant=name, sqnr_db=29.0)) for name in ("a", "b")]
    other = (output_row(variant="c", sqnr_db=31.0), output_row(variant="c", sqnr_db=29.0))
    base, head = zip(*pairs, other, strict=True)
    floors = [with_floor(row, "noise_db", 0.25) for row in base]
    found = moves(rows(*base), rows(*head), rows(*floors), lambda _row: Tolerance())
    assert [move.change for move in found.outputs] == [-1.0, -2.0]


# All rows


def test_quantiles_are_values_that_so_many_rows_do_not_exceed() -> None:
    found = summary(Move(output_row(), change, 0.25, 0.5, 3.0) for change in (0.0, 0.25, -0.5, 1.0))
    assert (found.rows, found.moved) == (4, 3)
    assert found.quantiles == {0.5: 1.0, 0.9: 4.0, 0.99: 4.0, 1.0: 4.0}  # of 0, 1, 2 and 4 floors
    assert found.beyond == {1: 2, 2: 1, 3: 1, 4: 0, 5: 0, 10: 0}
    assert found.needed == 4.0


def test_the_multiple_for_99_9_percent_leaves_out_one_row_in_a_thousand() -> None:
    changes = [0.625] * 999 + [10.0]
    found = summary(Move(output_row(), change, 0.25, 0.5, 3.0) for change in changes)
    assert (found.needed, found.needed_by_most) == (40.0, 2.5)


def test_no_rows_need_nothing() -> None:
    found = summary([])
    assert (found.rows, found.quantiles, found.needed, found.needed_by_most) == (0, {}, 0.0, 0.0)


def test_rows_whose_allowance_is_the_same_anyhow_are_shown_apart() -> None:
    small = Move(output_row(output="a"), 0.25, 0.125, 0.5, 3.0)
    large = Move(output_row(output="b"), 0.25, 0.25, 0.5, 3.0)
    groups = groups_of(Moves((small, large), (), 0, 0))
    assert groups["outputs, allowed by their floor"] == [large]
    assert groups["outputs, allowed sqnr_drop_db anyhow"] == [small]
    assert groups["outputs"] == [small, large]


def test_json_has_no_infinity() -> None:
    content = as_json(Moves((Move(output_row(), 1.0, 0.0, 0.5, 3.0),), (), 0, 0))
    assert content["beyond"][0]["floors"] is None
    assert content["groups"]["outputs"]["needed"] is None
