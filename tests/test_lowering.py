"""The point `lowered`: what it shares with `converted`, and what a fix of the lowering pays for."""

from __future__ import annotations

from dataclasses import replace

from harness.records import Point, Stage
from tests.lab import fix, gain_of, lab, lowering

HALVED = fix("halved", Stage.LOWER, gain_of(0.5))


def _levels(result, point: str) -> dict[str, float]:
    return {row.output: row.sqnr_db for row in result.outputs if row.point == point}


def test_a_flow_that_lowers_has_a_fourth_point_with_its_own_quantizer_rows():
    result = lab().measure(lowering())
    assert [row.point for row in result.outputs[::2]] == ["float", "prepared", "converted", "lowered"]
    assert _levels(result, Point.LOWERED) == _levels(result, Point.CONVERTED)
    names = {point: {row.quantizer for row in result.quantizers if row.point == point} for point in Point}
    assert names[Point.LOWERED] == names[Point.CONVERTED]


def test_a_repair_of_a_kernel_is_at_work_while_the_lowered_graph_runs_and_only_there():
    """Half the output leaves half the signal as noise: 10 log10(1 / 0.25) = 6.02 dB, and rounding beside it."""
    bench = lab()
    repaired = bench.measure(lowering(), (HALVED,))
    assert abs(_levels(repaired, Point.LOWERED)["head"] - 6.02) < 0.1
    assert _levels(repaired, Point.LOWERED)["score"] == _levels(repaired, Point.CONVERTED)["score"]
    released = bench.measure(lowering())
    assert _levels(released, Point.LOWERED) == _levels(released, Point.CONVERTED)


def test_variants_of_a_lowering_share_everything_before_it():
    bench = lab()
    bench.measure(lowering())
    bench.measure(lowering(), (HALVED,))
    stages = [stage for _, stage in bench.stages]
    once = (Stage.EXPORT, Stage.PREPARE, Stage.CALIBRATE, Stage.CONVERT, Stage.EDGE)
    assert [stages.count(stage) for stage in once] == [1] * len(once)
    # Two lowered graphs, and the stage named once more while the fix is probed; five points.
    assert (stages.count(Stage.LOWER), stages.count(Stage.MEASURE)) == (2 + 1, 5)


def test_a_loss_in_lowering_that_no_quantizer_explains_is_numerics():
    rows = {row.output: row for row in lab().measure(lowering(), (HALVED,)).outputs if row.point == Point.LOWERED}
    assert (rows["head"].cause, rows["score"].cause) == ("numerics", "")


def test_an_edge_program_that_cannot_be_made_fails_the_lowered_point_alone():
    def explode(_graph: object, _inputs: object) -> None:
        raise ValueError("no edge")

    result = lab().measure(replace(lowering(), edge=explode))
    assert {row.point: row.status for row in result.outputs} == {
        "float": "exact",
        "prepared": "measured",
        "converted": "measured",
        "lowered": "failed:edge",
    }


def test_counts_of_nodes_are_of_the_graph_that_ran():
    result = lab().measure(lowering())
    converted, lowered = (
        next(row for row in result.outputs if row.point == point) for point in (Point.CONVERTED, Point.LOWERED)
    )
    assert converted.quantize_nodes == lowered.quantize_nodes > 0
    assert lowered.nodes == converted.nodes + 1
    assert next(row for row in result.outputs if row.point == Point.FLOAT).nodes is None
