"""The verbs that write reports, as people run them: which files, which exit code, what is said where none can be."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from harness.records import OutputRow, QuantizerRow
from harness.table import parse
from harness.workspace import Workspace
from tests.program import make_workspace, sqnr
from tests.reported import REPORTS, STORED, files, reported, save, text
from tests.rows import workspace_at


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return reported(tmp_path / "work")


def test_a_run_is_reported_in_its_folder_and_always_with_code_zero(workspace: Workspace) -> None:
    """`report` tells, `check` judges."""
    found = sqnr(workspace.start, "report", "bad")
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == f"report: {workspace.reports / 'bad' / 'report.html'}"
    assert "numerics got worse or changed: 2 ok, 1 regressed (exit 1)" in found.stdout
    assert files(workspace.reports / "bad") == STORED | REPORTS
    assert "resnet/small/trained x86-static" in text(workspace.reports / "bad")
    assert json.loads(text(workspace.reports / "bad", "verdict.json"))["exit_code"] == 1


def test_a_report_goes_elsewhere_with_pictures_and_leaves_the_run_alone(workspace: Workspace, tmp_path: Path) -> None:
    found = sqnr(
        workspace.start, "report", "good", "-o", str(tmp_path / "a" / "b"), "--figures", str(tmp_path / "drawn")
    )
    assert found.returncode == 0, found.stderr
    assert files(workspace.reports / "good") == STORED
    assert files(tmp_path / "a" / "b") == REPORTS
    drawn = files(tmp_path / "drawn")
    assert {"fix-matrix.svg", "fix-matrix.png"} <= drawn
    assert all(f"{tmp_path / 'drawn' / name}" in found.stdout for name in drawn)


def test_the_tables_for_spreadsheets_and_the_stored_ones_hold_the_same_rows(
    workspace: Workspace, tmp_path: Path
) -> None:
    assert sqnr(workspace.start, "report", "good", "-o", str(tmp_path / "out")).returncode == 0
    sheets, run = tmp_path / "out" / "sheets", workspace.reports / "good"
    assert len(text(sheets, "outputs.csv").splitlines()) == 1 + len(parse(run / "outputs.csv", OutputRow)) == 3
    assert len(text(sheets, "quantizers.csv").splitlines()) == 1 + len(parse(run / "quantizers.csv", QuantizerRow)) == 2


def test_two_reports_of_a_run_are_equal_byte_by_byte(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert sqnr(workspace.start, "report", "good", "-o", str(tmp_path / name)).returncode == 0
    for name in REPORTS:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(("run", "code"), [("good", 0), ("bad", 1)])
def test_check_writes_the_reports_and_ends_with_the_verdict(workspace: Workspace, run: str, code: int) -> None:
    found = sqnr(workspace.start, "check", run)
    assert found.returncode == code, found.stderr
    assert files(workspace.reports / run) == STORED | REPORTS
    assert found.stdout.splitlines()[-1] == f"reports: {workspace.reports / run}"


def test_without_a_baseline_a_report_says_so_and_a_check_ends_incomplete(tmp_path: Path) -> None:
    workspace = workspace_at(make_workspace(tmp_path))
    save(workspace, "run", 30.0)
    reported = sqnr(tmp_path, "report")
    assert reported.returncode == 0, reported.stderr
    assert "no baselines for this platform" in reported.stdout
    assert "judged by nothing: there is no baseline" in text(workspace.reports / "run")
    checked = sqnr(tmp_path, "check")
    assert (checked.returncode, "no baselines for this platform" in checked.stdout) == (4, True)
    assert re.search(r"there is no baseline to judge by: \d+ new \(exit 4\)", checked.stdout)
    assert "there is no baseline to judge by" in (workspace.reports / "run" / "report.md").read_text()


def test_runs_are_compared_in_a_folder_of_the_heads(workspace: Workspace) -> None:
    found = sqnr(workspace.start, "compare", "good", "bad")
    assert found.returncode == 1, found.stderr
    folder = workspace.reports / "bad" / "against-good"
    assert files(folder) == REPORTS
    assert "judged by run good. Exit code 1." in text(folder)
    assert found.stdout.splitlines()[-1] == f"reports: {folder}"
    assert "sqnr accept" not in found.stdout, "what a base gave is no baseline to accept against"
    assert files(workspace.reports / "good") == STORED


def test_a_comparison_goes_elsewhere_and_says_json_to_programs(workspace: Workspace, tmp_path: Path) -> None:
    found = sqnr(workspace.start, "compare", "good", "good", "-o", str(tmp_path / "out"), "--json")
    assert found.returncode == 0, found.stderr
    assert found.stdout == text(tmp_path / "out", "verdict.json")
    assert files(tmp_path / "out") == REPORTS
    assert files(workspace.reports / "good") == STORED


def test_a_history_is_a_table_and_a_page_and_then_part_of_every_report(workspace: Workspace, tmp_path: Path) -> None:
    for day in (28, 29):
        save(workspace, f"run{day}", 40.0, day)
    assert sqnr(workspace.start, "report", "good", "-o", str(tmp_path / "before")).returncode == 0
    assert 'id="history"' not in text(tmp_path / "before")
    found = sqnr(workspace.start, "history")
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == f"report: {workspace.reports / 'history.html'}"
    assert "4 runs from 2026-01-28 to 2026-01-31" in text(workspace.reports, "history.html")
    assert sqnr(workspace.start, "report", "good", "-o", str(tmp_path / "after")).returncode == 0
    assert "4 runs from 2026-01-28 to 2026-01-31" in text(tmp_path / "after")


def test_a_history_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    found = sqnr(tmp_path, "history")
    assert (found.returncode, found.stdout.startswith("no finished run found")) == (0, True)
    assert not list(tmp_path.iterdir())


def test_a_history_that_is_asked_for_by_name_must_be_one(workspace: Workspace, tmp_path: Path) -> None:
    kept = tmp_path / "kept.parquet"
    assert sqnr(workspace.start, "history", str(workspace.reports / "good"), "--into", str(kept)).returncode == 0
    assert files(tmp_path) >= {"kept.parquet", "kept.html"}
    shown = sqnr(workspace.start, "report", "bad", "--history", str(kept))
    assert shown.returncode == 0, shown.stderr
    assert "1 run from 2026-01-31" in text(workspace.reports / "bad")
    kept.write_text("damaged")
    refused = sqnr(workspace.start, "report", "bad", "--history", str(kept))
    assert (refused.returncode, f"{kept}: cannot be read as parquet" in refused.stderr) == (2, True)


def test_a_damaged_history_among_the_reports_costs_its_section_and_is_said(workspace: Workspace) -> None:
    (workspace.reports / "history.parquet").write_text("damaged")
    found = sqnr(workspace.start, "check", "good")
    assert found.returncode == 0
    assert "the report has no history: " in found.stderr
    assert 'id="history"' not in text(workspace.reports / "good")


@pytest.mark.parametrize("verb", [("report", "good"), ("compare", "good", "bad")])
def test_where_a_folder_cannot_be_written_nothing_is_and_one_line_says_which(
    workspace: Workspace, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("in the way")
    found = sqnr(workspace.start, *verb, "-o", str(tmp_path / "file" / "out"))
    assert found.returncode == 2
    [line] = [line for line in found.stderr.splitlines() if line]
    assert line.startswith(f"sqnr: {tmp_path / 'file' / 'out' / 'verdict.json'}: cannot be written: ")
    assert files(workspace.reports) == {f"{name}/{file}" for name in ("good", "bad") for file in STORED}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into any folder")
def test_a_read_only_run_can_be_reported_elsewhere_alone(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.reports / "good"
    folder.chmod(0o555)
    try:
        refused = sqnr(workspace.start, "report", "good")
        elsewhere = sqnr(workspace.start, "report", "good", "-o", str(tmp_path / "out"))
    finally:
        folder.chmod(0o755)
    assert (refused.returncode, "cannot be written: Permission denied" in refused.stderr) == (2, True)
    assert (elsewhere.returncode, files(folder)) == (0, STORED)


def test_one_report_that_cannot_be_replaced_leaves_all_as_they_were(workspace: Workspace) -> None:
    folder = workspace.reports / "good"
    (folder / "junit.xml").mkdir()
    (folder / "report.md").write_text("of before")
    found = sqnr(workspace.start, "report", "good")
    assert (found.returncode, "junit.xml: cannot be written: Is a directory" in found.stderr) == (2, True)
    assert files(folder) == STORED | {"report.md"}
    assert text(folder, "report.md") == "of before"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("report", "nowhere"), "no run 'nowhere'"),
        (("compare", "good", "nowhere"), "no run 'nowhere'"),
        (("compare", "good"), "Missing argument 'HEAD'"),
        (("report", "good", "--history", "nowhere.parquet"), "nowhere.parquet: no history there"),
        (("history", "nowhere"), "nowhere: no such folder or archive"),
        (("report", "good", "-o", ""), "Invalid value for '-o' / '--output': an empty name"),
    ],
)
def test_a_wrong_word_is_one_clear_line(workspace: Workspace, args: tuple[str, ...], message: str) -> None:
    found = sqnr(workspace.start, *args)
    assert (found.returncode, message in found.stderr) == (2, True), found.stderr
    assert "Traceback" not in found.stderr
