"""A measuring process that dies, hoards memory or talks rubbish is failed rows for what it owed; the others go on."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from harness import memory
from harness.adapter import Size
from harness.parts import GroupResult, PartReader
from harness.runner import Workers, jobs_for
from tests.lab import lab_case
from tests.program import TINY, latest, make_workspace, sqnr

SETTINGS = """
[tool.sqnr.suites.gate]
size = "small"
flows = ["x86-dynamic", "x86-static"]
"""
BREAKING = TINY.replace(
    "def evaluation(size, seed):\n",
    """
def evaluation(size, seed):
    import ctypes, os, pathlib, signal
    links = [os.path.realpath(link) for link in pathlib.Path("/proc/self/fd").iterdir()]
    part = pathlib.Path(next(link for link in links if link.endswith(".jsonl")))
    if '"result"' in part.read_text():
        HOW
""",
)
"""`TINY`, which does `HOW` when its data are asked for after its first case was measured."""


def broken(folder: Path, how: str, *args: str) -> dict[tuple[str, str, str], dict[str, str]]:
    """Output rows by model, flow and point of a run of two models, of which the first breaks in its second case."""
    make_workspace(folder, SETTINGS, a_breaks=BREAKING.replace("HOW", how), b_goes_on=TINY)
    ended = sqnr(folder, "run", "-j", "1", *args)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    with (latest(folder) / "outputs.csv").open() as file:
        return {(row["model"], row["flow"], row["point"]): row for row in csv.DictReader(file)}


def log(folder: Path) -> str:
    return "".join(path.read_text() for path in (latest(folder) / "logs").glob("*a_breaks*.log"))


POINTS = ("float", "prepared", "converted")


@pytest.mark.parametrize(
    ("how", "error", "logged"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "the measuring process died (killed by SIGKILL)", ""),
        ("ctypes.string_at(0)", "the measuring process died (killed by SIGSEGV)", "Segmentation fault"),
        ("print('last words', flush=True), os.abort()", "the measuring process died (killed by SIGABRT)", "last words"),
        ("os._exit(3)", "the measuring process died (exit code 3)", ""),
        ("part.open('a').write('no record\\n')", "the measuring process wrote what is no record (JSONDecodeError", ""),
    ],
    ids=["kill -9", "segmentation fault", "abort", "exit", "rubbish"],
)
def test_what_it_had_measured_stays_and_what_it_owed_is_failed_rows_with_its_log(tmp_path, how, error, logged):
    rows = broken(tmp_path, how)
    kept = [rows["a_breaks", "x86-dynamic", point] for point in POINTS]
    assert [row["status"] for row in kept] == ["exact", "exact", "measured"]
    owed = [rows["a_breaks", "x86-static", point] for point in POINTS]
    assert {row["status"] for row in owed} == {"failed:measure"}
    assert all(row["error"].startswith(error) for row in owed), owed[0]["error"]
    others = [row for key, row in rows.items() if key[0] == "b_goes_on"]
    assert len(others) == 6
    assert {row["status"] for row in others} == {"exact", "measured"}
    assert logged in log(tmp_path)


def test_what_asks_for_more_memory_than_it_may_have_fails_where_it_asked_and_goes_on(tmp_path):
    rows = broken(tmp_path, "torch.empty(6 * 2**30, dtype=torch.uint8)", "--memory", "5")
    assert {row["status"] for key, row in rows.items() if key[0] == "b_goes_on"} == {"exact", "measured"}
    failed = rows["a_breaks", "x86-static", "converted"]
    assert failed["status"] == "failed:measure"
    assert "you tried to allocate 6442450944 bytes" in failed["error"]


# What is measured side by side


@pytest.mark.parametrize(
    ("room", "running", "fits"),
    [
        (8.0, [], True),
        (8.0, [4.0], True),  # 4 + 4 <= 8
        (7.9, [4.0], False),
        (1.0, [], True),  # one alone always, or nothing would ever be measured
        (99.0, [1.0, 1.0], False),  # two workers
    ],
)
def test_groups_run_side_by_side_as_far_as_there_are_workers_and_memory(tmp_path, room, running, fits):
    sizes = {"lab": {"small": Size(("seeded",), ("head",), memory=4.0)}}
    [job] = jobs_for(tmp_path, [(lab_case(),)], None, 0, tmp_path, tmp_path, sizes=sizes)
    assert job.memory == 4.0
    others = []
    for gib in running:
        other = {"lab": {"small": Size(("seeded",), ("head",), memory=gib)}}
        others += jobs_for(tmp_path, [(lab_case(),)], None, 0, tmp_path, tmp_path, sizes=other)
    with Workers(2, 60) as workers:
        held = [PartReader(GroupResult(item)) for item in others]
        assert workers._fits(PartReader(GroupResult(job)), held, room) is fits


def test_a_container_has_what_its_limit_leaves(tmp_path):
    machine = memory.free_memory(tmp_path / "none")
    for limit, used, free in (("max", "0", machine), (str(2**30), str(2**29), 0.5), (str(2**60), "0", machine)):
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(used + "\n")
        assert memory.free_memory(tmp_path) == pytest.approx(free, rel=0.2)


# What is a record

ROW = {"model": "lab", "size": "small", "weights": "seeded", "flow": "x86-static", "variant": "released"}
ROW |= {"point": "float", "output": "head", "status": "exact"}
RESULT = {"result": dict(list(ROW.items())[:5]), "outputs": [ROW], "quantizers": [], "samples": [""]}
RESULT |= {"seconds": {"total": 1.0}}


def read(folder: Path, *lines: str) -> GroupResult:
    [job] = jobs_for(folder, [(lab_case(),)], None, 0, folder, folder)
    job.part.write_text("".join(lines))
    reader = PartReader(GroupResult(job))
    reader.read()
    return reader.result


def test_a_result_is_taken_once_it_is_a_whole_line(tmp_path):
    line = json.dumps(RESULT) + "\n"
    assert [row.output for row in read(tmp_path, line).outputs] == ["head"]
    assert read(tmp_path, line[:-1]).outputs == []
    assert read(tmp_path, line[:-1]).broken == ""


@pytest.mark.parametrize(
    "record",
    [
        {**RESULT, "outputs": [{**ROW, "sqnr_db": "12"}]},
        {**RESULT, "outputs": [{**ROW, "numel": 1.5}]},
        {**RESULT, "outputs": [{**ROW, "extra": 1}]},
        {**RESULT, "outputs": [{**ROW, "sqnr_db": float("nan")}]},
        {**RESULT, "outputs": [{**ROW, "model": "other"}]},
        {**RESULT, "outputs": [None]},
        {**RESULT, "result": {**RESULT["result"], "flow": "x86-dynamic"}},
        {key: value for key, value in RESULT.items() if key != "seconds"},
        [1, 2],
        "text",
        {},
    ],
)
def test_anything_else_breaks_the_group_and_nothing_after_it_is_believed(tmp_path, record):
    found = read(tmp_path, json.dumps(record) + "\n", json.dumps(RESULT) + "\n")
    assert found.broken.startswith("the measuring process wrote what is no record (")
    assert "\n" not in found.broken
    assert (found.outputs, found.finished) == ([], set())


def test_a_second_result_of_a_case_breaks_the_group_and_the_first_stays(tmp_path):
    line = json.dumps(RESULT) + "\n"
    found = read(tmp_path, line, line)
    assert len(found.outputs) == 1
    assert "a second result of lab/small/seeded x86-static" in found.broken
