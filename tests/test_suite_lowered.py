"""Which cases a suite measures after lowering, which variants that takes, and what `--lower` changes."""

from __future__ import annotations

from fnmatch import fnmatchcase

import click
import pytest

from harness import fixes
from harness.arguments import selecting, selection
from harness.errors import NothingMeasuredError, UsageError
from harness.fixes import Fix
from harness.flows import ARM_FLOWS
from harness.flows import names as flow_names
from harness.records import Stage
from harness.settings import PASSES
from harness.suite import Plan
from tests.planning import plan, planned_fix
from tests.rows import case, settings_from

EARLY, OTHER_EARLY = (planned_fix(name, "x86-*", "vulkan-*") for name in ("early", "early-too"))
LATE = planned_fix("late", "x86-*", "vulkan-*", stage=Stage.LOWER)
EDGE = planned_fix("edge", "x86-*", "vulkan-*", stage=Stage.EDGE)


@pytest.fixture
def known_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the installed fixes one that ends with `convert`, and one each of the stages after it."""
    known_as(monkeypatch, EARLY, EDGE, LATE)


def known_as(monkeypatch: pytest.MonkeyPatch, *known: Fix) -> None:
    monkeypatch.setattr(fixes, "installed", lambda: known)


def lowered_flows(made: Plan, size: str = "small") -> set[str]:
    return {item.flow for item in made.cases if item.size == size and item not in made.unlowered}


def fitting(*patterns: str) -> set[str]:
    return {flow for flow in flow_names() if any(fnmatchcase(flow, pattern) for pattern in patterns)}


def variants(made: Plan, flow: str) -> list[str]:
    return [item.variant for item in made.cases if (item.model, item.flow) == ("vit", flow)]


# What the suites lower

INDUCTOR = {"x86-static", "x86-dynamic", *ARM_FLOWS}


def test_the_gate_lowers_what_calls_no_compiler() -> None:
    assert lowered_flows(plan()) == {"cadence-hoist", "vulkan-4w", "vulkan-8w", "xnnpack"}
    assert not lowered_flows(plan()) & INDUCTOR


def test_kernels_lowers_all_that_it_plans() -> None:
    made = plan(suite="kernels")
    assert made.unlowered == frozenset()
    assert lowered_flows(made) == {*INDUCTOR, "cadence-portable"}


def test_nightly_compiles_x86_and_runs_xnnpack_at_full_size_and_holds_kernels_as_it_is() -> None:
    made = plan(suite="nightly")
    assert lowered_flows(made, "full") == {"cadence-hoist", "vulkan-4w", "xnnpack", "x86-static"}
    assert lowered_flows(made, "small") == {*INDUCTOR, "cadence-portable"}


def test_a_size_alone_lowers_what_the_gate_does() -> None:
    assert lowered_flows(plan(size="small")) == lowered_flows(plan())


def test_a_suite_of_the_workspace_lowers_what_calls_no_compiler_unless_it_says_otherwise() -> None:
    suites = {
        "plain": {"size": "small"},
        "compiled": {"size": "small", "flows": ["x86-*", "vulkan-8w"], "lowered": ["x86-st*", "vulkan-8w"]},
        "none": {"size": "small", "lowered": []},
    }
    settings = settings_from(suites=suites)
    assert lowered_flows(plan(settings=settings, suite="plain")) == fitting(*PASSES)
    assert lowered_flows(plan(settings=settings, suite="compiled")) == {"x86-static", "vulkan-8w"}
    assert lowered_flows(plan(settings=settings, suite="none")) == set()


def test_lowered_chooses_among_a_suites_flows_and_adds_none() -> None:
    settings = settings_from(suites={"mine": {"size": "small", "flows": ["x86-static"], "lowered": ["*"]}})
    assert {item.flow for item in plan(settings=settings, suite="mine").cases} == {"x86-static"}


def test_an_unknown_flow_in_lowered_lists_the_near_match() -> None:
    settings = settings_from(suites={"mine": {"size": "small", "lowered": ["x86-statik"]}})
    with pytest.raises(UsageError, match=r"^no flow named 'x86-statik'; did you mean x86-static"):
        plan(settings=settings, suite="mine")


# Variants


@pytest.mark.usefixtures("known_fixes")
def test_a_fix_of_the_lowering_is_a_variant_only_where_that_is_measured() -> None:
    every = ["released", "+early", "+early+edge", "+early+edge+late", "+early+late", "+edge", "+edge+late", "+late"]
    gate, kernels = plan(), plan(suite="kernels")
    assert variants(gate, "x86-static") == ["released", "+early"]
    assert variants(gate, "vulkan-8w") == every
    assert variants(kernels, "x86-static") == every
    assert variants(plan(lowered=False), "vulkan-8w") == ["released", "+early"]


def test_the_lowering_fixes_of_the_arm_flows_are_variants_of_kernels_and_not_of_the_gate() -> None:
    flow, fix = "arm-static-s8s8f32-per-tensor", "+arm-per-tensor-lowering"
    assert fix not in variants(plan(), flow)
    assert fix in variants(plan(suite="kernels"), flow)
    assert "+ao-s8-conv-lowering" in variants(plan(suite="kernels"), "arm-static-s8s8f32-per-channel")
    assert "+ao-s8-conv-lowering" not in variants(plan(suite="nightly"), "arm-static-s8s8f32-per-tensor")


def test_a_variant_that_is_planned_only_without_lowering_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but one of four fixes are no two of them; the two that come before lowering are all that the gate has."""
    known_as(monkeypatch, EARLY, OTHER_EARLY, EDGE, LATE)
    both = "+early+early-too"
    assert both in variants(plan(), "x86-static")
    assert both not in variants(plan(suite="kernels"), "x86-static")
    assert {item.variant for item in plan(variants=(both,), flows=("x86-static",)).cases} == {both}


