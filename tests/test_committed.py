"""The baselines in this repository, held against this repository's code and models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness import baseline as baselines
from harness.environment import platform_name
from harness.records import QuantizerStatus, Role
from harness.workspace import find_workspace
from tests.program import sqnr, verdict

REPOSITORY = Path(__file__).parents[1]
WORKSPACE = find_workspace(REPOSITORY)

pytestmark = pytest.mark.skipif(
    not any(WORKSPACE.platform_baselines.glob("*.csv")), reason=f"no baselines for {platform_name()}"
)


@pytest.fixture(scope="module")
def accepted() -> baselines.Baseline:
    return baselines.read(WORKSPACE.platform_baselines)


def test_the_gate_is_ok_on_the_committed_baselines(repository_copy):
    found = sqnr(repository_copy, "gate", "-j", "2")
    assert found.returncode == 0, found.stdout + found.stderr
    content = verdict(repository_copy)
    assert content["counts"]["ok"] == sum(content["counts"].values()) > 1000


def test_both_suites_are_accepted_with_a_noise_floor(accepted):
    converted = [row for row in accepted.outputs.values() if row.point == "converted"]
    assert {(row.model, row.size) for row in converted} == {
        (model, size) for model in ("bert", "convnext", "resnet", "slices", "vit") for size in ("small", "full")
    }
    assert all(row.noise_db is not None and row.sqnr_db is not None for row in converted)
    assert len({row.flow for row in converted if row.size == "small"}) == 10
    assert len({row.flow for row in converted if row.size == "full"}) == 3


def test_vit_base_keeps_24_of_its_49_linears_in_float(accepted):
    """X86InductorQuantizer does not annotate those inside MultiheadAttention; the patch embedding is a conv."""
    weights = [
        row
        for row in accepted.quantizers.values()
        if (row.model, row.size, row.flow, row.role) == ("vit", "full", "x86-static", Role.WEIGHT)
        and ":linear" in row.quantizer
    ]
    floats = [row.quantizer for row in weights if row.status == QuantizerStatus.UNQUANTIZED]
    assert (len(floats), len(weights)) == (24, 49)
    assert all("self_attention" in name for name in floats)


def test_the_wheel_is_a_workspace_of_its_own(tmp_path):
    """Its baselines and models lie inside the package, so `pip install` and `sqnr gate` work in an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(next(tmp_path.glob("*.whl"))), str(site)], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    found = sqnr(empty, "gate", "-j", "1", "-m", "slices", "-f", "x86-static", PYTHONPATH=str(site))
    assert found.returncode == 0, found.stdout + found.stderr
    assert [path.name for path in empty.iterdir()] == ["reports"]
    refused = sqnr(empty, "accept", "-m", "slices", "--because", "x", PYTHONPATH=str(site))
    assert (refused.returncode, "the built-in workspace" in refused.stderr) == (2, True)
