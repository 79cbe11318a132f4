"""The baselines in this repository, held against this repository's code and models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness import baseline as baselines
from harness import flows
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
    quantized = [row for row in accepted.outputs.values() if row.point in ("converted", "lowered")]
    assert {(row.model, row.size) for row in quantized} == {
        (model, size) for model in ("bert", "convnext", "resnet", "slices", "vit") for size in ("small", "full")
    }
    failed = {(row.model, row.flow, row.variant) for row in quantized if row.status.startswith("failed")}
    int8_convolutions = {(name, "arm-static-s8s8f32-per-channel", "released") for name in ("convnext", "resnet", "vit")}
    assert failed == {("bert", "xnnpack", "released"), *int8_convolutions}
    measured = [row for row in quantized if not row.status.startswith("failed")]
    assert all(row.noise_db is not None and row.sqnr_db is not None for row in measured)
    assert {row.flow for row in quantized if row.size == "small"} == set(flows.BUILTIN)
    assert {row.flow for row in quantized if row.size == "full"} > {"nncf-mul", "cadence-hoist", "vulkan-4w", "xnnpack"}


def test_every_layer_scale_is_bounded_by_its_absmax_once_repaired(accepted):
    """All 18 blocks of ConvNeXt-Tiny; the first has the statistics of the published network (nncf issue 3576)."""
    rows = {
        (row.variant, row.quantizer.partition(":")[0]): row
        for row in accepted.quantizers.values()
        if (row.model, row.size, row.flow) == ("convnext", "full", "nncf-mul") and ":mul." in row.quantizer
    }
    blocks = {block for _, block in rows}
    assert len(blocks) == 18
    for block in blocks:
        released, repaired = rows["released", block], rows["+nncf-mul-parameter", block]
        absmax = max(repaired.observed_hi, -repaired.observed_lo)
        assert repaired.hi == pytest.approx(absmax, abs=1e-6)
        assert released.hi < absmax / 2
        assert released.cause == "clipping"
    first = rows["released", "features.1.0"], rows["+nncf-mul-parameter", "features.1.0"]
    assert max(first[0].observed_hi, -first[0].observed_lo) == pytest.approx(0.226632953, abs=1e-6)
    assert [row.hi for row in first] == pytest.approx([0.092455307, 0.226632945], abs=1e-6)


@pytest.mark.parametrize("size", ["small", "full"])
def test_the_hoist_hurts_the_wide_branch_alone_and_is_undone_when_repaired(accepted, size):
    def levels(variant: str, point: str) -> dict[str, float]:
        return {
            row.output: row.sqnr_db
            for row in accepted.outputs.values()
            if (row.model, row.size, row.flow) == ("slices", size, "cadence-hoist")
            and (row.variant, row.point) == (variant, point)
        }

    converted, released = levels("released", "converted"), levels("released", "lowered")
    assert levels("+cadence-branch-hoist", "lowered") == pytest.approx(converted, abs=1e-3)
    assert min(converted.values()) >= 17
    assert released["digit"] == pytest.approx(converted["digit"], abs=0.1)
    assert max(released["centre"], released["quadrants"]) < 3


def test_where_no_branch_is_hoisted_the_fix_is_inert(accepted):
    states = {
        (row.model, row.fix_state)
        for row in accepted.outputs.values()
        if (row.variant, row.point) == ("+cadence-branch-hoist", "lowered")
    }
    others = {(model, "inert") for model in ("bert", "convnext", "resnet", "vit")}
    assert states == {("slices", "needed"), *others}


def test_repaired_4_bit_linears_lose_nothing_in_fusing(accepted):
    rows = [row for row in accepted.outputs.values() if row.flow == "vulkan-4w"]
    converted = {(row.model, row.size, row.output): row.sqnr_db for row in rows if row.point == "converted"}
    both = "+vulkan-qcs4w-odd-channels+vulkan-qcs4w-offset"
    for row in rows:
        if row.point == "lowered":
            gap = abs(row.sqnr_db - converted[row.model, row.size, row.output])
            assert (gap < 0.01) == (row.variant in (both, "+vulkan-qcs4w-offset"))


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
