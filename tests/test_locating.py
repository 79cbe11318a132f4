"""`sqnr locate` as a program: what it looks into, says, writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import located
from tests.program import TINY, latest, make_workspace, sqnr

WORSE = TINY.replace("model[2].weight.data *= GAIN", "model[2].weight.data[0, 0] = 60.0")
"""One weight so large that its row's per-channel scale leaves nothing of the others."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a baseline, and a run after it that fails."""
    folder = make_workspace(tmp_path_factory.mktemp("judged"), tiny=TINY)
    assert sqnr(folder, "gate").returncode == 4  # nothing was accepted yet
    accepted = sqnr(folder, "accept", "--because", "first", "--noise-runs", "0")
    assert accepted.returncode == 0, accepted.stderr
    (folder / "models" / "tiny.py").write_text(WORSE, encoding="utf-8")
    assert sqnr(folder, "gate").returncode == 1
    return folder


def records(folder: Path) -> list[located.Located]:
    return located.read(folder)


def test_the_failing_rows_of_a_run_are_looked_into_and_its_reports_gain_them(judged: Path) -> None:
    run = latest(judged)
    done = sqnr(judged, "locate", run.name)
    assert done.returncode == 0, done.stderr
    [record] = records(run / "located")
    assert (record.case.model, record.point, record.output) == ("tiny", "converted", "logits")
    assert f"culprits of {record.case} converted logits" in done.stdout
    assert "Culprits" in (run / "report.html").read_text(encoding="utf-8")
    assert "Culprits" in (run / "report.md").read_text(encoding="utf-8")
    assert record.passes <= 20


def test_what_was_located_can_be_replayed(judged: Path) -> None:
    done = sqnr(judged, "locate", "-m", "tiny", "-f", "x86-static", "--minimise", "-o", "found")
    assert done.returncode == 0, done.stderr
    [record] = records(judged / "found")
    replayed = sqnr(judged, "replay", f"found/{record.stem}")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "reproduced to the last bit" in replayed.stdout


def test_without_a_run_records_and_their_page_lie_among_the_reports(judged: Path) -> None:
    done = sqnr(judged, "locate", "-m", "tiny", "-f", "x86-static", "--json")
    assert done.returncode == 0, done.stderr
    [printed] = json.loads(done.stdout)
    assert "report: " in done.stderr
    [record] = records(judged / "reports" / "located")
    assert (printed["model"], printed["sqnr_db"]) == ("tiny", record.sqnr_db)
    assert (judged / "reports" / "located" / "located.html").stat().st_size > 100_000


def test_sensitivity_ranks_every_share_group_and_a_second_call_takes_its_answers(judged: Path) -> None:
    first = sqnr(judged, "locate", "-m", "tiny", "-f", "x86-static", "--sensitivity", "-o", "sensitive")
    assert first.returncode == 0, first.stderr
    [kept] = (judged / "sensitive").glob("*.jsonl")
    before = kept.read_bytes()
    [record] = records(judged / "sensitive")
    levels = [one.float_db or 0 for one in record.sensitivity]
    assert levels == sorted(levels, reverse=True)
    assert len(levels) == before.count(b"\n")
    again = sqnr(judged, "locate", "-m", "tiny", "-f", "x86-static", "--sensitivity", "-o", "sensitive")
    assert again.returncode == 0, again.stderr
    assert kept.read_bytes() == before


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "locate what?"),
        (("-m", "tony"), 2, "did you mean tiny?"),
        (("-m", "tiny", "--against", "+nothing"), 2, "no source to locate against named '+nothing'"),
        pytest.param(("-m", "tiny", "--output", "logit"), 2, "did you mean logits?", marks=pytest.mark.slow),
        (("-m", "tiny", "--point", "middle"), 2, "--point middle"),
        (("-m", "tiny", "--point", "lowered"), 2, "flow x86-static has no point lowered"),
        (("nowhere",), 2, "no run 'nowhere'"),
    ],
)
def test_what_cannot_be_looked_into_is_one_line(judged: Path, args: tuple[str, ...], code: int, said: str) -> None:
    done = sqnr(judged, "locate", *args)
    assert said in done.stdout + done.stderr
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_run_of_another_model_than_the_present_one_is_told(judged: Path) -> None:
    first = min((judged / "reports").glob("*/run.json")).parent
    done = sqnr(judged, "locate", first.name, "-m", "tiny", "-o", "since")
    assert done.returncode == 0, done.stderr
    assert f"and was 20.14 dB in run {first.name}" in done.stdout


def test_a_run_in_which_nothing_fails_says_so(judged: Path) -> None:
    first = min((judged / "reports").glob("*/run.json")).parent
    done = sqnr(judged, "locate", first.name)
    assert "no row fails; name the cases" in done.stderr
    assert done.returncode == 5


@pytest.mark.slow
def test_rows_of_a_run_that_failed_at_a_stage_are_named(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, tiny=TINY)
    raising = TINY.replace("model = nn.Sequential(", "model = Raises(")
    (folder / "models" / "tiny.py").write_text(
        raising + "\n\nclass Raises(nn.Sequential):\n    def forward(self, x):\n"
        "        if x.sum() > 1e9:\n            return x\n        return super().forward(x)\n",
        encoding="utf-8",
    )
    assert sqnr(folder, "gate").returncode == 4
    done = sqnr(folder, "locate", latest(folder).name)
    assert done.returncode == 4
    assert "tiny/small/seeded x86-static converted: failed:export" in done.stdout


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(judged: Path) -> None:
    (judged / "a-file").write_text("")
    done = sqnr(judged, "locate", "-m", "tiny", "-o", "a-file")
    assert done.returncode == 2
    assert "a-file: cannot be written" in done.stderr


@pytest.mark.slow
def test_one_point_of_a_run_is_looked_into_once(judged: Path) -> None:
    done = sqnr(judged, "locate", latest(judged).name, "--point", "converted", "-o", "once")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("culprits of") == 1


def test_a_stage_that_fails_is_told_with_its_log_and_others_go_on(tmp_path: Path) -> None:
    raising = TINY.replace("nn.ReLU()", "Raises()") + (
        "\n\nclass Raises(nn.Module):\n    def forward(self, x):\n"
        "        if torch.compiler.is_compiling():\n            raise ValueError('not today')\n        return x\n"
    )
    folder = make_workspace(tmp_path, sound=TINY, broken=raising)
    done = sqnr(folder, "locate", "-m", "sound", "-m", "broken", "-f", "x86-static")
    assert done.returncode == 4
    assert "culprits of sound/small/seeded" in done.stdout
    assert "broken/small/seeded x86-static: " in done.stdout
    [log] = (folder / "reports" / "located").glob("*error*.log")
    assert "Traceback" in log.read_text(encoding="utf-8")
