"""A run's folder: one each, read back as it was written, and clear errors for what is not one."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from harness import store
from harness.errors import ExitCode, TableError, UsageError
from harness.store import COMPLETE, RUNNING, create_run, find_run, load_run
from harness.suite import Plan
from tests.rows import CASE, case, lost_edge, output_row, quantizer_row, repaired_row, run_of

PLAN = Plan("gate", False, (CASE,), (CASE, case(model="vit")))
POINTS = ("converted", "lowered")


class Noon(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return datetime.datetime(2026, 1, 31, 12, tzinfo=tz)


@pytest.fixture
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "datetime", Noon)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return tmp_path / "reports"


# New runs


@pytest.mark.usefixtures("at_noon")
def test_a_run_is_named_by_its_start_and_suite(reports: Path) -> None:
    run = create_run(reports, PLAN, 0, {})
    assert run.folder == reports / "20260131-120000-gate"
    assert (run.started, run.status) == ("2026-01-31T12:00:00+00:00", RUNNING)
    assert run.parts.is_dir()
    assert run.logs.is_dir()


@pytest.mark.usefixtures("at_noon")
def test_two_runs_in_the_same_second_get_two_folders(reports: Path) -> None:
    first, second, third = (create_run(reports, PLAN, 0, {}) for _ in range(3))
    assert len({run.folder for run in (first, second, third)}) == 3
    assert [load_run(run.folder).name for run in (first, second, third)] == [first.name, second.name, third.name]
    assert find_run(reports, None).name == third.name


def test_a_run_that_has_only_begun_can_be_read(reports: Path) -> None:
    run = create_run(reports, PLAN, 0, {"stack": {"torch": "2.9"}}, "/weights/mine.pt")
    assert load_run(run.folder) == run


@pytest.mark.parametrize("where", ["reports", "reports/deeper"])
def test_a_file_in_place_of_the_reports_folder_is_one_clean_error(tmp_path: Path, where: str) -> None:
    (tmp_path / "reports").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written") as caught:
        create_run(tmp_path / where, PLAN, 0, {})
    assert str(caught.value).startswith(f"{tmp_path / where}: ")
    assert caught.value.exit_code == ExitCode.USAGE


# Round trip


def test_a_stored_run_is_read_back_as_it_was(reports: Path) -> None:
    rows = [repaired_row(cause="clipping"), output_row(), quantizer_row(), lost_edge(quantizer="lost")]
    run = run_of(reports / "a", *rows, filtered=True, seconds=1.5)
    run.weight_hashes = {"resnet/small/trained": "ab12"}
    run.save()
    assert load_run(run.folder) == run


@pytest.mark.parametrize("status", ["interrupted", "running", COMPLETE])
def test_how_a_run_ended_is_kept(reports: Path, status: str) -> None:
    run_of(reports / "a", output_row(), status=status).save()
    assert load_run(reports / "a").status == status


def test_the_scope_of_a_stored_run_is_that_of_its_plan(reports: Path) -> None:
    run = create_run(reports, PLAN, 0, {})
    in_scope = load_run(run.folder).plan.scope()
    assert [in_scope(output_row(model=model)) for model in ("resnet", "vit", "removed")] == [True, False, True]


def test_how_far_a_run_measured_its_cases_is_kept_with_its_scope(reports: Path) -> None:
    other = case(flow="x86-dynamic")
    never = frozenset({case(model="vit")})
    plan = Plan("gate", False, (CASE, other), (CASE, other, *never), frozenset({CASE}), never_lowered=never)
    kept = load_run(create_run(reports, plan, 0, {}).folder).plan
    assert kept == plan
    rows = [output_row(flow=flow, point=point) for flow in ("x86-static", "x86-dynamic") for point in POINTS]
    assert [kept.scope()(row) for row in rows] == [True, False, True, True]


# Finding a run


def stored(reports: Path, *names: str) -> None:
    for name in names:
        run_of(reports / name, output_row()).save()


def test_the_latest_run_is_the_default_and_any_other_is_found_by_name_or_path(reports: Path) -> None:
    stored(reports, "20260130-120000-gate", "20260131-120000-gate", "20260129-120000-nightly")
    assert find_run(reports, None).name == "20260131-120000-gate"
    assert find_run(reports, "20260129-120000-nightly").name == "20260129-120000-nightly"
    assert find_run(Path("elsewhere"), str(reports / "20260130-120000-gate")).name == "20260130-120000-gate"


def test_an_unknown_run_lists_the_latest_five(reports: Path) -> None:
    stored(reports, *(f"2026010{day}-120000-gate" for day in range(1, 8)))
    with pytest.raises(UsageError) as caught:
        find_run(reports, "20250101")
    listed = ", ".join(f"2026010{day}-120000-gate" for day in (7, 6, 5, 4, 3))
    assert f"no run '20250101' in {reports} (latest: {listed})" == str(caught.value)


@pytest.mark.parametrize("name", [None, "20250101"])
def test_without_any_run_the_next_command_is_given(reports: Path, name: str | None) -> None:
    with pytest.raises(UsageError, match="start with `sqnr run`"):
        find_run(reports, name)


def test_what_is_no_run_is_not_the_latest(reports: Path) -> None:
    stored(reports, "20260131-120000-gate")
    (reports / "99999999-notes").mkdir()
    (reports / "zzz.txt").write_text("")
    assert find_run(reports, None).name == "20260131-120000-gate"


# Damage


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"schema": 4}', "<<<<<<< HEAD"])
def test_a_damaged_run_json_is_an_error_naming_it(reports: Path, text: str) -> None:
    stored(reports, "a")
    (reports / "a" / "run.json").write_text(text)
    with pytest.raises(TableError) as caught:
        load_run(reports / "a")
    assert str(caught.value).startswith(f"{reports / 'a' / 'run.json'}: cannot be read: ")


def edited(reports: Path, **fields: object) -> Path:
    """The folder of a stored run with other fields in its run.json."""
    stored(reports, "a")
    file = reports / "a" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    return file.parent


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("plan", [["resnet"]], "plan.0"),
        ("plan", [3], "plan.0"),
        ("plan", None, "plan"),
        ("plan", "abc", "plan"),
        ("plan", [["resnet", "small", {}, "x86-static", "released"]], "plan.0.2"),
        ("planned_by_any_suite", [["a"] * 6], "planned_by_any_suite.0"),
        ("unlowered", [["resnet"]], "unlowered.0"),
        ("unlowered", None, "unlowered"),
        ("never_lowered", [3], "never_lowered.0"),
        ("schema", "4", "schema"),
        ("started", 5, "started"),
        ("status", "half", "status"),
        ("suite", None, "suite"),
        ("filtered", "no", "filtered"),
        ("seed", "x", "seed"),
        ("seconds", None, "seconds"),
        ("seconds", "x", "seconds"),
        ("seconds", float("nan"), "seconds"),
        ("seconds", -1.0, "seconds"),
        ("weights_source", 1, "weights_source"),
        ("weight_hashes", [], "weight_hashes"),
        ("weight_hashes", {"resnet/small/trained": 3}, "weight_hashes.resnet/small/trained"),
        ("environment", [], "environment"),
        ("environment", {"stack": ["torch"]}, "environment.stack"),
        ("environment", {"stack": {"torch": 2}}, "environment.stack.torch"),
        ("environment", {"pins": None}, "environment.pins"),
        ("environment", {"cpu": {}}, "environment.cpu"),
        ("environment", {"platform": "../elsewhere"}, "environment.platform"),
    ],
)
def test_a_field_that_cannot_be_is_an_error_naming_file_and_field(
    reports: Path, key: str, value: object, place: str
) -> None:
    folder = edited(reports, **{key: value})
    with pytest.raises(TableError) as caught:
        load_run(folder)
    assert str(caught.value).startswith(f"{folder / 'run.json'}: cannot be read: {place}: ")
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("key", ["started", "seconds", "environment", "weight_hashes", "plan"])
def test_a_field_that_is_missing_is_an_error_naming_file_and_field(reports: Path, key: str) -> None:
    stored(reports, "a")
    file = reports / "a" / "run.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != key}))
    with pytest.raises(TableError, match=f"cannot be read: {key}: field required$"):
        load_run(file.parent)


def test_an_error_is_one_short_line_and_says_how_many_more_there_are(reports: Path) -> None:
    folder = edited(reports, weight_hashes={"two\nlines": 3}, plan=["x" * 10_000], seed=None)
    with pytest.raises(TableError, match=r"; and 2 more$") as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(folder)) + 200


def test_what_else_an_environment_says_is_kept(reports: Path) -> None:
    """Older runs recorded less, newer ones may record more."""
    environment = {"cpu": "a cpu", "memory": {"GB": 8}}
    assert load_run(edited(reports, environment=environment)).environment == environment


def test_a_name_that_utf8_cannot_say_is_read_back_as_it_was(reports: Path) -> None:
    odd = case(weights="file:\udcff.pt")
    create_run(reports, Plan("gate", True, (odd,), ()), 0, {})
    assert find_run(reports, None).plan.cases == (odd,)


@pytest.mark.parametrize("schema", [1, 3, 5])
def test_a_run_of_an_older_or_newer_schema_is_not_guessed_at(reports: Path, schema: int) -> None:
    with pytest.raises(TableError, match=f"schema {schema}, this version reads 4; measure again"):
        load_run(edited(reports, schema=schema))


@pytest.mark.parametrize("name", ["outputs.csv", "quantizers.csv"])
def test_a_missing_table_is_an_error_naming_it(reports: Path, name: str) -> None:
    stored(reports, "a")
    (reports / "a" / name).unlink()
    with pytest.raises(TableError, match=f"{name}: cannot be read"):
        load_run(reports / "a")
