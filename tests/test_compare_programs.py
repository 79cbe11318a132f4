"""The judgement on what a compiler or runtime made: which kernels run is exact, how they round is shown."""

from __future__ import annotations

from typing import Any

import pytest

from harness.records import OutputRow
from harness.verdicts import Finding, Verdict
from tests.judging import CHANGED, FAILED, IMPROVED, NEW, OK, REGRESSED, fields_of, judge
from tests.rows import no_number, output_row

COUNTS = ("int8_convs", "int8_linears", "float_convs", "float_linears", "delegated_nodes", "undelegated_nodes")


def program(**changes: Any) -> OutputRow:
    """A lowered output of a compiled program: 52 int8 convolutions and a linear, 42 dB from the converted graph."""
    kernels = {"int8_convs": 52, "int8_linears": 1, "float_convs": 0, "float_linears": 0}
    return output_row(**{"point": "lowered", **kernels, "kernel_db": 42.0, **changes})


def judged(old: dict[str, Any], new: dict[str, Any]) -> Verdict:
    return judge(program(**old), program(**new))


@pytest.mark.parametrize("count", COUNTS)
def test_one_kernel_or_delegated_node_more_or_less_is_a_change(count: str) -> None:
    for old, new in ((7, 8), (8, 7), (0, 1), (7, None), (None, 0)):
        verdict = judged({count: old}, {count: new})
        assert verdict.outcome is CHANGED
        assert verdict.findings == (Finding(count, old, new),)
    assert judged({count: 7}, {count: 7}).outcome is OK


def test_a_lowering_that_stops_is_a_change_though_every_decibel_is_better() -> None:
    """Float kernels behind dequantize ops compute the converted graph exactly, and are as slow as fp32."""
    stopped = {"int8_convs": 0, "int8_linears": 0, "float_convs": 52, "float_linears": 1}
    verdict = judged({}, {**stopped, "kernel_db": 160.0, "sqnr_db": 31.0})
    assert verdict.outcome is CHANGED
    assert fields_of(verdict) == list(stopped)


def test_another_kernel_outranks_what_was_lost_with_it() -> None:
    assert judged({}, {"int8_convs": 51, "sqnr_db": 1.0}).outcome is CHANGED


@pytest.mark.parametrize(("old", "new"), [(42.0, 20.0), (42.0, -3.0), (20.0, 42.0), (42.0, None), (None, 42.0)])
def test_how_far_kernels_are_from_the_converted_graph_is_shown_and_not_judged(
    old: float | None, new: float | None
) -> None:
    assert judged({"kernel_db": old}, {"kernel_db": new}).outcome is OK


def test_the_size_of_a_program_is_shown_and_not_judged() -> None:
    assert judged({"program_bytes": 1000}, {"program_bytes": 2000}).outcome is OK


@pytest.mark.parametrize(("now", "outcome"), [(29.5, OK), (29.25, REGRESSED), (31.0, IMPROVED)])
def test_a_program_is_held_to_the_sqnr_against_fp32_as_every_output_is(now: float, outcome: Any) -> None:
    assert judged({"sqnr_db": 30.0}, {"sqnr_db": now}).outcome is outcome


def test_a_program_that_could_not_be_made_or_run_fails_unless_that_was_accepted() -> None:
    for status in ("failed:lower", "failed:measure"):
        broken = no_number(status, point="lowered")
        assert judge(program(), broken).outcome is FAILED
        assert judge(broken, broken).outcome is OK
        assert judge(broken, program()).outcome is IMPROVED
    assert judge(None, program()).outcome is NEW
