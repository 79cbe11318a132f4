"""The point `lowered` of a flow whose lowering is a program: its rows, its counts, how far it is from the graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from harness.fixes import Fix
from harness.records import OutputRow, Point, Stage
from tests.lab import fix, gain_of, lab, lab_case, lowering, program, two_heads

COUNTS = {"int8_convs": 2, "int8_linears": 1, "float_convs": 0, "float_linears": 1, "quantize_nodes": 3, "nodes": 20}
UNCOUNTED = ("dequantize_nodes", "slice_nodes", "delegated_nodes", "undelegated_nodes", "program_bytes")


def at(result, point: str) -> dict[str, OutputRow]:
    return {row.output: row for row in result.outputs if row.point == point}


def lowered(flow, *fixes) -> dict[str, OutputRow]:
    return at(lab().measure(flow, fixes), Point.LOWERED)


# Rows and counts


def test_a_program_has_a_row_for_each_output_with_its_counts_and_no_others():
    result = lab().measure(program(counts=COUNTS))
    rows = at(result, Point.LOWERED)
    assert list(rows) == ["head", "score"]
    for row in rows.values():
        assert {name: getattr(row, name) for name in COUNTS} == COUNTS
        assert {getattr(row, name) for name in UNCOUNTED} == {None}
        assert row.is_program
    converted = at(result, Point.CONVERTED)["head"]
    assert {getattr(converted, name) for name in ("int8_convs", "int8_linears", "float_convs", "kernel_db")} == {None}
    assert not converted.is_program


def test_measuring_a_program_adds_its_outputs_and_changes_nothing_of_what_comes_before():
    """It has no nodes to read quantizers from."""
    flow = program(counts=COUNTS)
    whole, short = lab().measure(flow), lab().measure(flow.unlowered())
    assert [row for row in whole.outputs if row.point != Point.LOWERED] == short.outputs
    assert whole.quantizers == short.quantizers


# How far it is from the converted graph


def scaled(gain: float):
    """A program whose outputs are those of the converted graph, times `gain`."""
    return program(lambda graph, x: tuple(gain * output for output in graph(x)))


@pytest.mark.parametrize(("gain", "kernel_db"), [(1.0, 160.0), (1.1, 20.0), (0.99, 40.0), (2.0, 0.0), (-1.0, -6.0206)])
def test_a_gain_leaves_its_distance_from_one_as_noise(gain: float, kernel_db: float):
    """10 log10(y^2 / (y - gain y)^2) = -20 log10 |1 - gain|, whatever the outputs are; 160 dB where they are equal."""
    for row in lowered(scaled(gain)).values():
        assert row.kernel_db == pytest.approx(kernel_db, abs=1e-3)


def test_a_constant_added_to_the_converted_outputs_is_all_of_the_noise():
    """10 log10(mean(y^2) / 0.01) with y the converted graph's outputs, all three batches of them."""
    seen: list[torch.Tensor] = []

    def shifted(graph, x):
        head, score = graph(x)
        seen.append(head.double())
        return head + 0.1, score

    rows = lowered(program(shifted))
    power = float(torch.cat(seen).square().mean())
    assert rows["head"].kernel_db == pytest.approx(10 * math.log10(power / 0.01), abs=1e-4)
    assert rows["score"].kernel_db == 160.0


def test_against_fp32_a_program_that_does_what_the_graph_does_is_as_good():
    result = lab().measure(program())
    both = [at(result, point) for point in (Point.CONVERTED, Point.LOWERED)]
    assert both[0]["head"].sqnr_db == both[1]["head"].sqnr_db
    assert both[0]["head"].sqnr_db < 60 < both[1]["head"].kernel_db


def test_a_lowered_graph_is_held_against_the_converted_one_too():
    """Half of the first output: 20 log10(1 / 0.5) = 6.02 dB."""
    rows = lowered(lowering(), fix("halved", Stage.LOWER, gain_of(0.5)))
    assert rows["head"].kernel_db == pytest.approx(6.0206, abs=1e-3)
    assert rows["score"].kernel_db == 160.0


@contextmanager
def coarser() -> Iterator[None]:
    from torchao.quantization.pt2e.observer import HistogramObserver

    original = HistogramObserver.calculate_qparams
    HistogramObserver.calculate_qparams = lambda self: (4 * original(self)[0], original(self)[1])  # type: ignore[method-assign]
    try:
        yield
    finally:
        HistogramObserver.calculate_qparams = original  # type: ignore[method-assign]


def test_each_variant_is_held_against_its_own_converted_graph():
    bench = lab()
    released = bench.measure(program())
    repaired = bench.measure(program(), (fix("coarser", Stage.CONVERT, coarser),))
    assert at(repaired, Point.CONVERTED)["head"].sqnr_db < at(released, Point.CONVERTED)["head"].sqnr_db - 3
    assert [at(result, Point.LOWERED)["head"].kernel_db for result in (released, repaired)] == [160.0, 160.0]


def test_what_a_program_loses_is_numerics_beyond_what_lowering_may_lose():
    assert {row.cause for row in lowered(scaled(0.5)).values()} == {"numerics"}
    assert {row.cause for row in lowered(program()).values()} == {""}


# What has no such number


def test_an_output_of_another_shape_is_a_mismatch_and_has_no_distance():
    rows = lowered(program(lambda graph, x: (graph(x)[0][:, :3], graph(x)[1])))
    assert [(row.status, row.kernel_db) for row in rows.values()] == [("mismatch", None), ("measured", 160.0)]
    assert "(8, 3) instead of torch.float32 (8, 4)" in rows["head"].error


def test_a_program_with_fewer_outputs_is_a_mismatch_and_has_no_distance():
    rows = lowered(program(lambda graph, x: graph(x)[:1]))
    assert {(row.status, row.error, row.kernel_db) for row in rows.values()} == {
        ("mismatch", "1 outputs instead of 2", None)
    }


