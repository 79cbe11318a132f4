"""The verb `history`: from stored runs to the table, the steps and what is said of them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from harness import baseline as baselines
from harness.errors import TableError, UsageError
from harness.store import RUNNING
from harness.verbs.remembering import Remembered, as_json, history_file, print_history, remember
from harness.workspace import Workspace
from tests.rows import accepted, journal_entry, no_number, output_row, run_of, settings_from, workspace_at


def save_runs(workspace: Workspace, levels: list[float], **changes) -> None:
    """Runs of one row with these levels, one a day."""
    for day, level in enumerate(levels, start=1):
        row = output_row(sqnr_db=level, **changes)
        run_of(workspace.reports / f"run{day:02d}", row, started=f"2026-01-{day:02d}T12:00:00+00:00").save()


def said(remembered: Remembered, file: Path) -> str:
    text = io.StringIO()
    print_history(Console(file=text, width=200), remembered, file)
    return text.getvalue()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_at(tmp_path)


def test_the_reports_are_collected_into_a_file_among_them(workspace: Workspace) -> None:
    save_runs(workspace, [40.0, 40.0, 38.0])
    frame, steps, notes, new, _ = remember(workspace)
    assert (len(frame), new, notes) == (3, 3, [])
    [step] = steps
    assert (step.run, step.change_db) == ("run03", -2.0)
    assert history_file(workspace) == workspace.reports / "history.parquet"
    assert history_file(workspace).is_file()


def test_again_nothing_is_new_and_runs_that_are_gone_stay_remembered(workspace: Workspace, tmp_path: Path) -> None:
    save_runs(workspace, [40.0, 38.0])
    first = remember(workspace)
    workspace.reports.rename(tmp_path / "old")
    workspace.reports.mkdir()
    (tmp_path / "old" / "history.parquet").rename(history_file(workspace))
    again = remember(workspace)
    assert (first.new, again.new) == (2, 0)
    assert again.frame.equals(first.frame)
    assert again.steps == first.steps


def test_runs_of_a_base_are_no_points_of_the_history_unless_asked_for(workspace: Workspace) -> None:
    save_runs(workspace, [40.0])
    run_of(workspace.reports / "base" / "old-code", output_row(sqnr_db=20.0)).save()
    assert remember(workspace).frame["run"].tolist() == ["run01"]
    assert remember(workspace, [workspace.reports / "base"]).new == 1


def test_other_sources_into_another_file(workspace: Workspace, tmp_path: Path) -> None:
    save_runs(workspace, [40.0, 38.0])
    into = tmp_path / "kept" / "mine.parquet"
    assert remember(workspace, [workspace.reports / "run02"], into).new == 1
    assert into.is_file()
    assert not history_file(workspace).exists()
    with pytest.raises(UsageError, match="nowhere: no such folder or archive"):
        remember(workspace, [tmp_path / "nowhere"], into)


@pytest.mark.parametrize("name", ["x.html", "x.HTML", ".html"])
def test_the_name_of_the_page_is_no_name_for_the_table(workspace: Workspace, tmp_path: Path, name: str) -> None:
    save_runs(workspace, [40.0])
    with pytest.raises(
        UsageError, match=r"the page beside the table has such a name; name the table, history\.parquet say"
    ):
        remember(workspace, into=tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_file_that_is_no_history_stops_before_anything_is_read(workspace: Workspace) -> None:
    save_runs(workspace, [40.0])
    history_file(workspace).write_text("mine")
    with pytest.raises(TableError, match="cannot be read as parquet"):
        remember(workspace)
    assert history_file(workspace).read_text() == "mine"


@pytest.mark.parametrize(("noise_db", "found"), [(0.5, 0), (0.1, 1)])
def test_a_row_is_allowed_three_times_its_own_noise(workspace: Workspace, noise_db: float, found: int) -> None:
    """A drop of 1 dB: within 3 x 0.5 dB, and over 0.5 dB, which is more than 3 x 0.1 dB."""
    save_runs(workspace, [40.0, 39.0])
    kept = accepted(output_row(sqnr_db=40.0, noise_db=noise_db), accepted=[journal_entry()])
    baselines.write(workspace.platform_baselines, kept)
    remembered = remember(workspace)
    assert (len(remembered.steps), remembered.notes) == (found, [])


def test_the_settings_say_what_is_allowed(tmp_path: Path) -> None:
    override = {"output": "logits", "tolerance": {"sqnr_drop_db": 3.0}, "reason": "known"}
    workspace = workspace_at(tmp_path, settings_from(override=[override]))
    save_runs(workspace, [40.0, 38.0])
    assert remember(workspace).steps == []


def test_the_suite_that_measured_a_row_says_what_is_allowed(workspace: Workspace) -> None:
    """0.3 dB: the gate allows 0.5 dB, nightly 0.25 dB."""
    for suite in ("gate", "nightly"):
        for day, level in ((1, 40.0), (2, 39.7)):
            row = output_row(sqnr_db=level, output=suite)
            folder = workspace.reports / f"{day}-{suite}"
            run_of(folder, row, suite=suite, started=f"2026-01-0{day}T12:00:00+00:00").save()
    assert [step.output for step in remember(workspace).steps] == ["nightly"]


def test_damaged_baselines_cost_the_noise_floors_and_are_said(workspace: Workspace) -> None:
    save_runs(workspace, [40.0, 38.0])
    workspace.platform_baselines.mkdir(parents=True)
    (workspace.platform_baselines / "resnet.outputs.csv").write_text("damaged")
    remembered = remember(workspace)
    assert len(remembered.steps) == 1
    [note] = remembered.notes
    assert note.startswith(f"no noise floors: {workspace.platform_baselines}")


def test_what_is_said_on_a_terminal(workspace: Workspace) -> None:
    save_runs(workspace, [40.0, 40.0, 38.0])
    run_of(workspace.reports / "now", output_row(output="other"), status=RUNNING).save()
    file = history_file(workspace)
    text = said(remember(workspace), file)
    assert f"note: skipped: {workspace.reports / 'now'}: the run has not finished, or was killed\n" in text
    for part in ("resnet/small/trained x86-static converted logits", "run03", "40.00 dB → 38.00 dB", "-2.00 dB"):
        assert part in text
    assert text.endswith(f"3 runs (3 new), 2026-01-01 to 2026-01-03, 1 step: {file}\n")


def test_steps_of_one_platform_name_it_where_the_history_has_another(workspace: Workspace) -> None:
    for platform, levels in {"here": (40.0, 38.0), "there": (30.0, 30.0)}.items():
        for day, level in enumerate(levels, start=1):
            run = run_of(workspace.reports / f"{platform}{day}", output_row(sqnr_db=level))
            run.started, run.environment["platform"] = f"2026-01-{day:02d}T12:00:00+00:00", platform
            run.save()
    assert "converted logits (here, unpinned)" in said(remember(workspace), Path("x"))


def test_markup_and_control_characters_in_names_are_shown_as_they_are(workspace: Workspace) -> None:
    save_runs(workspace, [40.0, 38.0], output="[red]<script>\x1b[2J\u202e")
    assert "[red]<script>\\x1b[2J\\u202e" in said(remember(workspace), Path("[bold]x"))


def test_many_steps_and_notes_are_cut_and_counted(workspace: Workspace) -> None:
    for day, level in ((1, 40.0), (2, 38.0)):
        rows = [output_row(sqnr_db=level, output=f"o{index:02d}") for index in range(30)]
        run_of(workspace.reports / f"r{day}", *rows, started=f"2026-01-0{day}T12:00:00+00:00").save()
    for index in range(25):
        run_of(workspace.reports / f"s{index}", output_row(output=f"{index}"), status=RUNNING).save()
    text = said(remember(workspace), Path("x"))
    assert "... and 10 more steps: --json has all\n" in text
    assert "... and 5 more notes\n" in text


@pytest.mark.parametrize("made", [True, False])
def test_no_run_at_all_is_said_plainly(workspace: Workspace, made: bool) -> None:
    if made:
        workspace.reports.mkdir()
    remembered = remember(workspace)
    assert (len(remembered.frame), remembered.steps, remembered.new) == (0, [], 0)
    assert "no finished run found, start with `sqnr run`" in said(remembered, Path("x"))
    assert json.loads(as_json(remembered, Path("x")))["first"] is None
    assert not history_file(workspace).exists()


def test_json_has_exact_numbers_and_null_where_there_is_none(workspace: Workspace) -> None:
    save_runs(workspace, [40.125, 38.0])
    row = no_number("failed:lower")
    run_of(workspace.reports / "run03", row, started="2026-01-03T12:00:00+00:00").save()
    content = json.loads(as_json(remember(workspace), history_file(workspace)))
    assert {name: content[name] for name in ("file", "runs", "new", "first", "last", "notes")} == {
        "file": str(history_file(workspace)),
        "runs": 3,
        "new": 3,
        "first": "2026-01-01T12:00:00+00:00",
        "last": "2026-01-03T12:00:00+00:00",
        "notes": [],
    }
    failed, drop = content["steps"]
    assert (failed["kind"], failed["status"], failed["new_db"], failed["change_db"]) == (
        *("failed", "failed:lower", None, None),
    )
    assert (drop["kind"], drop["old_db"], drop["new_db"], drop["change_db"]) == ("drop", 40.125, 38.0, -2.125)
    assert (drop["model"], drop["output"], drop["before"], drop["started"]) == (
        *("resnet", "logits", "run01", "2026-01-02T12:00:00+00:00"),
    )
