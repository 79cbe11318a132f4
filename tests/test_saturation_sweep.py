"""`sqnr run --isa` on real kernels: one crafted layer that saturates without VNNI, and a real model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import bundle, table
from harness.environment import VNNI, chosen_isas, isa_of
from harness.errors import UsageError
from harness.records import OutputRow
from harness.store import load_run
from tests.program import make_workspace, sqnr

POSITIVE = """
import torch
from harness.adapter import Batch, Size

SIZES = {"small": Size(("seeded",), ("logits",))}


def build(size, weights, seed):
    layer = torch.nn.Linear(64, 16, bias=False).eval()
    layer.weight.data = torch.rand(16, 64, generator=torch.Generator().manual_seed(seed))
    return layer.requires_grad_(False)


def calibration(size, seed):
    yield Batch((torch.rand(32, 64, generator=torch.Generator().manual_seed(seed + 1)),))


def evaluation(size, seed):
    yield Batch((torch.rand(32, 64, generator=torch.Generator().manual_seed(seed + 2)),))
"""
"""Inputs and weights in [0, 1], as in pytorch/pytorch issue 126521: codes up to 255 and 127, all products positive."""
REDUCED = '''
from dataclasses import replace
from functools import partial

from harness import flows
from harness.flows.pt2e import prepare


def quantizer():
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    config = x86.get_default_x86_inductor_quantization_config(reduce_range=True)
    return x86.X86InductorQuantizer().set_global(config)


flow = replace(flows.load("x86-static"), name="x86-reduced", prepare=partial(prepare, quantizer))
"""x86-static with activations of 7 bits: 2 x 127 x 127 is 32,258, which int16 holds."""
'''
SETTINGS = """
[tool.sqnr.suites.gate]
size = "small"
flows = ["x86-static"]
lowered = ["*"]
"""
BOTH = SETTINGS.replace('"x86-static"', '"x86-static", "x86-reduced"')


def with_vnni() -> str:
    """The best instruction set of this processor if it has VNNI."""
    try:
        best = chosen_isas(["all"])[0]
    except UsageError:
        return ""
    return best if best in VNNI else ""


pytestmark = pytest.mark.skipif(not with_vnni(), reason="this processor has no VNNI to hold int16 sums against")


def installed(site: Path) -> dict[str, str]:
    """The environment of a program beside which the flow is installed."""
    metadata = site / "reduced-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "reduced.py").write_text(REDUCED, encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: reduced\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[sqnr.flows]\nx86-reduced = reduced:flow\n", encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}


def stored(folder: Path) -> dict[str, dict[tuple[str, str], OutputRow]]:
    """Lowered rows of each run in the order in which they were measured, by instruction set, then flow and output."""
    runs = [load_run(path.parent) for path in sorted((folder / "reports").glob("*/run.json"))]
    assert all(run.status == "complete" for run in runs)
    return {
        isa_of(run.environment["pins"]): {
            (row.flow, row.output): row
            for row in table.parse(run.folder / "outputs.csv", OutputRow)
            if row.point == "lowered"
        }
        for run in runs
    }


def test_a_layer_whose_pairs_of_products_overflow_int16_saturates(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, SETTINGS, positive=POSITIVE)
    best = with_vnni()
    ended = sqnr(folder, "run", "-j", "1", "--isa", "avx2", "--isa", best)
    assert ended.returncode == 0, ended.stderr
    runs = stored(folder)
    assert list(runs) == [best, "avx2"]
    right, saturated = (rows["x86-static", "logits"] for rows in runs.values())
    assert (right.int8_linears, saturated.int8_linears) == (1, 1)
    assert (right.cause, saturated.cause) == ("", "saturation")
    assert right.kernel_db > 100
    assert 25 < saturated.kernel_db < 35
    assert "avx2: 1 of 1 outputs saturate, their rows have the cause saturation" in ended.stdout


@pytest.mark.slow
def test_with_activations_of_7_bits_nothing_saturates(tmp_path: Path) -> None:
    environ = installed(tmp_path / "site")
    folder = make_workspace(tmp_path / "work", BOTH, positive=POSITIVE)
    ended = sqnr(folder, "run", "-j", "1", "--isa", "all", **environ)
    assert ended.returncode == 0, ended.stderr
    for isa, rows in stored(folder).items():
        assert rows["x86-static", "logits"].cause == ("" if isa in VNNI else "saturation")
        reduced = rows["x86-reduced", "logits"]
        assert (reduced.int8_linears, reduced.cause) == (1, "")
        assert reduced.kernel_db > 100


@pytest.mark.slow
def test_a_bundle_is_replayed_under_the_instruction_set_of_its_row(tmp_path: Path) -> None:
    """A row that saturates is reproduced too: it can be measured alone, though not be told alone."""
    folder = make_workspace(tmp_path, SETTINGS, positive=POSITIVE)
    assert sqnr(folder, "run", "-j", "1", "--isa", "avx2", "--isa", with_vnni()).returncode == 0
    for run in map(load_run, sorted((folder / "reports").iterdir())):
        (row,) = (row for row in run.outputs if row.point == "lowered")
        bundle.write(folder / run.name, row, [], bundle.facts_of(run, row.case), [])
        replayed = sqnr(folder, "replay", run.name)
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
        assert replayed.stdout.splitlines() == [f"reproduced to the last bit: {row.sqnr_db:.2f} dB"]


@pytest.mark.slow
def test_a_trained_resnet_saturates_under_every_instruction_set_without_vnni(
    tmp_path: Path, repository_copy: Path
) -> None:
    environ = installed(tmp_path / "site")
    chosen = ("-m", "resnet", "-f", "x86-static", "-f", "x86-reduced", "--variant", "released", "--lower")
    ended = sqnr(repository_copy, "run", "-j", "1", "--isa", "all", *chosen, **environ)
    assert ended.returncode == 0, ended.stderr
    runs = stored(repository_copy)
    assert tuple(runs) == chosen_isas(["all"])
    for isa, rows in runs.items():
        full, reduced = rows["x86-static", "logits"], rows["x86-reduced", "logits"]
        assert (full.int8_convs, full.int8_linears) == (reduced.int8_convs, reduced.int8_linears) == (21, 1)
        assert (full.cause, reduced.cause) == ("" if isa in VNNI else "saturation", "")
        assert full.sqnr_db == pytest.approx(38.7 if isa in VNNI else 24.7, abs=0.5)
        assert reduced.sqnr_db == pytest.approx(36.1, abs=0.5)