def test_an_output_that_is_not_finite_has_no_distance():
    rows = lowered(program(lambda graph, x: (graph(x)[0] / 0.0, graph(x)[1])))
    assert [(row.status, row.kernel_db) for row in rows.values()] == [("nonfinite_actual", None), ("measured", 160.0)]


def test_without_the_outputs_of_an_earlier_pass_there_is_no_distance():
    bench, case = lab(), lab_case()
    bench.subject.measure(two_heads(), case, Point.CONVERTED, keep=("kept",))
    narrow = bench.subject.measure(lambda x: two_heads()(x)[:1], case, Point.CONVERTED, keep=("narrow",))[0]
    assert {row.status for row in narrow} == {"mismatch"}
    found = {
        key: {row.kernel_db for row in bench.subject.measure(two_heads(), case, Point.LOWERED, against=(key,))[0]}
        for key in ("kept", "narrow", "absent")
    }
    assert found == {"kept": {160.0}, "narrow": {None}, "absent": {None}}


def test_where_the_graph_could_not_be_converted_nothing_is_lowered():
    def explode(*_: object) -> None:
        raise ValueError("no")

    rows = lowered(replace(program(counts=COUNTS), convert=explode, edge=lambda *_: pytest.fail("nothing to lower")))
    assert {(row.status, row.kernel_db, row.int8_convs) for row in rows.values()} == {("failed:convert", None, None)}


# What fails


def refuse(*_: object):
    raise RuntimeError("Input tensor should have uint8\nat qconv.cpp")


@pytest.mark.parametrize(
    ("flow", "status"),
    [
        (program(refuse, COUNTS), "failed:measure"),
        (replace(program(), lower=refuse), "failed:lower"),
        (replace(program(), edge=refuse), "failed:edge"),
    ],
    ids=["run", "lower", "edge"],
)
def test_a_program_that_cannot_be_run_or_made_fails_the_lowered_point_alone(flow, status: str):
    bench = lab()
    result = bench.measure(flow)
    rows = at(result, Point.LOWERED)
    assert {row.status for row in rows.values()} == {status}
    assert {row.error for row in rows.values()} == {"RuntimeError: Input tensor should have uint8"}
    assert "at qconv.cpp" in result.log
    assert {(row.kernel_db, row.int8_convs, row.sqnr_db) for row in rows.values()} == {(None, None, None)}
    assert {row.status for row in at(result, Point.CONVERTED).values()} == {"measured"}
    assert {row.status for row in at(bench.measure(program()), Point.CONVERTED).values()} == {"measured"}


# What fixes did


def states(result) -> dict[str, set[str]]:
    """By point, where anything is said."""
    said = {row.point: {other.fix_state for other in at(result, row.point).values()} for row in result.outputs}
    return {point: found for point, found in said.items() if found != {""}}


_COMPILED_AS: list[str] = []


@contextmanager
def compiled_otherwise() -> Iterator[None]:
    _COMPILED_AS.append("int8")
    try:
        yield
    finally:
        _COMPILED_AS.pop()


LATE = fix("late", Stage.LOWER, compiled_otherwise)


def test_a_fix_of_the_lowering_tells_of_itself_at_the_lowered_point():
    """The same numbers from other code are not nothing: kernels are what such a fix is for."""
    other = program(digest=lambda: _COMPILED_AS[-1] if _COMPILED_AS else "float")
    assert states(lab().measure(other, (LATE,))) == {"lowered": {"needed"}}
    assert states(lab().measure(program(), (LATE,))) == {"lowered": {"inert"}}


def test_fixes_before_the_lowering_tell_of_themselves_at_the_converted_point_lowered_or_not():
    for flow in (program(), program().unlowered(), lowering()):
        bench = lab()
        assert states(bench.measure(flow, (fix("coarser", Stage.CONVERT, coarser),))) == {"converted": {"needed"}}
        assert states(bench.measure(flow, (fix("idle", Stage.CONVERT),))) == {"converted": {"inert"}}


def test_of_fixes_on_both_sides_of_the_lowering_the_last_point_tells():
    both = (fix("coarser", Stage.CONVERT, coarser), LATE)
    assert states(lab().measure(program(), both)) == {"lowered": {"needed"}}


# What fixes leave alone


def times_lowered(*fixes) -> int:
    """How often one converted graph is lowered for `released` and then a variant."""
    bench = lab()
    for variant in ((), fixes):
        bench.measure(program(), variant)
    # A fix's probe is reported as its stage, too.
    return [stage for _, stage in bench.stages].count(Stage.LOWER) - sum(item.stage is Stage.LOWER for item in fixes)


def over(name: str, stage: Stage, *repair) -> Fix:
    """A fix that touches one stage and no later one."""
    return replace(fix(name, stage, *repair), last=stage)


def test_a_fix_that_is_over_and_changed_nothing_is_not_lowered_again():
    assert times_lowered(over("idle", Stage.CONVERT)) == 1
    assert times_lowered(over("idle", Stage.PREPARE)) == 1


def test_a_variant_is_lowered_for_itself_if_it_changed_the_graph_or_may_touch_the_lowering():
    assert times_lowered(over("coarser", Stage.CONVERT, coarser)) == 2
    assert times_lowered(fix("idle", Stage.CONVERT)) == 2
    assert times_lowered(over("idle", Stage.CONVERT), LATE) == 2


def test_rows_that_were_not_lowered_again_are_those_of_a_process_that_lowered_nothing_before():
    idle = over("idle", Stage.CONVERT)
    bench = lab()
    bench.measure(program())
    assert bench.measure(program(), (idle,)).outputs == lab().measure(program(), (idle,)).outputs
