"""Which cases are planned."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness import fixes
from harness.adapter import Size
from harness.errors import ExitCode, NothingMeasuredError, UsageError
from harness.flows import ARM_FLOWS
from harness.flows import names as flow_names
from harness.settings import BUILTIN_SUITES
from harness.suite import UNKNOWN_WEIGHTS, Selection, resolve_weights
from tests.planning import plan, planned_fix
from tests.rows import SIZES, case, settings_from


@pytest.fixture
def known_fixes(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """In place of the installed fixes those of the parameter."""
    monkeypatch.setattr(fixes, "installed", lambda: request.param)


# Suites


def through(patterns: Iterable[str]) -> set[tuple[str, str]]:
    """Every model with every flow that fits a pattern."""
    flows = [flow for flow in flow_names() if any(fnmatchcase(flow, pattern) for pattern in patterns)]
    return {(model, flow) for model in SIZES for flow in flows}


def test_the_gate_is_every_model_small_through_every_flow_with_its_first_weights() -> None:
    made = plan()
    assert (made.suite, made.filtered) == ("gate", False)
    assert {(item.model, item.flow) for item in made.cases} == through(["*"])
    assert {(item.size, item.weights) for item in made.cases} == {("small", "trained")}


def test_kernels_is_every_model_small_through_the_flows_that_are_compiled() -> None:
    made = plan(suite="kernels")
    compiled = {"x86-static", "x86-dynamic", *ARM_FLOWS, "cadence-portable"}
    assert {(item.model, item.flow) for item in made.cases} == through(compiled)
    assert {(item.size, item.weights) for item in made.cases} == {("small", "trained")}


def test_nightly_is_every_model_full_through_its_flows_and_all_of_kernels() -> None:
    made = plan(suite="nightly")
    full = [item for item in made.cases if item.size == "full"]
    assert {(item.model, item.flow) for item in full} == through(BUILTIN_SUITES["nightly"].flows)
    assert {item.weights for item in full} == {"seeded"}
    assert set(made.cases) - set(full) == set(plan(suite="kernels").cases)


def test_cases_are_planned_once_and_each_flows_together() -> None:
    cases = plan().cases
    assert len(cases) == len(set(cases))
    assert [(c.model, c.flow) for c in cases] == sorted((c.model, c.flow) for c in cases)


# Variants

ONE, TWO, THREE = (planned_fix(name, "x86-*") for name in ("a", "b", "c"))


def planned_variants(flow: str, **wanted: object) -> list[str]:
    return [item.variant for item in plan(models=("vit",), flows=(flow,), **wanted).cases]


@pytest.mark.parametrize(
    ("known_fixes", "expected"),
    [
        ((), ["released"]),
        ((ONE,), ["released", "+a"]),
        ((ONE, TWO), ["released", "+a", "+a+b", "+b"]),
        ((ONE, TWO, THREE), ["released", "+a", "+a+b", "+a+b+c", "+a+c", "+b", "+b+c", "+c"]),
        ((ONE, planned_fix("elsewhere", "arm-*")), ["released", "+a"]),
        ((planned_fix("probe-only", "x86-*", repaired=False),), ["released"]),
    ],
    indirect=["known_fixes"],
)
@pytest.mark.usefixtures("known_fixes")
def test_a_flow_is_planned_released_first_then_with_each_fix_all_and_all_but_one(expected: list[str]) -> None:
    assert planned_variants("x86-static") == expected


@pytest.mark.parametrize("known_fixes", [(ONE,)], indirect=True)
@pytest.mark.usefixtures("known_fixes")
def test_released_comes_first_in_each_flow_and_not_before_all_flows() -> None:
    made = plan(models=("vit",), flows=("x86-static", "x86-dynamic"))
    assert [(item.flow, item.variant) for item in made.cases] == [
        ("x86-dynamic", "released"), ("x86-dynamic", "+a"), ("x86-static", "released"), ("x86-static", "+a")
    ]  # fmt: skip


@pytest.mark.parametrize("known_fixes", [(ONE, TWO)], indirect=True)
@pytest.mark.usefixtures("known_fixes")
def test_a_variant_can_be_asked_for_by_name_and_a_wrong_one_lists_the_near_match() -> None:
    assert planned_variants("x86-static", variants=("+a+b",)) == ["+a+b"]
    assert planned_variants("x86-static", variants=("+b", "released")) == ["released", "+b"]
    with pytest.raises(UsageError, match=r"no variant named '\+b\+a'; did you mean .*\+a\+b"):
        plan(variants=("+b+a",))


# Other models and suites


def test_a_model_without_the_size_is_not_planned() -> None:
    sizes = {**SIZES, "tiny": {"small": Size(("trained",), ("y",))}}
    assert "tiny" in {item.model for item in plan(sizes).cases}
    assert {item.size for item in plan(sizes, suite="nightly").cases if item.model == "tiny"} == {"small"}  # kernels
    assert "tiny" not in {item.model for item in plan(sizes, size="full").cases}


def test_a_suite_of_the_workspace_says_which_models_flows_and_weights() -> None:
    mine = {"size": "full", "weights": "pretrained", "models": ["res*"], "flows": ["*-static*-per-channel"]}
    made = plan(settings=settings_from(suites={"mine": mine}), suite="mine")
    assert [(item.model, item.flow) for item in made.cases] == [
        ("resnet", "arm-static-s8s8f32-per-channel"),
        ("resnet", "arm-static-u8s8f32-per-channel"),
    ]
    assert {item.weights for item in made.cases} == {"pretrained"}


def test_an_adapter_that_cannot_be_imported_is_planned_so_that_its_rows_can_say_why() -> None:
    made = plan({**SIZES, "broken": None})
    broken, sound = ([item for item in made.cases if item.model == model] for model in ("broken", "resnet"))
    assert [(item.flow, item.variant) for item in broken] == [(item.flow, item.variant) for item in sound]
    assert {(item.size, item.weights) for item in broken} == {("small", UNKNOWN_WEIGHTS)}


# Filters


@pytest.mark.parametrize(
    "wanted",
    [
        {"models": ("vit",)},
        {"flows": ("x86-static",)},
        {"variants": ("released",)},
        {"size": "full"},
        {"weights": "seeded"},
        {"excluded": ("layer1.*",)},
        {"lowered": True},
        {"lowered": False},
    ],
)
def test_any_filter_makes_a_plan_a_selection(wanted: dict[str, object]) -> None:
    made = plan(**wanted)
    assert made.filtered
    assert made.cases


def test_filters_narrow_a_suite_together() -> None:
    made = plan(models=("vit", "resnet"), flows=("x86-static",))
    assert made.cases == (case(model="resnet"), case(model="vit"))


def test_a_size_alone_plans_every_flow_and_not_the_suite_of_that_size() -> None:
    made = plan(size="full", models=("vit",))
    assert made.suite == "ad-hoc"
    assert {item.flow for item in made.cases} == set(flow_names())
    assert {item.size for item in made.cases} == {"full"}


def test_weights_alone_plan_the_small_size_with_those_weights() -> None:
    assert {(item.size, item.weights) for item in plan(weights="seeded", models=("resnet",)).cases} == {
        ("small", "seeded")
    }


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ({"models": ("resnt",)}, "no model named 'resnt'; did you mean resnet? (known: resnet, vit)"),
        ({"flows": ("x86-statik",)}, "no flow named 'x86-statik'; did you mean x86-static"),
        ({"suite": "nigtly"}, "no suite named 'nigtly'; did you mean nightly? (known: gate, kernels, nightly)"),
        ({"size": "smal"}, "no size named 'smal'; did you mean small"),
        ({"variants": ("relesed",)}, "no variant named 'relesed'; did you mean released"),
    ],
)
def test_an_unknown_name_lists_the_near_match_and_then_all(wanted: dict[str, object], near: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**wanted)
    assert str(caught.value).startswith(near)


def test_a_name_near_to_nothing_lists_all() -> None:
    with pytest.raises(UsageError, match=r"^no model named 'qqq' \(known: resnet, vit\)$"):
        plan(models=("qqq",))


def test_a_selection_that_fits_no_case_says_what_was_asked_and_exits_5() -> None:
    mine = settings_from(suites={"mine": {"size": "full", "flows": ["x86-static"]}})
    with pytest.raises(NothingMeasuredError, match="suite mine fits -m vit -f x86-dynamic") as caught:
        plan(settings=mine, suite="mine", models=("vit",), flows=("x86-dynamic",))
    assert caught.value.exit_code == ExitCode.NOTHING_MEASURED == 5


def test_a_workspace_without_models_has_nothing_to_measure() -> None:
    with pytest.raises(NothingMeasuredError, match="it has no models"):
        plan({})


# Weights from a file


def test_weights_that_are_a_path_are_labelled_with_the_files_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes(b"")
    selection, path = resolve_weights(Selection(weights=str(file), models=("resnet",)), SIZES)
    assert (selection.weights, path) == ("file:mine.safetensors", str(file))
    assert {item.weights for item in plan(weights=selection.weights, models=("resnet",)).cases} == {
        "file:mine.safetensors"
    }


def test_weights_that_are_a_kind_stay_a_kind_even_beside_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seeded").touch()
    asked = Selection(weights="seeded")
    assert resolve_weights(asked, SIZES) == (asked, None)
    assert resolve_weights(Selection(), SIZES) == (Selection(), None)


def test_weights_that_are_neither_list_the_kinds(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nor a kind of weights \(pretrained, seeded, trained\)"):
        resolve_weights(Selection(weights=str(tmp_path / "none.pth")), SIZES)
