"""The end of a run's log about a case: which file, which part of it, and how much."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from harness.records import Case
from harness.report.logs import log_of
from harness.store import Run
from tests.rows import case, run_of

TRACEBACK = "Traceback (most recent call last):"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = run_of(tmp_path / "run")
    run.logs.mkdir(parents=True)
    return run


def section(case_: Case, point: str, error: str) -> str:
    return f"{case_} at {point}\n{TRACEBACK}\n  File 'x'\n{error}\n"


def write(run: Run, name: str, text: str) -> None:
    (run.logs / name).write_text(text, encoding="utf-8")


def test_a_case_is_told_by_its_first_section_alone(run: Run) -> None:
    other, this = case(flow="x86-dynamic"), case()
    parts = [section(other, "converted", "before"), section(this, "converted", "broke")]
    write(run, "000-resnet-small.log", "".join([*parts, section(this, "lowered", "again")]))
    assert log_of(run, this) == section(this, "converted", "broke").strip()
    assert log_of(run, other) == section(other, "converted", "before").strip()


def test_the_last_section_ends_with_the_log(run: Run) -> None:
    write(run, "000-resnet-small.log", section(case(), "converted", "broke") + "and more\n")
    assert log_of(run, case()).endswith("broke\nand more")


def test_a_variant_is_not_taken_for_its_released_case(run: Run) -> None:
    fixed = case(variant="+fix")
    write(run, "000-resnet-small.log", section(fixed, "converted", "of the fix") + section(case(), "float", "released"))
    assert "released" in log_of(run, case())
    assert "of the fix" in log_of(run, fixed)


def test_a_case_without_a_section_is_told_by_the_end_of_its_models_log(run: Run) -> None:
    write(run, "000-resnet-small.log", section(case(flow="x86-dynamic"), "float", "first") + "the process was killed\n")
    assert log_of(run, case()).endswith("the process was killed")


@pytest.mark.parametrize("name", ["000-my-resnet-small.log", "000-resnet-small-jitter1.log", "000-resnet-full.log"])
def test_the_log_of_another_model_is_none_of_its_own(run: Run, name: str) -> None:
    write(run, name, section(case(), "converted", "broke"))
    assert log_of(run, case()) == ""


def test_a_model_may_be_called_like_a_pattern(run: Run) -> None:
    odd = case(model="a.*[b]")
    write(run, "000-ab-small.log", "of another")
    assert log_of(run, odd) == ""
    write(run, "001-a.*[b]-small.log", section(odd, "converted", "broke"))
    assert "broke" in log_of(run, odd)


def test_no_folder_an_unreadable_file_and_an_empty_one_are_no_log(run: Run, tmp_path: Path) -> None:
    assert log_of(run_of(tmp_path / "elsewhere"), case()) == ""
    (run.logs / "000-resnet-small.log").mkdir()
    assert log_of(run, case()) == ""
    write(run, "001-resnet-small.log", "")
    assert log_of(run, case()) == ""


def test_bytes_that_are_no_text_are_shown_as_such(run: Run) -> None:
    (run.logs / "000-resnet-small.log").write_bytes(b"bad \xff byte")
    assert log_of(run, case()) == "bad � byte"


def test_a_long_log_is_its_last_lines_and_a_long_line_its_end(run: Run) -> None:
    write(run, "000-resnet-small.log", "\n".join(f"line {number}" for number in range(1000)))
    assert log_of(run, case()).splitlines() == [f"line {number}" for number in range(960, 1000)]
    write(run, "000-resnet-small.log", "x" * 10_000 + "end")
    assert log_of(run, case()) == "x" * 5997 + "end"


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened from now on."""
    found: list[str] = []
    real = Path.open

    def noted(path: Path, *args: Any, **options: Any) -> Any:
        found.append(path.name)
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", noted)
    return found


def test_a_log_is_read_once_for_all_its_failures_and_again_when_it_grew(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    this, other = case(), case(flow="x86-dynamic")
    first = section(this, "converted", "broke") + section(other, "converted", "too")
    write(run, "000-resnet-small.log", first)
    files = opened(monkeypatch)
    assert [log_of(run, one).splitlines()[-1] for one in (this, other, this)] == ["broke", "too", "broke"]
    assert files == ["000-resnet-small.log"]
    write(run, "000-resnet-small.log", first + section(case(flow="xnnpack"), "float", "later"))
    assert log_of(run, case(flow="xnnpack")).endswith("later")


def test_of_a_log_without_end_only_the_last_mebibyte_is_read(run: Run) -> None:
    """64 MB of lines, and no more memory than a few times that MiB."""
    log = run.logs / "000-resnet-small.log"
    line = b"x" * 1023 + b"\n"
    with log.open("wb") as file:
        file.write(section(case(), "converted", "long ago").encode())
        for _ in range(64):
            file.write(line * 1024)
        file.write(section(case(), "lowered", "again").encode() + b"killed")
    tracemalloc.start()
    text = log_of(run, case())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text == (section(case(), "lowered", "again") + "killed").strip()
    assert peak < 8 * 2**20


def test_a_pipe_among_the_logs_is_passed_over(run: Run) -> None:
    os.mkfifo(run.logs / "000-resnet-small.log")
    assert log_of(run, case()) == ""
