"""Where runs are found for the history, and a reason for each that is passed over."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import history_sources
from harness.errors import UsageError
from harness.history_sources import collect
from harness.store import INTERRUPTED, RUNNING
from tests.stored_runs import edit, names, only_note, save

# Folders


def test_runs_are_found_at_any_depth_oldest_first(tmp_path: Path) -> None:
    save(tmp_path / "a" / "deep" / "late", started="2026-03-01T00:00:00+00:00")
    save(tmp_path / "early", started="2026-01-01T00:00:00+00:00")
    save(tmp_path / "b" / "middle", started="2026-02-01T00:00:00+00:00")
    assert names(tmp_path) == ["early", "middle", "late"]


def test_a_runs_own_folder_works_also_as_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "a-run")
    assert names(folder) == ["a-run"]
    monkeypatch.chdir(folder)
    assert names(Path()) == ["a-run"]


def test_a_run_has_its_output_rows_and_its_start_in_utc(tmp_path: Path) -> None:
    save(tmp_path / "a", started="2026-01-31T12:00:00+02:00", row={"sqnr_db": 12.5})
    [stored], _ = collect([tmp_path])
    assert stored.started == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert [row.sqnr_db for row in stored.run.outputs] == [12.5]
    assert stored.run.quantizers == []


def test_the_quantizers_table_is_not_needed(tmp_path: Path) -> None:
    (save(tmp_path / "a") / "quantizers.csv").unlink()
    assert names(tmp_path) == ["a"]


def test_interrupted_runs_count(tmp_path: Path) -> None:
    save(tmp_path / "a", status=INTERRUPTED)
    assert names(tmp_path) == ["a"]


def test_a_run_found_twice_is_one_and_two_of_one_name_are_two(tmp_path: Path) -> None:
    save(tmp_path / "one" / "same-name")
    save(tmp_path / "two" / "same-name", row={"sqnr_db": 31.0})
    shutil.copytree(tmp_path / "one", tmp_path / "copied")
    assert names(tmp_path, tmp_path / "one", tmp_path / "two" / "same-name") == ["same-name", "same-name"]


def test_a_source_that_is_named_twice_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    edit(save(tmp_path / "bad"), status=RUNNING)
    empty = tmp_path / "empty"
    empty.mkdir()
    runs, notes = collect([tmp_path / "bad", empty, tmp_path / "bad", empty / ".." / "empty", tmp_path])
    assert runs == []
    assert notes == [
        f"skipped: {tmp_path / 'bad'}: the run has not finished, or was killed",
        f"{empty}: holds no run (a folder with run.json)",
    ]


def test_runs_of_one_start_are_in_the_same_order_whichever_source_comes_first(tmp_path: Path) -> None:
    """By name, and of one name by identity."""
    for number, name in enumerate(["b", "a", "a"]):
        save(tmp_path / str(number) / name, row={"sqnr_db": 30.0 + number})
    orders = []
    for numbers in ("012", "210", "120"):
        runs, _ = collect([tmp_path / number for number in numbers])
        orders.append([(stored.run.name, stored.run_id) for stored in runs])
    assert orders[0] == orders[1] == orders[2] == sorted(orders[0])
    assert [name for name, _ in orders[0]] == ["a", "a", "b"]


def test_known_runs_are_left_out_without_a_note(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / name, row={"output": name})
    runs, _ = collect([tmp_path])
    left, notes = collect([tmp_path], known={runs[0].run_id})
    assert [stored.run.name for stored in left] == [runs[1].run.name]
    assert notes == []


def test_a_source_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere: no such folder or archive"):
        collect([tmp_path / "nowhere"])


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    assert only_note(tmp_path) == f"{tmp_path}: holds no run (a folder with run.json)"


# What is passed over, and why


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": RUNNING}, "the run has not finished, or was killed"),
        ({"status": "lost"}, "cannot be read: status: input should be 'complete', 'running'"),
        ({"schema": 1}, "schema 1, this version reads 4"),
        ({"plan": 3}, "cannot be read: plan: input should be a valid list (got 3)"),
        ({"environment": []}, "cannot be read: environment: input should be a valid dictionary"),
        ({"started": "yesterday"}, "started: 'yesterday' is no ISO 8601 time"),
        ({"started": None}, "cannot be read: started: input should be a valid string (got None)"),
        ({"started": "0001-01-01T00:00:00+14:00"}, "is no ISO 8601 time"),
    ],
)
def test_a_run_of_another_kind_is_skipped_and_the_others_are_not(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    edit(save(tmp_path / "bad", row={"output": "other"}), **changes)
    save(tmp_path / "good")
    runs, [note] = collect([tmp_path])
    assert [stored.run.name for stored in runs] == ["good"]
    assert note.startswith(f"skipped: {tmp_path / 'bad'}")
    assert said in note


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 4}', "[" * 100_000, '{"schema": NaN}'])
def test_a_header_that_is_none_is_skipped(tmp_path: Path, text: str) -> None:
    (save(tmp_path / "a") / "run.json").write_text(text)
    assert only_note(tmp_path).startswith(f"skipped: {tmp_path / 'a' / 'run.json'}: ")


def test_a_damaged_table_is_skipped_naming_file_line_and_column(tmp_path: Path) -> None:
    table = save(tmp_path / "a") / "outputs.csv"
    table.write_text(table.read_text().replace(",30.0,", ",nan,"))
    assert only_note(tmp_path).startswith(f"skipped: {table}:2: column sqnr_db: 'nan'")


def test_a_run_without_its_table_or_without_rows_is_skipped(tmp_path: Path) -> None:
    (save(tmp_path / "a") / "outputs.csv").unlink()
    assert "outputs.csv: cannot be read: No such file" in only_note(tmp_path)
    table = save(tmp_path / "a") / "outputs.csv"
    table.write_text(table.read_text().splitlines()[0] + "\n")
    assert only_note(tmp_path) == f"skipped: {tmp_path / 'a'}: the run has no output rows"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    table = save(tmp_path / "a") / "outputs.csv"
    table.unlink()
    table.symlink_to("/dev/zero")
    assert only_note(tmp_path) == f"skipped: {table}: not a file"


def test_a_huge_file_is_read_no_further_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_sources, "MOST_FILE_BYTES", 2**20)
    with (save(tmp_path / "a") / "outputs.csv").open("r+b") as table:
        table.truncate(2**40)
    assert only_note(tmp_path).endswith("outputs.csv: over 1 MB, the most that is read of one file")
