"""A run that was killed or interrupted is gone on with, and ends as one that nothing happened to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.program import TINY, ends, latest, make_workspace, sqnr, start

SETTINGS = """
[tool.sqnr.suites.gate]
size = "small"
flows = ["x86-dynamic", "x86-static"]
"""
HELD = TINY.replace("def evaluation", "import pathlib, time\n\n\ndef evaluation").replace(
    "    return _batches(seed)\n",
    "    hold = pathlib.Path(__file__).parents[1] / 'hold'\n    while hold.exists():\n        time.sleep(0.1)\n"
    "    return _batches(seed)\n",
)
"""As `TINY`; waits for its data as long as there is a file `hold` in the workspace."""
FILES = ("outputs.csv", "quantizers.csv", "samples.safetensors")


def workspace(folder: Path) -> Path:
    """Two models of two cases each; `b_held` stops before its first."""
    make_workspace(folder, SETTINGS, a_quick=TINY, b_held=HELD)
    (folder / "hold").touch()
    return folder


def finished(folder: Path) -> list[list[str]]:
    """Cases that the part files of the latest run hold results of."""
    lines = [
        json.loads(line)
        for part in sorted(folder.glob("reports/*/parts/*.jsonl"))
        for line in part.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
    return [list(line["result"].values()) for line in lines if "result" in line]


def begun(folder: Path, number: int) -> Path:
    """A run that got a signal once two of its four cases were measured."""
    program = start(folder, "run", "-j", "1")
    deadline = time.monotonic() + 120
    while len(finished(folder)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(program.pid, number)
    program.communicate(timeout=60)
    assert ends(program.pid), "a process outlives the run"
    (folder / "hold").unlink()
    assert not list(latest(folder).glob("parts/reference-*")), "reference outputs are left behind"
    return latest(folder)


def resumed(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return sqnr(folder, "run", "--resume", latest(folder).name, *args)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = workspace(tmp_path_factory.mktemp("undisturbed"))
    (folder / "hold").unlink()
    assert sqnr(folder, "run").returncode == 0
    return latest(folder)


def same(run: Path, other: Path) -> bool:
    return all((run / name).read_bytes() == (other / name).read_bytes() for name in FILES)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_was_measured_is_not_measured_again_and_the_files_are_those_of_an_undisturbed_run(
    tmp_path, undisturbed, number
):
    run = begun(workspace(tmp_path), number)
    assert json.loads((run / "run.json").read_text())["status"] in ("running", "interrupted")
    ended = resumed(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert f"gate: 2 of 4 cases are measured -> {run}" in ended.stderr
    measured = [line.split()[1] for line in ended.stderr.splitlines() if line.startswith("[")]
    assert measured == ["b_held/small/seeded"] * 2
    assert same(run, undisturbed)
    assert json.loads((run / "run.json").read_text())["status"] == "complete"
    assert sorted(path.name for path in run.iterdir()) == sorted([*FILES, "logs", "run.json"])


def test_a_run_may_be_killed_again_and_a_line_cut_off_is_measured_again(tmp_path, undisturbed):
    run = begun(workspace(tmp_path), signal.SIGKILL)
    [part] = [path for path in (run / "parts").glob("*.jsonl") if "a_quick" in path.name]
    lines = part.read_bytes().splitlines(keepends=True)
    last = max(index for index, line in enumerate(lines) if b'"result"' in line)
    part.write_bytes(b"".join(lines[:last]) + lines[last][:100])
    again = resumed(tmp_path)
    assert "1 of 4 cases are measured" in again.stderr
    assert same(run, undisturbed)


def test_the_rows_of_a_case_that_two_processes_finished_are_taken_once(tmp_path, undisturbed):
    """A process outlives its killed parent by a second at most; meanwhile another may have gone on."""
    run = begun(workspace(tmp_path), signal.SIGKILL)
    [part] = [path for path in (run / "parts").glob("*.jsonl") if "a_quick" in path.name]
    part.with_name("000-a_quick-small-again1.jsonl").write_bytes(part.read_bytes())
    assert resumed(tmp_path).returncode == 0
    assert same(run, undisturbed)


def refusal(folder: Path, *args: str) -> str:
    ended = resumed(folder, *args)
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


def test_a_complete_run_is_not_gone_on_with(tmp_path):
    folder = workspace(tmp_path)
    (folder / "hold").unlink()
    sqnr(folder, "run", "-m", "a_quick", "-f", "x86-static")
    assert "is complete, nothing is left to measure: sqnr check" in refusal(folder)
    assert "choose nothing beside it" in refusal(folder, "-m", "a_quick")
    assert "only `sqnr run` measures with several instruction sets" in refusal(folder, "--isa", "all")
    assert "no run 'nosuch'" in sqnr(folder, "run", "--resume", "nosuch").stderr


def test_a_run_of_another_stack_or_other_pins_or_another_model_is_not_gone_on_with(tmp_path):
    run = begun(workspace(tmp_path), signal.SIGKILL)
    assert "another pins (ATEN_CPU_CAPABILITY avx2" in refusal(tmp_path, "--no-pin")
    header = json.loads((run / "run.json").read_text())
    elsewhere = header["environment"] | {"stack": {"torch": "1.0"}}
    (run / "run.json").write_text(json.dumps(header | {"environment": elsewhere}))
    assert "begun with another stack (torch 1.0, here torch 2." in refusal(tmp_path)
    (run / "run.json").write_text(json.dumps(header))
    adapter = tmp_path / "models" / "a_quick.py"
    adapter.write_text(adapter.read_text().replace("GAIN = 1.0", "GAIN = 2.0"))
    [part] = [path for path in (run / "parts").glob("*.jsonl") if "a_quick" in path.name]
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[: [b'"result"' in line for line in lines].index(True) + 1]))
    assert "a_quick/small/seeded is another model than when the run began" in refusal(tmp_path)


def test_a_run_that_is_still_measured_is_left_alone(tmp_path):
    folder = workspace(tmp_path)
    program = start(folder, "run", "-j", "1")
    try:
        while len(finished(folder)) < 2:
            time.sleep(0.2)
        assert "is still being measured by another process" in refusal(folder)
    finally:
        (folder / "hold").unlink()
        program.communicate(timeout=120)
    assert program.returncode == 0
