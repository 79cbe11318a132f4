"""The life of a platform's baselines: written, read, absent, damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import baseline as baselines
from harness.baseline import Baseline
from harness.errors import ExitCode, NoBaselineError, TableError
from tests.rows import accepted, case, journal_entry, output_row, quantizer_row

RESNET, VIT = output_row(), output_row(model="vit")
WEIGHT = quantizer_row()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "baselines" / "linux-x86_64"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


# Life cycle


def test_what_is_written_is_read_back(folder: Path) -> None:
    baseline = accepted(RESNET, VIT, WEIGHT, accepted=[journal_entry()])
    baselines.write(folder, baseline)
    assert baselines.read(folder) == baseline


def test_each_model_has_a_table_of_outputs_and_one_of_quantizers(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET, VIT, WEIGHT))
    assert sorted(contents(folder)) == [
        "environment.json", "resnet.outputs.csv", "resnet.quantizers.csv", "vit.outputs.csv"
    ]  # fmt: skip


def test_writing_the_same_rows_again_changes_no_byte(folder: Path) -> None:
    other = output_row(output="a")
    baselines.write(folder, accepted(RESNET, other, WEIGHT))
    before = contents(folder)
    baselines.write(folder, accepted(other, RESNET, WEIGHT))
    assert contents(folder) == before


def test_a_model_name_may_hold_a_dot(folder: Path) -> None:
    baseline = accepted(output_row(model="resnet.v2"))
    baselines.write(folder, baseline)
    assert baselines.read(folder) == baseline


def test_a_table_left_without_rows_is_removed(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET, VIT, WEIGHT))
    baselines.write(folder, accepted(RESNET))
    assert sorted(contents(folder)) == ["environment.json", "resnet.outputs.csv"]


def test_no_temporary_file_is_left_behind(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET, WEIGHT))
    assert not [name for name in contents(folder) if name.startswith(".")]


def test_the_stack_of_a_case_is_the_one_of_its_latest_accept() -> None:
    old, new = journal_entry(stack={"torchao": "0.17"}), journal_entry(stack={"torchao": "0.18"})
    other = journal_entry(subjects=["vit/small/trained"], stack={"torchao": "0.19"})
    baseline = Baseline(accepted=[old, new, other])
    assert baseline.stack_of(case()) == {"torchao": "0.18"}
    assert baseline.stack_of(case(flow="x86-dynamic")) == {"torchao": "0.18"}
    assert baseline.stack_of(case(size="full")) == {}


def test_the_sidecar_is_json_with_the_schema_version(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET, accepted=[journal_entry(because='a "reason" ü')]))
    sidecar = json.loads((folder / "environment.json").read_text())
    assert sidecar["schema"] == 4
    assert sidecar["accepted"][0]["because"] == 'a "reason" ü'


# Nothing there


def test_no_baselines_for_this_platform_names_the_platforms_that_have_some(folder: Path) -> None:
    for platform in ("linux-aarch64", "darwin-aarch64"):
        baselines.write(folder.parent / platform, accepted(RESNET))
    (folder.parent / "windows-x86_64").mkdir()
    (folder.parent / "README.md").write_text("what this is")
    with pytest.raises(NoBaselineError, match="for: darwin-aarch64, linux-aarch64") as caught:
        baselines.read(folder)
    assert caught.value.exit_code == ExitCode.INCOMPLETE == 4
    assert "windows" not in str(caught.value)
    assert "README" not in str(caught.value)
    assert "sqnr accept --because" in str(caught.value)


def test_no_baselines_at_all_says_none(folder: Path) -> None:
    with pytest.raises(NoBaselineError, match="for: none"):
        baselines.read(folder)


# Damage


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "environment.json"),
        ("[]", "environment.json"),
        ("{", "environment.json"),
        ("null", "environment.json"),
        ('{"schema": 4}', "accepted"),
        ('{"accepted": []}', "schema"),
        ('{"schema": 4, "accepted": 3}', "environment.json"),
        ('{"schema": 4, "accepted": [{}]}', "subjects"),
        ('{"schema": 4, "accepted": [{"subjects": "resnet", "stack": {}}]}', "subjects must be a list"),
        ('{"schema": 1, "accepted": []}', "schema 1, this version reads 4; remove the folder, then measure again"),
        ('{"schema": 5, "accepted": []}', "schema 5, this version reads 4"),
        ("<<<<<<< HEAD\n{}", "environment.json"),
    ],
)
def test_a_damaged_older_or_newer_sidecar_is_an_error_naming_it(folder: Path, text: str, said: str) -> None:
    baselines.write(folder, accepted(RESNET))
    (folder / "environment.json").write_text(text)
    with pytest.raises(TableError, match=said) as caught:
        baselines.read(folder)
    assert str(caught.value).startswith(f"{folder / 'environment.json'}: ")
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_missing_sidecar_is_an_error_naming_it(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET))
    (folder / "environment.json").unlink()
    with pytest.raises(TableError, match=r"environment\.json: cannot be read"):
        baselines.read(folder)


def test_a_nan_in_a_baseline_names_file_line_and_column(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET, output_row(output="a")))
    file = folder / "resnet.outputs.csv"
    header, first, second = file.read_text().splitlines()
    file.write_text("\n".join([header, first, second.replace("30.0", "nan")]) + "\n")
    with pytest.raises(TableError) as caught:
        baselines.read(folder)
    assert str(caught.value).startswith(f"{file}:3: column sqnr_db: 'nan'")


@pytest.mark.parametrize("kind", ["outputs", "quantizers"])
def test_a_row_in_another_models_file_is_refused(folder: Path, kind: str) -> None:
    baselines.write(folder, accepted(RESNET, WEIGHT))
    (folder / f"resnet.{kind}.csv").rename(folder / f"vit.{kind}.csv")
    with pytest.raises(TableError, match=rf"vit\.{kind}\.csv: .*column model.* belongs into resnet"):
        baselines.read(folder)


@pytest.mark.parametrize("name", ["resnet.csv", "resnet.output.csv", "notes.csv"])
def test_a_csv_that_is_no_baseline_is_refused_and_not_overlooked(folder: Path, name: str) -> None:
    baselines.write(folder, accepted(RESNET))
    (folder / name).write_text("a,b\n")
    with pytest.raises(TableError, match="not a baseline"):
        baselines.read(folder)
