"""What is left of a verdict where its reports cannot be written: all of it, and one line that says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.workspace import Workspace
from tests.program import sqnr
from tests.reported import STORED, files, reported, text

HIDING = """
import importlib.abc, os, sys

class Hiding(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in os.environ.get("BROKEN", "").split(","):
            raise ImportError(f"{name}: wrong version of a library")

sys.meta_path.insert(0, Hiding())
"""
"""Breaks the import of packages that are installed, as a half-updated environment does."""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return reported(tmp_path / "work")


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """Environment in which packages named in BROKEN cannot be imported."""
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(HIDING, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path / "hiding")}


@pytest.mark.parametrize("package", ["jinja2", "plotly", "itables", "junitparser"])
def test_a_broken_package_costs_the_reports_and_not_the_verdict(
    workspace: Workspace, broken: dict[str, str], package: str
) -> None:
    assert sqnr(workspace.start, "check", "bad").returncode == 1
    found = sqnr(workspace.start, "check", "bad", BROKEN=package, **broken)
    assert found.returncode == 1, found.stderr
    assert "numerics got worse or changed: 2 ok, 1 regressed (exit 1)" in found.stdout
    assert "verdict.json is the only report: " in found.stderr
    assert package in found.stderr
    left = files(workspace.reports / "bad")
    assert {"report.html", "report.md", "junit.xml"} & left == set(), "older reports would say something else"
    assert json.loads(text(workspace.reports / "bad", "verdict.json"))["exit_code"] == 1


def test_a_broken_package_of_the_history_costs_its_section_alone(workspace: Workspace, broken: dict[str, str]) -> None:
    assert sqnr(workspace.start, "history").returncode == 0
    found = sqnr(workspace.start, "check", "good", BROKEN="pyarrow", **broken)
    assert found.returncode == 0, found.stderr
    assert "sqnr: the report has no history: " in found.stderr
    assert "report.html" in files(workspace.reports / "good")


def test_an_unreadable_baseline_leaves_no_report_that_says_something_else(workspace: Workspace) -> None:
    assert sqnr(workspace.start, "check", "good").returncode == 0
    (csv,) = workspace.platform_baselines.glob("*.outputs.csv")
    csv.write_text(csv.read_text(encoding="utf-8") + "cut,off\n", encoding="utf-8")
    summary = workspace.start / "summary.md"
    found = sqnr(workspace.start, "check", "good", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))
    assert found.returncode == 2
    assert f"{csv}:" in found.stderr
    assert files(workspace.reports / "good") - {"sheets/outputs.csv", "sheets/quantizers.csv"} == STORED | {
        "verdict.json", "report.md"
    }  # fmt: skip
    assert text(workspace.reports / "good", "report.md").startswith("<!-- sqnr-harness:gate -->\n# ❌ ")
    assert "2 cells" in summary.read_text(encoding="utf-8")
    assert any(line.startswith("::error title=sqnr::") for line in found.stderr.splitlines())


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_encoding_that_lacks_a_sign_loses_no_verdict(workspace: Workspace, encoding: str) -> None:
    found = sqnr(workspace.start, "check", "bad", PYTHONIOENCODING=encoding)
    assert found.returncode == 1, found.stderr
    assert "regressed resnet/small/trained x86-static converted logits: SQNR 24.00 dB" in found.stdout
    assert "report.html" in files(workspace.reports / "bad")


@pytest.mark.parametrize(
    "args",
    [
        ("check", "x\n::error::pwned ##[error]pwned\x1b[31m"),
        ("accept", "good", "--because", "x", "--dry-run", "--row", "x\n::error::pwned ##[error]pwned\x1b[31m"),
        ("history", "x\n::error::pwned ##[error]pwned\x1b[31m"),
        ("report", "good", "--x\n::error::pwned ##[error]pwned\x1b[31m"),
    ],
)
def test_no_argument_speaks_to_github_or_the_terminal(workspace: Workspace, args: tuple[str, ...]) -> None:
    found = sqnr(workspace.start, *args)
    lines = (found.stdout + found.stderr).splitlines()
    assert found.returncode == 2, found.stderr
    assert any("pwned" in line for line in lines)
    assert not [line for line in lines if line.startswith("::") or "##[" in line or "\x1b" in line]
