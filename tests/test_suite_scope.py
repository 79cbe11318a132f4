"""Which baseline rows a plan answers for: what an absent row means, and what one suite leaves to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import fixes
from harness.accept import Request, propose
from harness.baseline import Baseline
from harness.compare import exit_code
from harness.errors import ExitCode
from harness.records import Case, Row
from harness.store import Run
from harness.suite import Plan
from harness.verdicts import Verdict
from tests.judging import judge_all
from tests.planning import plan, planned_fix
from tests.rows import SIZES, accepted, output_row, quantizer_row, run_of, settings_from

REMOVED = output_row(model="removed")


def test_a_whole_suite_answers_for_its_cases_and_for_a_removed_models_rows_of_its_size() -> None:
    in_scope = plan().scope()
    assert in_scope(output_row())
    assert in_scope(quantizer_row())
    assert in_scope(REMOVED)
    assert in_scope(output_row(flow="removed-flow"))
    assert not in_scope(output_row(model="removed", size="full", weights="seeded"))


def test_a_filtered_run_answers_for_its_own_cases_only() -> None:
    in_scope = plan(models=("resnet",)).scope()
    assert in_scope(output_row())
    assert not in_scope(output_row(model="vit"))
    assert not in_scope(REMOVED)


def test_one_suite_does_not_answer_for_what_another_plans() -> None:
    mine = {"size": "small", "models": ["vit"]}
    in_scope = plan(settings=settings_from(suites={"mine": mine}), suite="mine").scope()
    assert in_scope(output_row(model="vit"))
    assert not in_scope(output_row(model="resnet"))  # the gate's
    assert in_scope(REMOVED)


def test_the_rows_of_an_adapter_that_broke_are_missed() -> None:
    assert plan({**SIZES, "resnet": None}).scope()(output_row(model="resnet"))


def test_the_rows_of_a_fix_that_was_taken_away_are_orphans_of_a_whole_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixes, "installed", lambda: (planned_fix("a", "x86-*"),))
    assert plan().scope()(output_row(variant="+gone"))
    assert plan().scope()(output_row(variant="+a"))
    assert not plan(variants=("+a",)).scope()(output_row(variant="+gone"))


# How far a case is measured

LOWERED = {"point": "lowered"}


@pytest.mark.parametrize("row", [output_row, quantizer_row])
def test_the_gate_does_not_answer_for_what_was_compiled_and_kernels_does(row) -> None:
    for suite, answers in (("gate", False), ("kernels", True), ("nightly", True)):
        in_scope = plan(suite=suite).scope()
        assert (in_scope(row()), in_scope(row(**LOWERED))) == (True, answers), suite


def test_the_gate_answers_for_a_lowering_that_it_measures() -> None:
    assert plan().scope()(output_row(flow="vulkan-8w", **LOWERED))
    assert not plan(lowered=False, flows=("vulkan-8w",)).scope()(output_row(flow="vulkan-8w", **LOWERED))
    assert plan(lowered=True, flows=("x86-static",)).scope()(output_row(**LOWERED))


def test_a_variant_that_only_kernels_plans_is_no_orphan_of_the_gates() -> None:
    row = output_row(flow="arm-static-s8s8f32-per-tensor", variant="+arm-per-tensor-lowering")
    assert not plan().scope()(row)
    assert plan(suite="kernels").scope()(row)


def test_a_removed_models_lowered_rows_are_orphans_of_every_suite_of_its_size() -> None:
    lowered = output_row(model="removed", **LOWERED)
    assert plan().scope()(lowered)
    assert plan(suite="kernels").scope()(lowered)


def test_what_no_suite_lowers_any_more_is_an_orphan_at_that_point_alone() -> None:
    """As after `kernels` was narrowed; while some suite lowers it, the others leave it to that one."""
    kept = settings_from(suites={"kernels": {"size": "small", "flows": ["x86-static"], "lowered": ["*"]}})
    for suite in ("gate", "kernels"):
        in_scope = plan(settings=kept, suite=suite).scope()
        assert in_scope(output_row(flow="x86-dynamic", **LOWERED))
        assert in_scope(quantizer_row(flow="nncf-mul", **LOWERED))
        assert in_scope(output_row(**LOWERED)) == (suite == "kernels")
        assert in_scope(output_row(flow="x86-dynamic")) == (suite == "gate")
    assert not plan(settings=kept, flows=("x86-dynamic",)).scope()(output_row(flow="x86-dynamic", **LOWERED))


# Two suites that measure the same cases, one of them further: accepted and judged in turn


def measured(made: Plan, sqnr_db: float = 30.0) -> Run:
    """A run that measured all of a plan."""
    rows: list[Row] = []
    for case in made.cases:
        for point in ("converted", "lowered"):
            if point == "converted" or case not in made.unlowered:
                rows.append(output_row(**_key(case), point=point, sqnr_db=sqnr_db))
                rows.append(quantizer_row(**_key(case), point=point))
    run = run_of(Path(f"reports/{made.suite}"), *rows)
    run.plan = made
    return run


def _key(case: Case) -> dict[str, str]:
    return {name: getattr(case, name) for name in Case.__slots__}


def judged(run: Run, baseline: Baseline) -> list[Verdict]:
    old = [*baseline.outputs.values(), *baseline.quantizers.values()]
    return judge_all(old, [*run.outputs, *run.quantizers], in_scope=run.plan.scope(), suite=run.plan.suite)


def accept(run: Run, present: Baseline) -> Baseline:
    return propose(run, Request("measured"), present, None).baseline


def test_gate_and_kernels_are_accepted_in_turn_and_both_hold_afterwards() -> None:
    gate, kernels = measured(plan()), measured(plan(suite="kernels"))
    after_gate = accept(gate, accepted())
    assert exit_code(judged(gate, after_gate)) == ExitCode.OK

    # What the gate accepted, kernels neither misses nor takes away; its own rows are new.
    shared, alone = set(gate.plan.cases) & set(kernels.plan.cases), set(kernels.plan.cases) - set(gate.plan.cases)
    assert shared
    assert alone  # variants of what the gate does not lower
    verdicts = judged(kernels, after_gate)
    assert {verdict.outcome.value for verdict in verdicts} == {"ok", "new"}
    assert {verdict.case for verdict in verdicts if verdict.point == "converted" and verdict.outcome == "ok"} == shared
    after_both = accept(kernels, after_gate)
    assert after_both.outputs.items() > after_gate.outputs.items()
    assert after_both.quantizers.items() > after_gate.quantizers.items()

    for run in (gate, kernels, gate, kernels):
        verdicts = judged(run, after_both)
        assert exit_code(verdicts) == ExitCode.OK
        assert len(verdicts) == len(run.outputs) + len(run.quantizers)
        assert propose(run, Request("again"), after_both, None).changes == ()


def test_accepting_one_suite_again_replaces_its_own_rows_alone() -> None:
    gate, kernels = measured(plan()), measured(plan(suite="kernels"))
    both = accept(kernels, accept(gate, accepted()))
    better = accept(measured(plan(), sqnr_db=40.0), both)
    own = {row.key for row in gate.outputs}
    assert {key for key, row in better.outputs.items() if row.sqnr_db == 40.0} == own
    assert {key for key, row in better.outputs.items() if row.sqnr_db == 30.0} == both.outputs.keys() - own


def test_a_lowered_row_that_kernels_lost_is_missing_there_and_not_asked_of_the_gate() -> None:
    gate, kernels = measured(plan()), measured(plan(suite="kernels"))
    both = accept(kernels, accept(gate, accepted()))
    lost = output_row(**LOWERED)
    kernels.outputs.remove(lost)
    [missing] = [verdict for verdict in judged(kernels, both) if verdict.outcome != "ok"]
    assert (missing.outcome, missing.case, missing.point) == ("missing", lost.case, "lowered")
    assert exit_code(judged(gate, both)) == ExitCode.OK
    assert lost.key not in accept(kernels, both).outputs
