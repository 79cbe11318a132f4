"""The judgement on variants and on lowered graphs: the floor of repaired outputs, what a fix did, lost quantizers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.records import FixState, OutputRow, Row
from harness.verdicts import Finding, Outcome, Verdict
from tests.judging import CHANGED, FAILED, IMPROVED, MISSING, NEW, OK, REGRESSED, TODAY, fields_of, judge, judge_all
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row, settings_from


def of(verdicts: list[Verdict], variant: str) -> Verdict:
    """The one verdict on a variant."""
    (verdict,) = [verdict for verdict in verdicts if verdict.case.variant == variant]
    return verdict


# The floor: what is repaired must be better than noise


def at(level: float, **changes: Any) -> OutputRow:
    """A repaired output whose samples are all at `level` dB."""
    return repaired_row(**{"sqnr_db": level, "sqnr_min_db": level, **changes})


@pytest.mark.parametrize("point", ["converted", "lowered"])
def test_a_repaired_output_must_reach_10_db_whatever_the_baseline_says(point: str) -> None:
    low, enough = at(9.9, point=point), at(10.0, point=point)
    for verdict in (judge(low, low), judge(None, low), judge(enough, low)):
        assert verdict.outcome is REGRESSED
        assert (verdict.findings[0].new, verdict.findings[0].limit) == (9.9, 10.0)
    assert judge(enough, enough).outcome is OK
    assert judge(None, enough).outcome is NEW


def test_what_is_missing_to_the_floor_is_lost_where_there_is_no_baseline() -> None:
    assert judge(None, at(4.0)).loss_db == 6.0


def test_a_repaired_output_without_a_signal_to_noise_ratio_does_not_reach_the_floor() -> None:
    silent = no_number("zero_signal", variant="+fix", fix_state="needed", max_abs_err=0.25)
    assert judge(silent, silent).outcome is REGRESSED


def test_released_code_may_be_as_bad_as_it_was_accepted() -> None:
    low = at(-4.3, variant="released", fix_state="")
    assert judge(low, low).outcome is OK


@pytest.mark.parametrize("state", [state for state in FixState if state is not FixState.NEEDED])
def test_a_fix_that_changes_nothing_owes_nothing(state: str) -> None:
    low = at(-4.3, fix_state=state)
    assert judge(low, low).outcome is OK


def test_one_of_two_fixes_may_leave_what_the_other_mends() -> None:
    """Only the variant with both is held to the floor: alone, neither makes the graph right."""
    rows = [at(-5.0, variant="+a"), at(-4.0, variant="+b"), at(9.0, variant="+a+b")]
    outcomes = {verdict.case.variant: verdict.outcome for verdict in judge_all(rows, rows)}
    assert outcomes == {"+a": OK, "+b": OK, "+a+b": REGRESSED}


def test_of_three_fixes_only_the_variant_with_all_is_held_to_the_floor() -> None:
    rows = [at(0.0, variant=variant) for variant in ("+a", "+b", "+c", "+a+b", "+a+c", "+b+c", "+a+b+c")]
    low = [verdict.case.variant for verdict in judge_all(rows, rows) if verdict.outcome is REGRESSED]
    assert low == ["+a+b+c"]


def test_a_run_of_one_variant_knows_from_the_baseline_that_it_is_not_the_last_word() -> None:
    alone, both = at(-5.0, variant="+a"), at(30.0, variant="+a+b")
    assert of(judge_all([alone, both], [alone]), "+a").outcome is OK
    assert of(judge_all([alone], [alone, both]), "+a").outcome is OK


@pytest.mark.parametrize("accepted_only", [True, False])
def test_a_fix_of_the_lowering_is_no_excuse_for_the_converted_graph(accepted_only: bool) -> None:
    """`+a` is all that mends the converted graph; with the fix of the lowering too, only the lowered one owes more."""
    early, late = at(9.0, variant="+a"), at(30.0, variant="+a+lower", point="lowered")
    rows = [early, replace(late, point="converted", fix_state=""), late, at(-5.0, variant="+lower", point="lowered")]
    verdicts = judge_all(rows, [early] if accepted_only else rows, in_scope=lambda row: row.case == early.case)
    assert [(verdict.case.variant, verdict.point) for verdict in verdicts if verdict.outcome is REGRESSED] == [
        ("+a", "converted")
    ]


def test_where_only_the_lowering_is_mended_the_converted_graph_is_as_released() -> None:
    rows = [at(-5.0, variant="+lower", fix_state=""), at(9.0, variant="+lower", point="lowered")]
    assert {verdict.point: verdict.outcome for verdict in judge_all(rows, rows)} == {
        "converted": OK,
        "lowered": REGRESSED,
    }


def test_each_flow_has_its_own_fullest_variant() -> None:
    rows = [at(0.0, variant="+a"), at(30.0, variant="+a+b", flow="x86-dynamic")]
    assert of(judge_all(rows, rows), "+a").outcome is REGRESSED


def test_the_floor_is_a_tolerance_and_can_be_lowered_with_a_reason() -> None:
    low = at(8.0)
    item = {"variant": "+fix", "reason": "two bits", "tolerance": {"floor_db": 7.5}}
    assert judge(low, low, settings=settings_from(override=[item])).outcome is OK


# What a fix did to the case


@pytest.mark.parametrize(("old", "new"), [("needed", "inert"), ("needed", "upstreamed"), ("inert", "needed")])
def test_another_state_of_a_fix_is_a_change_even_if_no_number_moved(old: str, new: str) -> None:
    verdict = judge(repaired_row(fix_state=old), repaired_row(fix_state=new))
    assert verdict.outcome is CHANGED
    assert verdict.findings == (Finding("fix_state", old, new),)


def test_a_variant_that_cannot_be_applied_any_more_fails_with_its_reason() -> None:
    moved = no_number("failed:lower", variant="+fix", fix_state="unknown", error="SeamMovedError: no such pass")
    verdict = judge(repaired_row(), moved)
    assert (verdict.outcome, verdict.error) == (FAILED, "SeamMovedError: no such pass")
    assert judge(moved, repaired_row()).outcome is IMPROVED


# Edges that were annotated and have no quantizer

LOST = lost_edge(variant="+fix")


@pytest.mark.parametrize("role", ["weight", "activation"])
def test_an_edge_that_a_variant_leaves_without_a_quantizer_fails_even_if_the_baseline_says_the_same(role: str) -> None:
    lost = replace(LOST, role=role)
    for old in (lost, None, quantizer_row(variant="+fix", role=role)):
        verdict = judge(old, lost)
        assert verdict.outcome is REGRESSED
        assert verdict.findings == (Finding("status", old.status if old else None, "unquantized"),)


def test_an_edge_that_released_code_leaves_without_a_quantizer_may_be_accepted() -> None:
    released = lost_edge()
    assert judge(released, released).outcome is OK
    assert judge(None, released).outcome is NEW


def test_released_code_that_loses_or_gains_the_quantizer_of_an_edge_is_a_change() -> None:
    for pair in ((quantizer_row(), lost_edge()), (lost_edge(), quantizer_row())):
        verdict = judge(*pair)
        assert verdict.outcome is CHANGED
        assert "status" in fields_of(verdict)


def test_a_weight_that_no_variant_was_asked_to_quantize_is_its_flows_choice() -> None:
    weight = lost_edge(variant="+fix", role="weight", cause="")
    assert judge(weight, weight).outcome is OK


def test_a_repair_that_gives_an_edge_its_quantizer_back_is_judged_by_its_own_rows() -> None:
    rows = [lost_edge(), quantizer_row(variant="+fix")]
    assert {verdict.outcome for verdict in judge_all(rows, rows)} == {OK}


# Two graphs of one case: converted and lowered

CONVERTED, LOWERED = output_row(), output_row(point="lowered")


def quantizers(point: str, *names: str) -> list[Row]:
    return [quantizer_row(point=point, quantizer=name) for name in names]


def outcomes(old: list[Row], new: list[Row]) -> dict[str, Outcome]:
    return {verdict.label: verdict.outcome for verdict in judge_all(old, new)}


def test_a_quantizer_of_the_same_name_is_judged_at_each_point_by_itself() -> None:
    converted, lowered = quantizer_row(hi=1.0), quantizer_row(point="lowered", hi=9.0)
    found = outcomes([converted, lowered], [converted, replace(lowered, hi=5.0)])
    assert found == {"converted conv1:conv2d:0:input": OK, "lowered conv1:conv2d:0:input": CHANGED}


def test_a_quantizer_that_only_the_lowered_graph_lost_is_a_change_there() -> None:
    converted = quantizers("converted", "a")
    old = [CONVERTED, LOWERED, *converted, *quantizers("lowered", "a")]
    found = outcomes(old, [CONVERTED, LOWERED, *converted])
    assert (found["converted a"], found["lowered a"]) == (OK, CHANGED)


def test_where_lowering_failed_its_quantizers_are_missing_and_the_converted_ones_still_compared() -> None:
    old = [CONVERTED, LOWERED, *quantizers("converted", "a", "b"), *quantizers("lowered", "a")]
    new = [CONVERTED, no_number("failed:lower", point="lowered"), *quantizers("converted", "a")]
    found = outcomes(old, new)
    assert (found["converted b"], found["lowered a"], found["lowered logits"]) == (CHANGED, MISSING, FAILED)


def test_quantizers_of_a_point_that_the_baseline_does_not_know_are_new() -> None:
    old = [CONVERTED, *quantizers("converted", "a")]
    found = outcomes(old, [*old, LOWERED, *quantizers("lowered", "a")])
    assert (found["lowered a"], found["lowered logits"], found["converted a"]) == (NEW, NEW, OK)


def test_a_waiver_of_one_point_leaves_the_other_as_it_is() -> None:
    waived = settings_from(waive=[{"point": "lowered", "reason": "issue 7", "until": TODAY}])
    old = [*quantizers("converted", "a"), *quantizers("lowered", "a")]
    verdicts = judge_all(old, [], settings=waived)
    assert {verdict.label: verdict.waived for verdict in verdicts} == {"converted a": "", "lowered a": "issue 7"}
