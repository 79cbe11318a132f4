"""Speeds of int8 programs in the history: read from benchmarks' files, kept exactly, shown beside published ones."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness import history, history_benchmarks
from harness.errors import TableError
from harness.history_sources import collect
from harness.report.html import page
from harness.report.speed_frames import speed_tables
from harness.verbs.remembering import Remembered, as_json, print_history, remember
from harness.verbs.reporting import timeline_of
from harness.workspace import Workspace
from tests.report.html.pages import Page
from tests.rows import output_row, run_of, workspace_at
from tests.speeds import results, save_results, speed_row
from tests.stored_runs import only_note, stored

PER_TENSOR = {"flow": "arm-static-u8s8f32-per-tensor", "variant": "+arm-per-tensor-lowering"}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_at(tmp_path)


def said(remembered: Remembered) -> str:
    text = io.StringIO()
    print_history(Console(file=text, width=250), remembered, Path("x"))
    return text.getvalue()


def parsed(content: Any) -> history_benchmarks.StoredBench:
    return history_benchmarks.parse(Path("bench/now.json"), json.dumps(content).encode())


# Reading


def test_each_case_with_a_speed_is_a_row_and_nothing_names_the_host() -> None:
    rows = [speed_row(), speed_row(model="vit", published=None, published_on="")]
    found = parsed(results(*rows))
    assert (found.name, found.rows) == ("now", rows)
    assert found.started == datetime(2026, 2, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    assert "host" not in repr(found)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in asdict(speed_row()).items() if key != name}


@pytest.mark.parametrize(
    ("speed", "message"),
    [
        (without("speedup"), "speedup: Field required"),
        ({**without("speedup"), "speedup": "3.0"}, "speedup: Input should be a valid number"),
        ({**without("speedup"), "speedup": float("nan")}, "speedup: Input should be a finite number"),
        ({**without("threads"), "threads": 1.5}, "threads: Input should be a valid integer"),
        ({**without(""), "more": 1}, "more: Unexpected keyword argument"),
        (3, "Input should be an object"),
    ],
)
def test_a_speed_that_is_none_names_file_and_field(speed: Any, message: str) -> None:
    content = results(speed_row())
    content["benchmarks"][-1]["extra_info"]["speed"] = speed
    with pytest.raises(TableError, match=message) as caught:
        parsed(content)
    assert str(caught.value).startswith("bench/now.json: speed: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no results of pytest-benchmark"),
        (b"[1]", "no results of pytest-benchmark"),
        (b"[" * 100_000, "no results of pytest-benchmark"),
        (b'{"benchmarks": []}', "no results of pytest-benchmark: .*datetime"),
        (json.dumps({**results(speed_row()), "datetime": "today"}).encode(), "datetime: 'today' is no ISO 8601 time"),
        (json.dumps(results()).encode(), "benchmarks without speeds of int8 programs"),
    ],
)
def test_what_is_no_benchmark_is_passed_over_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bench" / "now.json"
    file.parent.mkdir()
    file.write_bytes(content)
    note = only_note(tmp_path)
    assert note.startswith(f"skipped: {file}: ")
    with pytest.raises(TableError, match=message):
        history_benchmarks.parse(file, content)


def test_files_are_found_in_folders_called_bench_in_archives_or_by_their_own_name(tmp_path: Path) -> None:
    inside = save_results(tmp_path / "runs" / "bench" / "a.json", speed_row())
    other = save_results(tmp_path / "elsewhere" / "b.json", speed_row(), day=2)
    with zipfile.ZipFile(tmp_path / "runs" / "ci.zip", "w") as packed:
        packed.writestr("kept/bench/c.json", json.dumps(results(speed_row(), day=3)))
        packed.writestr("kept/d.json", json.dumps(results(speed_row(), day=4)))
        packed.writestr("twice/bench/a.json", inside.read_bytes())
    assert [found.name for found in collect([tmp_path / "runs"])[0]] == ["a", "c"]
    found, notes = collect([tmp_path / "runs", other])
    assert ([each.name for each in found], notes) == (["a", "b", "c"], [])
    assert collect([other], {found[1].run_id}) == ([], [])


# Keeping


def test_a_speed_comes_back_to_the_last_digit_beside_where_it_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "history.parquet"
    row = speed_row(speedup=2.9500000000000006, published=None)
    history.append(file, [parsed(results(row)), stored(1, output_row(int8_convs=7))])
    outputs, speeds = history.read_both(file)
    [line] = speeds.to_dict("records")
    assert {name: line[name] for name, value in asdict(row).items() if value is not None} == {
        name: value for name, value in asdict(row).items() if value is not None
    }
    assert speeds["published"].isna().all()
    assert (line["run"], line["suite"], line["cpu"], line["torchao"]) == ("now", "bench", "a cpu", "0.18.0")
    assert outputs["int8_convs"].tolist() == [7]
    assert "speedup" not in outputs.columns
    assert "sqnr_db" not in speeds.columns
    assert list(speeds.dtypes) == list(history.empty_speeds().dtypes)


def test_the_same_file_again_adds_nothing(workspace: Workspace) -> None:
    save_results(workspace.reports / "bench" / "a.json", speed_row())
    assert [remember(workspace).new for _ in range(2)] == [1, 0]
    assert len(remember(workspace).speeds) == 1


def test_speeds_are_no_steps_and_count_as_runs(workspace: Workspace) -> None:
    run_of(workspace.reports / "run", output_row(), started="2026-01-31T12:00:00+00:00").save()
    for day, speedup in ((1, 3.0), (2, 0.5)):
        save_results(workspace.reports / "bench" / f"{day}.json", speed_row(speedup=speedup), day=day)
    remembered = remember(workspace)
    assert (len(remembered.frame), len(remembered.speeds), remembered.steps) == (1, 2, [])
    assert "3 runs (3 new), 2026-01-31 to 2026-02-02, 0 steps" in said(remembered)


# Showing


def test_a_line_for_each_model_and_a_column_for_each_flow(workspace: Workspace) -> None:
    per_tensor = speed_row(**PER_TENSOR, lowered_s=0.0125, speedup=2.4, speedup_lo=2.35, speedup_hi=2.5)
    vit = speed_row(model="vit", published=1.151, int8_convs=1, int8_linears=25)
    save_results(workspace.reports / "bench" / "a.json", speed_row(), per_tensor, vit)
    remembered = remember(workspace)
    [table] = speed_tables(remembered.speeds)
    assert table.title == "Speed against compiled fp32, batch 2, 2 threads: linux-x86_64, a cpu, AVX-512"
    assert table.note == "medians of 30 rounds; run a; published: Graviton 3E; torch 2.14.1, torchao 0.18.0"
    column = "arm-static-u8s8f32-per-tensor +arm-per-tensor-lowering"
    assert list(table.frame.columns) == ["model", "fp32 eager", "fp32 compiled", column, "arm-x", "published"]
    assert table.frame.to_numpy().tolist() == [
        [
            *("resnet/full", "80.0 ms", "30.0 ms"),
            "12.5 ms, 2.40× (2.35 to 2.50); eager 8.00×; 53 convs, 1 linear",
            "10.0 ms, 3.00× (2.90 to 3.12); eager 8.00×; 53 convs, 1 linear",
            "1.42×",
        ],
        [
            *("vit/full", "80.0 ms", "30.0 ms", ""),
            "10.0 ms, 3.00× (2.90 to 3.12); eager 8.00×; 1 conv, 25 linears",
            "1.15×",
        ],
    ]
    text = said(remembered)
    assert table.note in text
    assert "3.00× (2.90 to 3.12)" in text


def test_the_latest_speed_of_each_model_counts_and_other_places_have_tables_of_their_own(workspace: Workspace) -> None:
    folder = workspace.reports / "bench"
    save_results(folder / "a.json", speed_row(speedup=3.0), speed_row(model="vit"), day=1)
    save_results(folder / "b.json", speed_row(speedup=5.0), speed_row(threads=8), day=2)
    two, eight = speed_tables(remember(workspace).speeds)
    assert two.frame["model"].tolist() == ["resnet/full", "vit/full"]
    assert two.frame["arm-x"][0].startswith("10.0 ms, 5.00×")
    assert "run a, b;" in two.note
    assert (eight.title.split(":")[0], len(eight.frame)) == ("Speed against compiled fp32, batch 2, 8 threads", 1)


def test_json_has_the_latest_speeds_exactly(workspace: Workspace) -> None:
    save_results(workspace.reports / "bench" / "a.json", speed_row(speedup=3.0, published=None), day=1)
    save_results(workspace.reports / "bench" / "b.json", speed_row(speedup=2.125, published=None), day=2)
    [speed] = json.loads(as_json(remember(workspace), Path("x")))["speeds"]
    assert (speed["speedup"], speed["published"], speed["run"]) == (2.125, None, "b")
    assert speed["started"] == "2026-02-02T12:00:00.500000+00:00"
    assert as_json(Remembered(history.empty(), [], [], 0, history.empty_speeds()), Path("x")).count('"speeds": []') == 1


def test_hostile_names_are_shown_as_they_are(workspace: Workspace) -> None:
    save_results(workspace.reports / "bench" / "a.json", speed_row(model="[red]\x1b[2J", isa="\u202eAVX"))
    assert "[red]\\x1b[2J/full" in said(remember(workspace))


def test_the_page_has_the_table_too_also_where_no_run_is_stored(workspace: Workspace) -> None:
    save_results(workspace.reports / "bench" / "a.json", speed_row(model="<script>alert(1)</script>"))
    found = Page(page.render_history(timeline_of(remember(workspace))))
    assert "<script>alert(1)</script>/full 80.0 ms 30.0 ms 10.0 ms, 3.00× (2.90 to 3.12)" in found.words
    assert "published: Graviton 3E" in found.words
