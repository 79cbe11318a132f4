"""Samples and noise floors through the real program: measured, stored, compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from harness import environment, table
from harness.measure.bootstrap import interval_db
from harness.measure.decibels import db
from harness.records import OutputRow
from harness.samples import FILE, name_of
from tests.program import TINY, latest, make_workspace, sqnr

NAME = "tiny/small/seeded/x86-static/released/converted/logits"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one run, and a baseline with floors of two jittered runs."""
    folder = make_workspace(tmp_path_factory.mktemp("measured"), tiny=TINY)
    assert sqnr(folder, "run", "-j", "1").returncode == 0
    assert sqnr(folder, "accept", "--because", "a test", "--noise-runs", "2", "-j", "1").returncode == 0
    return folder


def changed(folder: Path, name: str, **share: float) -> str:
    """A copy of the workspace's first run in which `s<sample>` has so small a share of its signal, and sample 0 the
    rest: the sums of all, and so the row, are as they were."""
    first = min((folder / "reports").glob("2*"))
    copy = folder / "reports" / name
    shutil.copytree(first, copy)
    sums = load_file(copy / FILE)
    for sample, times in share.items():
        signal = sums[NAME][0]
        signal[0] += (1 - times) * signal[int(sample[1:])]
        signal[int(sample[1:])] *= times
    save_file(sums, copy / FILE)
    return first.name


def test_a_run_keeps_the_sums_of_every_sample_of_every_row(measured: Path) -> None:
    run = min((measured / "reports").glob("2*"))
    rows = table.parse(run / "outputs.csv", OutputRow)
    sums = load_file(run / FILE)
    assert sorted(sums) == sorted(name_of(row.key) for row in rows)
    for row in rows:
        own = sums[name_of(row.key)]
        assert own.shape == (2, 8)
        signal, noise = own.sum(1).tolist()
        assert row.sqnr_db == pytest.approx(db(signal, noise), abs=1e-9)
        assert (row.sqnr_lo_db, row.sqnr_hi_db) == interval_db(own)
        assert row.sqnr_lo_db is not None
        assert row.sqnr_hi_db is not None
        assert row.sqnr_db is not None
        assert row.sqnr_lo_db <= row.sqnr_db <= row.sqnr_hi_db


def test_two_runs_of_one_stack_differ_in_no_sample(measured: Path) -> None:
    base = changed(measured, "20990101-000000-gate")
    ended = sqnr(measured, "compare", base, "20990101-000000-gate")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "samples that moved" not in ended.stdout


def test_one_collapsed_sample_fails_a_comparison_in_which_every_row_is_equal(measured: Path) -> None:
    base = changed(measured, "20990102-000000-gate", s5=1e-3)
    ended = sqnr(measured, "compare", base, "20990102-000000-gate")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "regressed tiny/small/seeded x86-static converted logits: sample_5_db " in ended.stdout
    assert "allowed drop 1.50 dB" in ended.stdout
    assert "tiny/small/seeded x86-static converted logits: collapsed: sample 5 " in ended.stdout
    against = measured / "reports" / "20990102-000000-gate" / f"against-{base}"
    (finding,) = json.loads((against / "verdict.json").read_text())["verdicts"][0]["findings"]
    assert finding["field"] == "sample_5_db"
    assert finding["old"] - finding["new"] == pytest.approx(30)  # a thousandth of the signal
    header, line = (against / "samples.csv").read_text().splitlines()
    assert dict(zip(header.split(","), line.split(","), strict=True))["collapsed"] == "5"


def test_runs_of_other_data_or_with_samples_of_another_run_are_not_paired(measured: Path) -> None:
    base = changed(measured, "20990104-000000-gate", s5=1e-3)
    file = measured / "reports" / "20990104-000000-gate" / "run.json"
    header = json.loads(file.read_text())
    header["input_hashes"]["tiny/small/seeded"]["evaluation"][0] = "0" * 64
    file.write_text(json.dumps(header))
    ended = sqnr(measured, "compare", base, "20990104-000000-gate")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "samples are not paired of tiny/small/seeded" in " ".join(ended.stdout.split())
    changed(measured, "20990105-000000-gate")
    sums = load_file(measured / "reports" / "20990105-000000-gate" / FILE)
    sums[NAME][1, 5] *= 1000
    save_file(sums, measured / "reports" / "20990105-000000-gate" / FILE)
    ended = sqnr(measured, "compare", base, "20990105-000000-gate")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = " ".join(ended.stdout.split())
    assert f"samples of 20990105-000000-gate do not add up to outputs.csv and are not paired: {NAME} (" in said


@pytest.mark.parametrize(("content", "said"), [(None, "not there; the run is of an older version"), (b"{", "damaged")])
def test_without_samples_rows_are_compared_and_a_note_says_why_samples_are_not(
    measured: Path, content: bytes | None, said: str
) -> None:
    name = f"20990103-00000{0 if content is None else 1}-gate"
    base = changed(measured, name, s5=1e-3)
    (measured / "reports" / name / FILE).unlink()
    if content is not None:
        (measured / "reports" / name / FILE).write_bytes(content)
    ended = sqnr(measured, "compare", base, name)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "note: samples are not compared: " in ended.stdout
    assert said in ended.stdout


@pytest.mark.skipif(environment.platform_name() != "linux-x86_64", reason="the instruction sets are those of x86")
def test_noise_says_how_far_another_instruction_set_moved_rows(measured: Path) -> None:
    base = min((measured / "reports").glob("2*")).name
    assert sqnr(measured, "run", "-j", "1", "--isa", "sse4").returncode == 0
    head = max((path for path in (measured / "reports").glob("2*") if path.name < "2099"), key=lambda path: path.name)
    ended = sqnr(measured, "noise", base, head.name)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{head.name} against {base}: |change| in noise floors" in ended.stdout
    assert "0 of " in ended.stdout
    content = json.loads(sqnr(measured, "noise", base, head.name, base, "--json").stdout)
    assert list(content["heads"]) == [head.name, base]
    assert content["heads"][base]["groups"]["outputs"]["moved"] == 0


def test_noise_without_floors_says_what_to_do(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, tiny=TINY)
    assert sqnr(folder, "run", "-j", "1").returncode == 0
    name = latest(folder).name
    assert sqnr(folder, "noise", name, name).returncode == 4
    assert sqnr(folder, "accept", "--because", "a test", "--noise-runs", "0").returncode == 0
    ended = sqnr(folder, "noise", name, name)
    assert ended.returncode == 5
    assert "share no row that has a noise floor in the baselines" in ended.stderr
