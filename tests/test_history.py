"""The table of all runs: each line exact, each run once, and nothing lost whoever writes at once."""

from __future__ import annotations

import multiprocessing
from dataclasses import fields
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from harness import history, history_lines
from harness.environment import ISAS, STACK
from harness.errors import UsageError
from harness.history_lines import StoredRun
from harness.records import OutputRow
from tests.rows import ENVIRONMENT, no_number, output_row, run_of
from tests.stored_runs import START, stored


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "history.parquet"


# What is kept


def test_the_columns_are_those_of_the_schema_number() -> None:
    """A new field of OutputRow or package of STACK changes the columns: then raise SCHEMA, and this list."""
    assert history_lines.SCHEMA == 3
    assert " ".join(history.empty().columns) == (
        "run_id run started suite run_status filtered platform python cpu pinned "
        "torch torchvision torchao transformers nncf executorch numpy "
        "model size weights flow variant point output status sqnr_db sqnr_min_db max_abs_err cosine ref_rms numel "
        "noise_db sqnr_lo_db sqnr_hi_db task_metric "
        "quantize_nodes dequantize_nodes slice_nodes nodes kernel_db int8_convs int8_linears float_convs float_linears "
        "delegated_nodes undelegated_nodes program_bytes fix_state cause error"
    )


def test_a_line_has_what_the_run_and_the_row_have_to_the_last_digit(file: Path) -> None:
    row = output_row(sqnr_db=36.63824802625971, cause="clipping")
    assert history.append(file, [stored(1, row, filtered=True, suite="nightly", status="interrupted")]) == 1
    [line] = history.read(file).to_dict("records")
    assert {name: line[name] for name in ("run_id", "run", "suite", "run_status", "filtered", "pinned")} == {
        "run_id": "0000000000000001",
        "run": "run01",
        "suite": "nightly",
        "run_status": "interrupted",
        "filtered": True,
        "pinned": True,
    }
    assert line["started"] == START + timedelta(hours=1)
    assert [line[name] for name in ("platform", "python", "cpu")] == ["linux-x86_64", "3.11.7", "a cpu"]
    assert {name: line[name] for name in STACK if line[name]} == {"torch": "2.14.1", "torchao": "0.18.0"}
    given = {field.name: getattr(row, field.name) for field in fields(OutputRow)}
    assert {name: line[name] for name in given if given[name] is not None} == {
        name: value for name, value in given.items() if value is not None
    }


def test_what_a_failed_row_has_no_number_for_is_absent_and_its_error_is_kept(file: Path) -> None:
    history.append(file, [stored(1, no_number("failed:lower", error="boom " * 100))])
    frame = history.read(file)
    assert frame[["sqnr_db", "numel", "nodes"]].isna().all(axis=None)
    assert frame["error"][0] == ("boom " * 100)[:300]
    assert frame["numel"].dtype == "Int64"


@pytest.mark.parametrize(
    "pins",
    [None, "avx2", {}, {**ENVIRONMENT["pins"], "MKL_CBWR": ""}, ISAS["avx512"], {"OMP_NUM_THREADS": "1"}],  # type: ignore[dict-item]
)
def test_a_run_is_pinned_only_if_all_instruction_sets_are(file: Path, pins: object) -> None:
    history.append(file, [stored(1), stored(2, environment={"pins": pins})])
    assert history.read(file)["pinned"].tolist() == [True, False]


def test_hostile_names_come_back_as_they_were_but_for_what_utf8_cannot_say(file: Path) -> None:
    row = output_row(output="<script>alert(1)</script>\n\u202e=1+1")
    history.append(file, [stored(1, row, environment={"cpu": "a\ud800b", "stack": {"torch": None, "nncf": 3}})])
    frame = history.read(file)
    assert frame["output"][0] == row.output
    assert [frame[name][0] for name in ("cpu", "torch", "nncf")] == ["a\\ud800b", "", "3"]


def test_lines_are_sorted_by_start_run_and_key_whatever_order_they_came_in(file: Path) -> None:
    rows = [output_row(output=name) for name in ("b", "a")]
    history.append(file, [stored(2, *rows, name="x")])
    history.append(file, [stored(1, *rows, name="y")])
    frame = history.read(file)
    assert list(zip(frame["run"], frame["output"], strict=True)) == [("y", "a"), ("y", "b"), ("x", "a"), ("x", "b")]


# Each run once


def test_the_same_runs_twice_add_nothing_and_leave_the_file_alone(file: Path) -> None:
    assert history.append(file, [stored(1), stored(2), stored(1)]) == 2
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert history.append(file, [stored(2), stored(1)]) == 0
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert history.append(file, [stored(2), stored(3)]) == 1
    assert history.read(file)["run_id"].tolist() == [f"{number:016x}" for number in (1, 2, 3)]


def test_two_machines_may_call_their_runs_alike(file: Path) -> None:
    assert history.append(file, [stored(1, name="20260131-120000-gate"), stored(2, name="20260131-120000-gate")]) == 2


def test_identity_depends_on_both_files_and_on_where_one_ends() -> None:
    known = {history_lines.identity(*pair) for pair in [(b"ab", b"c"), (b"a", b"bc"), (b"ab", b"d"), (b"", b"abc")]}
    assert len(known) == 4
    assert history_lines.identity(b"ab", b"c") in known


def test_a_run_without_rows_has_no_line_and_is_not_counted(file: Path) -> None:
    empty = StoredRun("0" * 16, START, run_of(Path("none")))
    assert history.append(file, [empty]) == 0
    assert not file.exists()


def test_no_history_yet_is_no_run_known_and_one_clean_error_to_read(file: Path) -> None:
    assert history.known_ids(file) == frozenset()
    with pytest.raises(UsageError, match="no history there") as caught:
        history.read(file)
    assert str(file) in str(caught.value)
    history.append(file, [stored(7)])
    assert history.known_ids(file) == {f"{7:016x}"}


def _append_ten(file: Path, first: int, together: Barrier) -> None:
    together.wait(60)
    for number in range(first, first + 10):
        history.append(file, [stored(number)])


def test_two_processes_that_append_at_once_lose_nothing(file: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(2)
    both = [spawn.Process(target=_append_ten, args=(file, first, together)) for first in (0, 10)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert history.read(file)["run"].tolist() == [f"run{number:02d}" for number in range(20)]
