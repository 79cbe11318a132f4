"""`[tool.sqnr]`: what does not hold does not load, and the error is one line with file and key."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest

from harness.errors import ConfigError, ExitCode, UsageError
from harness.records import Row
from harness.settings import Settings, parse_settings
from harness.workspace import find_workspace
from tests.judging import TODAY
from tests.rows import output_row, quantizer_row

FILE = Path("some/pyproject.toml")


def load(text: str) -> Settings:
    """Settings from the lines below `[tool.sqnr]`."""
    return parse_settings(tomllib.loads(text), FILE)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.exit_code == ExitCode.USAGE
    message = str(caught.value)
    assert message.startswith(f"{FILE}: tool.sqnr.")
    assert "\n" not in message
    return message


# What holds


def test_an_empty_table_gives_the_defaults_of_the_design() -> None:
    settings = load("")
    allowed = settings.tolerance
    assert (settings.models, settings.baselines, settings.reports, settings.seed) == (
        "models", "baselines", "reports", 0
    )  # fmt: skip
    assert (allowed.sqnr_drop_db, allowed.noise_multiple, allowed.sqnr_min_drop_db) == (0.5, 3.0, 1.5)
    assert (allowed.control_db, allowed.floor_db, allowed.ignore_above_db) == (100.0, 10.0, 80.0)
    assert (allowed.ref_rms_rel, allowed.bound_rel, allowed.clip_fraction) == (1e-4, 1e-3, 1e-3)


def test_gate_and_kernels_plan_small_and_nightly_full_with_half_the_allowance() -> None:
    suites = load("").all_suites()
    assert sorted(suites) == ["gate", "kernels", "nightly"]
    assert (suites["gate"].size, suites["kernels"].size, suites["nightly"].size) == ("small", "small", "full")
    assert {name: dict(suite.tolerance) for name, suite in suites.items()} == {
        "gate": {}, "kernels": {}, "nightly": {"sqnr_drop_db": 0.25}
    }  # fmt: skip
    assert {name: suite.includes for name, suite in suites.items()} == {
        "gate": (), "kernels": (), "nightly": ("kernels",)
    }  # fmt: skip


def test_zero_is_a_tolerance_and_a_seed() -> None:
    settings = load("seed = 0\ntolerance = {sqnr_drop_db = 0}")
    assert (settings.tolerance.sqnr_drop_db, settings.seed) == (0.0, 0)


def test_a_suite_of_the_workspace_takes_the_place_of_a_built_in_one_and_others_stay() -> None:
    settings = load('[suites.gate]\nsize = "full"\nweights = "pretrained"\n[suites.mine]\nsize = "small"')
    assert sorted(settings.all_suites()) == ["gate", "kernels", "mine", "nightly"]
    assert (settings.suite("gate").size, settings.suite("gate").weights) == ("full", "pretrained")


def test_an_unknown_suite_lists_the_near_match_and_then_all() -> None:
    known = r"\(known: gate, kernels, nightly\)"
    with pytest.raises(UsageError, match=rf"no suite named 'nightyl'; did you mean nightly\? {known}"):
        load("").suite("nightyl")


def test_the_workspaces_tolerance_the_suites_and_an_override_lie_over_each_other() -> None:
    settings = load(
        """
        tolerance = {sqnr_drop_db = 1.0, floor_db = 20.0}
        [suites.mine]
        size = "small"
        tolerance = {sqnr_drop_db = 2.0, clip_fraction = 0.5}
        [[override]]
        model = "resnet"
        reason = "jittery"
        tolerance = {sqnr_drop_db = 3.0}
        """
    )
    resnet, vit = (settings.tolerance_for(output_row(model=model), "mine", TODAY) for model in ("resnet", "vit"))
    assert (resnet.sqnr_drop_db, resnet.clip_fraction, resnet.floor_db, resnet.bound_rel) == (3.0, 0.5, 20.0, 1e-3)
    assert vit.sqnr_drop_db == 2.0
    assert settings.tolerance_for(output_row(model="vit"), "gate", TODAY).sqnr_drop_db == 1.0


@pytest.mark.parametrize(
    "patterns",
    [
        'model = "vit"', 'variant = "+*"', 'point = "lowered"', 'output = "a"', 'quantizer = "a"', 'size = "*"',
        'output = "a", quantizer = "a"', 'model = "vit", until = 2026-01-01', 'flow = "x86-*", point = "conv*"',
    ],
)  # fmt: skip
def test_tolerances_worked_out_once_are_those_of_each_row(patterns: str) -> None:
    settings = load(
        f"""
        override = [
            {{reason = "r", tolerance = {{sqnr_drop_db = 3.0}}, {patterns}}},
            {{reason = "r", tolerance = {{sqnr_drop_db = 4.0, bound_rel = 0.5}}, model = "resnet", point = "lowered"}},
        ]
        """
    )
    rows: list[Row] = []
    for model, variant, point, name in itertools.product(
        ("resnet", "vit"), ("released", "+fix"), ("converted", "lowered"), "ab"
    ):
        key = {"model": model, "variant": variant, "point": point}
        rows += [output_row(**key, output=name), quantizer_row(**key, quantizer=name)]
    tolerances = settings.tolerances("nightly", TODAY)
    for row in rows + rows:  # what the first round works out is what the second is given
        assert tolerances(row) == settings.tolerance_for(row, "nightly", TODAY)


def test_the_first_waiver_that_fits_gives_the_reason() -> None:
    settings = load('waive = [{model = "vit", reason = "a"}, {reason = "b"}, {reason = "c"}]')
    assert [settings.waiver_for(output_row(model=model), TODAY).reason for model in ("vit", "resnet")] == ["a", "b"]


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ('point = "lowered"', {"lowered logits", "lowered a"}),
        ('point = "*ed"', {"converted logits", "lowered logits", "converted a", "lowered a"}),
        ('point = "lowered", output = "*g*"', {"lowered logits"}),
        ('point = "lowered", quantizer = "a"', {"lowered a"}),
        ('output = "logits"', {"converted logits", "lowered logits"}),
        ('quantizer = "?"', {"converted a", "lowered a"}),
        ('output = "logits", quantizer = "a"', set()),
    ],
)
def test_a_point_covers_rows_of_both_kinds_and_an_output_or_quantizer_its_own(pattern: str, covered: set[str]) -> None:
    settings = load(f'waive = [{{reason = "r", {pattern}}}]')
    rows: list[Row] = [output_row(point=point) for point in ("converted", "lowered")]
    rows += [quantizer_row(point=point, quantizer="a") for point in ("converted", "lowered")]
    found = {f"{row.point} {row.key[-1]}" for row in rows if settings.waiver_for(row, TODAY)}
    assert found == covered


def test_what_has_expired_is_told_with_its_date_and_reason() -> None:
    settings = load(
        """
        waive = [{reason = "old", until = 2026-01-30}, {reason = "last day", until = 2026-01-31}, {reason = "open"}]
        override = [{reason = "older", until = 2025-12-31, tolerance = {floor_db = 1}}]
        """
    )
    assert settings.expired(TODAY) == ["override expired on 2025-12-31: older", "waiver expired on 2026-01-30: old"]


# What does not hold


@pytest.mark.parametrize("amount", ["-0.1", "nan", "+nan", "inf", "-inf", '"much"', "[]"])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tolerance = {{sqnr_drop_db = {}}}", "tolerance.sqnr_drop_db"),
        ('[suites.mine]\nsize = "small"\ntolerance = {{bound_rel = {}}}', "suites.mine.tolerance.bound_rel"),
        ('override = [{{reason = "r", tolerance = {{floor_db = {}}}}}]', "override.0.tolerance.floor_db"),
    ],
)
def test_a_tolerance_that_is_negative_or_no_finite_number_names_its_key(text: str, key: str, amount: str) -> None:
    message = refusal(text.format(amount))
    assert f"tool.sqnr.{key}: " in message
    assert "(got " in message


@pytest.mark.parametrize("reason", ["", 'reason = ""', 'reason = "  "'])
@pytest.mark.parametrize(("kind", "rest"), [("override", "tolerance = {floor_db = 1}"), ("waive", 'model = "vit"')])
def test_a_tolerance_or_waiver_without_a_reason_does_not_load(kind: str, rest: str, reason: str) -> None:
    assert f"tool.sqnr.{kind}.1.reason: " in refusal(f'[[{kind}]]\nreason = "r"\n{rest}\n[[{kind}]]\n{rest}\n{reason}')


@pytest.mark.parametrize("tolerance", ["", "tolerance = {}"])
def test_an_override_that_overrides_nothing_does_not_load(tolerance: str) -> None:
    assert "tool.sqnr.override.0.tolerance: " in refusal(f'[[override]]\nreason = "r"\n{tolerance}')


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tolerances = {}", "tolerances"),
        ("tolerance = {sqnr_drop = 1}", "tolerance.sqnr_drop"),
        ('[[waive]]\nreason = "r"\nmodell = "vit"', "waive.0.modell"),
        ('[[override]]\nreason = "r"\ntolerance = {floor_db = 1}\nexpires = 2026-01-31', "override.0.expires"),
        ('[suites.mine]\nsize = "small"\nmodel = "vit"', "suites.mine.model"),
    ],
)
def test_an_unknown_key_is_named(text: str, key: str) -> None:
    assert f"tool.sqnr.{key}: " in refusal(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('override = [{reason = "r", tolerance = {sqnr_drop = 1}}]', "tool.sqnr.override.0.tolerance"),
        ('[suites.mine]\nsize = "small"\ntolerance = {sqnr_drop = 1}', "tool.sqnr.suites.mine.tolerance"),
    ],
)
def test_an_unknown_tolerance_lists_the_near_match(text: str, where: str) -> None:
    message = refusal(text)
    assert f"{where}: no tolerance named 'sqnr_drop'; did you mean sqnr_drop_db" in message


@pytest.mark.parametrize("until", ['"soon"', '"2026-02-30"', "true", '""'])
def test_a_bad_date_is_named(until: str) -> None:
    assert "tool.sqnr.waive.0.until: " in refusal(f'[[waive]]\nreason = "r"\nuntil = {until}')


def test_a_suite_without_a_size_does_not_load() -> None:
    assert "tool.sqnr.suites.mine.size: " in refusal('[suites.mine]\nmodels = ["vit"]')


def test_a_suite_that_includes_an_unknown_one_lists_the_near_match() -> None:
    assert refusal('[suites.mine]\nsize = "small"\nincludes = ["kernls"]') == (
        f"{FILE}: tool.sqnr.suites.mine.includes: no suite named 'kernls'; did you mean kernels? "
        "(known: gate, kernels, mine, nightly)"
    )


@pytest.mark.parametrize(
    ("text", "name", "included"),
    [
        ('[suites.mine]\nsize = "small"\nincludes = ["nightly"]', "mine", "nightly"),
        ('[suites.mine]\nsize = "small"\nincludes = ["mine"]', "mine", "mine"),
        # A built-in suite includes one that the workspace put in the place of another built-in one.
        ('[suites.kernels]\nsize = "small"\nincludes = ["gate"]', "nightly", "kernels"),
    ],
)
def test_suites_are_included_one_deep(text: str, name: str, included: str) -> None:
    assert refusal(text) == f"{FILE}: tool.sqnr.suites.{name}.includes: {included} includes suites itself"


@pytest.mark.parametrize("key", ["lowered", "includes"])
@pytest.mark.parametrize("value", ['"x86-*"', "[1]", "true"])
def test_what_a_suite_lowers_and_includes_are_lists_of_names(key: str, value: str) -> None:
    message = refusal(f'[suites.mine]\nsize = "small"\n{key} = {value}')
    assert message.startswith(f"{FILE}: tool.sqnr.suites.mine.{key}")
    assert "(got " in message


def test_several_mistakes_are_counted() -> None:
    assert refusal("seed = []\ntolerance = {floor_db = -1, bound_rel = nan}").endswith("; and 2 more")


# Where the settings are found


def workspace_error(folder: Path, text: str) -> str:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        find_workspace(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_nearest_pyproject_with_a_table_is_the_workspace(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.sqnr]\nreports = "out"')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100")
    found = find_workspace(inner)
    assert (found.models, found.reports, found.builtin) == (tmp_path / "models", tmp_path / "out", False)
    (inner / "pyproject.toml").write_text("[tool.sqnr]")
    assert find_workspace(inner).models == inner / "models"


@pytest.mark.parametrize("text", ["[tool.sqnr\n", "[tool.sqnr]\nseed = 0\nseed = 1", "<<<<<<< HEAD\n"])
def test_a_pyproject_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    assert workspace_error(tmp_path, text).startswith(f"{tmp_path / 'pyproject.toml'}: cannot be read: ")


@pytest.mark.parametrize("text", ["[tool]\nsqnr = 3", "[[tool.sqnr]]\nseed = 0"])
def test_a_tool_sqnr_that_is_no_table_is_named(tmp_path: Path, text: str) -> None:
    message = workspace_error(tmp_path, text)
    assert message.startswith(f"{tmp_path / 'pyproject.toml'}: ")
    assert "tool.sqnr" in message
