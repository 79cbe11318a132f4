"""Which failing rows of a run are looked into, and what is said of the others."""

from __future__ import annotations

from harness.suite import Selection
from harness.verbs.locating import _rows_of
from tests.judgements import judged
from tests.rows import CASE, no_number, output_row

KERNELS = {"int8_convs": 5, "int8_linears": 1, "float_convs": 0, "float_linears": 0}


def test_a_failing_output_of_a_graph_is_looked_into_at_its_own_point() -> None:
    rows = [(point, name) for point in ("converted", "lowered") for name in "ab"]
    old = [output_row(point=point, output=name) for point, name in rows]
    new = [output_row(point=point, output=name, sqnr_db=30.0 if name == "a" else 1.0) for point, name in rows]
    run, judgement = judged(old, new)
    found = {(CASE, "converted"): ("b",), (CASE, "lowered"): ("b",)}
    assert _rows_of(run, judgement, Selection(), "") == (found, [])


def test_a_failing_program_is_told_and_the_graph_before_it_looked_into_where_that_fails_too() -> None:
    old = [output_row(), output_row(point="lowered", **KERNELS)]
    stopped = output_row(point="lowered", **{**KERNELS, "int8_convs": 0})
    run, judgement = judged(old, [output_row(sqnr_db=1.0), stopped])
    rows, failed = _rows_of(run, judgement, Selection(), "")
    assert rows == {(CASE, "converted"): ("logits",)}
    assert failed == [f"{CASE} lowered: a program has no graph to look into (--point converted has)"]
    assert _rows_of(run, judgement, Selection(), "converted") == (rows, [])


def test_a_program_that_was_never_made_is_told_by_its_stage() -> None:
    old = [output_row(), output_row(point="lowered", **KERNELS)]
    run, judgement = judged(old, [output_row(), no_number("failed:lower", point="lowered")])
    rows, [line] = _rows_of(run, judgement, Selection(), "")
    assert rows == {}
    assert line.startswith(f"{CASE} lowered: failed:lower in run {run.name}: there is no graph to look into")