@pytest.mark.usefixtures("known_fixes")
def test_a_variant_that_takes_lowering_says_so_where_nothing_is_lowered() -> None:
    with pytest.raises(NothingMeasuredError, match=r"-f x86-static --variant \+late; with --lower there is one$"):
        plan(flows=("x86-static",), variants=("+late",))
    with pytest.raises(NothingMeasuredError, match=r"fits --variant \+late --no-lower$"):
        plan(variants=("+late",), lowered=False)
    assert plan(flows=("x86-static",), models=("vit",), variants=("+late",), lowered=True).cases == (
        case(model="vit", variant="+late"),
    )


# Included suites


def test_included_cases_are_lowered_as_their_own_suite_says() -> None:
    suites = {
        "compiled": {"size": "small", "flows": ["x86-static"], "lowered": ["*"]},
        "mine": {"size": "full", "flows": ["x86-*"], "lowered": [], "includes": ["compiled"]},
    }
    made = plan(settings=settings_from(suites=suites), suite="mine")
    assert {(item.size, item.flow, item in made.unlowered) for item in made.cases} == {
        ("full", "x86-static", True),
        ("full", "x86-dynamic", True),
        ("small", "x86-static", False),
    }


def test_a_case_of_two_suites_is_planned_once_and_lowered_if_either_lowers_it() -> None:
    compiled = {"size": "small", "flows": ["x86-static"], "lowered": ["*"]}
    plain = {"size": "small", "flows": ["x86-*"]}
    for first, second in ((compiled, plain), (plain, compiled)):
        settings = settings_from(suites={"other": second, "mine": {**first, "includes": ["other"]}})
        made = plan(settings=settings, suite="mine", models=("vit",))
        assert [(item.flow, item in made.unlowered) for item in made.cases] == [
            ("x86-dynamic", True),
            ("x86-static", False),
        ]


def test_filters_narrow_included_cases_too() -> None:
    made = plan(suite="nightly", size="small", models=("vit",), flows=("x86-static",), variants=("released",))
    assert made.cases == (case(model="vit"),)
    assert made.unlowered == frozenset()


# --lower and --no-lower


@pytest.mark.parametrize("suite", ["gate", "kernels", "nightly"])
def test_lowering_can_be_asked_of_every_flow_or_none_whatever_the_suite_says(suite: str) -> None:
    everything, nothing, as_planned = (plan(suite=suite, lowered=lowered) for lowered in (True, False, None))
    assert everything.unlowered == frozenset()
    assert nothing.unlowered == frozenset(nothing.cases)
    assert {(item.model, item.flow) for item in everything.cases} == {(i.model, i.flow) for i in as_planned.cases}
    assert [item.filtered for item in (everything, nothing, as_planned)] == [True, True, False]


def asked(*arguments: str) -> object:
    """What a verb's selection says of lowering, from its arguments."""

    @click.command()
    @selecting
    def verb(**options: object) -> None:
        found.append(selection(options).lowered)

    found: list[object] = []
    verb.main(list(arguments), standalone_mode=False)
    return found[0]


def test_the_command_line_asks_for_it_or_against_it_or_leaves_it_to_the_suite() -> None:
    assert [asked("--lower"), asked("--no-lower"), asked()] == [True, False, None]
