"""`sqnr run --exclude` from the command line to the reports, on a model that is measured in a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.records import QuantizerStatus
from harness.store import load_run
from tests.program import TINY, latest, make_workspace, sqnr

OTHER = TINY.replace("nn.Linear(16, 4)", "nn.Linear(16, 6), nn.Linear(6, 4)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose baseline is a whole run of the gate, and whose latest run left `2:*` in float."""
    made = make_workspace(tmp_path_factory.mktemp("excluded"), tiny=TINY, other=OTHER)
    assert sqnr(made, "run").returncode == 0
    assert sqnr(made, "accept", "--because", "start", "--noise-runs", "0").returncode == 0
    run = sqnr(made, "run", "-m", "tiny", "--exclude", "2:*")
    assert run.returncode == 0, run.stderr
    assert "left in float: 2:*" in run.stdout
    return made


def runs(folder: Path) -> list[Path]:
    return sorted(file.parent for file in (folder / "reports").glob("*/run.json"))


def test_the_run_says_what_was_left_in_float_and_is_no_whole_suite(folder):
    header = json.loads((latest(folder) / "run.json").read_text(encoding="utf-8"))
    assert (header["excluded"], header["filtered"], header["status"]) == (["2:*"], True, "complete")
    rows = load_run(latest(folder)).quantizers
    assert {row.quantizer: row.status for row in rows} == {
        "0:linear.input": QuantizerStatus.QUANTIZED,
        "0:linear.weight": QuantizerStatus.QUANTIZED,
        "2:linear.weight": QuantizerStatus.UNQUANTIZED,
    }


def test_compare_with_the_whole_run_shows_what_it_gained_and_no_other_case(folder):
    whole, without = (load_run(run) for run in runs(folder)[:2])
    old, new = (next(row.sqnr_db for row in run.outputs if row.case.model == "tiny" and row.point == "converted")
                for run in (whole, without))  # fmt: skip
    said = sqnr(folder, "compare", whole.name, without.name)
    assert new > old
    assert f"SQNR {new:.2f} dB, baseline {old:.2f} dB" in said.stdout
    assert f"note: run {without.name} left quantizers in float (--exclude): 2:*" in said.stdout
    assert "other/small" not in said.stdout
    report = (without.folder / f"against-{whole.name}" / "report.md").read_text(encoding="utf-8")
    assert f"{old:.2f} → {new:.2f} dB (+{new - old:.2f})" in report


def test_check_and_its_reports_say_it_and_advise_no_accept(folder):
    said = sqnr(folder, "check")
    assert said.returncode == 1
    assert "note: the run left quantizers in float (--exclude): 2:*" in said.stdout
    assert "sqnr accept" not in said.stdout
    report = (latest(folder) / "report.md").read_text(encoding="utf-8")
    assert report.index("left quantizers in float") < report.index("## ")
    assert "| ≠ | left in float | 2:\\* | nothing |" in report
    assert '<th scope="row">left in float</th><td>nothing</td><td>2:*</td>' in (
        latest(folder) / "report.html"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("named", [(), ("-m", "tiny"), ("--row", "tiny/*")])
def test_accept_refuses_it_however_it_is_asked(folder, named):
    refused = sqnr(folder, "accept", *named, "--because", "better")
    assert refused.returncode == 2
    assert "left quantizers in float (2:*): a baseline is what upstream makes of a model" in refused.stderr


def test_a_history_has_no_such_run(folder):
    said = sqnr(folder, "history")
    assert "quantizers were left in float (--exclude), which is no change over time" in said.stdout


def test_gate_takes_no_exclusion(folder):
    assert "No such option" in sqnr(folder, "gate", "--exclude", "2:*").stderr


@pytest.mark.slow
def test_a_name_that_one_model_has_fails_the_other_alone(tmp_path):
    made = make_workspace(tmp_path, tiny=TINY, other=OTHER)
    assert sqnr(made, "run", "--exclude", "3:linear.input").returncode == 0
    errors = {row.case.model: row.error for row in load_run(latest(made)).outputs if row.point == "converted"}
    assert errors["other"] == ""
    assert errors["tiny"].startswith("no quantizer named '3:linear.input' among 4; did you mean ")


def test_a_name_that_no_model_has_is_a_usage_error(tmp_path):
    made = make_workspace(tmp_path, tiny=TINY)
    said = sqnr(made, "run", "--exclude", "2:linear.wieght")
    assert said.returncode == 2
    [line] = [line for line in said.stderr.splitlines() if line.startswith("sqnr: ")]
    assert "no quantizer named '2:linear.wieght' among 4; did you mean 2:linear.weight" in line
