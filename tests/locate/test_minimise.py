"""The smallest graph that shows a culprit, as programs that anybody can load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness import flows
from harness.errors import TableError
from harness.locate import minimal
from harness.locate.against import Against
from harness.locate.find import Finder
from harness.locate.minimise import Minimal, minimise
from harness.measure.metrics import sqnr_db
from harness.workspace import load_module
from tests.locate.defects import MODELS, staged
from tests.upstream import needs

needs("nncf", "executorch")


def made(model: str, flow: str, bundle: Path) -> Minimal | None:
    """The minimised graph of the first culprit of a released flow."""
    scene, pipeline, subject = staged(load_module(MODELS, model), "small", flows.load(flow))
    finder = Finder(scene, Against(pipeline, subject, scene, None).find(None))
    output = finder.worst()
    finder.find(output)
    return minimise(scene, finder.members[output][0], bundle / minimal.FOLDER)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the hoisted quantizer of slices."""
    folder = tmp_path_factory.mktemp("bundle")
    assert made("slices", "cadence-hoist", folder) is not None
    return folder


def test_a_quantizer_alone_on_one_sample_shows_the_hoisted_range(bundle: Path) -> None:
    """quantize, select, dequantize: a column of ink up to 100 held to 1.7."""
    record = json.loads((bundle / "minimal" / "minimal.json").read_text())
    assert record["nodes"] == 3
    assert record["culprit"] == ["slice_copy.self"]
    assert record["bad_db"] < 1
    assert record["good_db"] == 160
    tensors = load_file(bundle / "minimal" / "inputs.safetensors")
    assert {name: len(value) for name, value in tensors.items()} == {"0": 1, "reference": 1}


def test_the_programs_load_without_this_project_and_give_the_figures(bundle: Path) -> None:
    tensors = load_file(bundle / "minimal" / "inputs.safetensors")
    record = json.loads((bundle / "minimal" / "minimal.json").read_text())
    for name in ("bad", "good"):
        actual = torch.export.load(bundle / "minimal" / f"{name}.pt2").module()(tensors["0"])
        assert sqnr_db(reference=tensors["reference"], actual=actual) == record[f"{name}_db"]
    assert minimal.replay(bundle) == []


def test_a_changed_input_is_told_with_both_figures(bundle: Path, tmp_path: Path) -> None:
    copied = tmp_path / "minimal"
    copied.mkdir()
    for file in (bundle / "minimal").iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    tensors = load_file(copied / "inputs.safetensors")
    save_file({**tensors, "0": tensors["0"] / 2}, copied / "inputs.safetensors")
    lines = minimal.replay(tmp_path)
    assert [line.split()[0] for line in lines] == ["minimal/bad.pt2", "minimal/good.pt2"]
    assert all("gives other bits" in line for line in lines)


@pytest.mark.parametrize("name", ["bad.pt2", "inputs.safetensors", "minimal.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"PK\x03\x04"])
def test_a_damaged_file_is_named(bundle: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    copied = tmp_path / "minimal"
    copied.mkdir()
    for file in (bundle / "minimal").iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_bytes(content)
    with pytest.raises(TableError, match=f"minimal/{name}") as caught:
        minimal.replay(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "flow", "op"),
    [("convnext", "nncf-mul", "mul"), pytest.param("resnet", "vulkan-4w", "linear", marks=pytest.mark.slow)],
)
def test_parameters_and_fused_ops_are_shown_in_the_layer_that_reads_them(
    model: str, flow: str, op: str, tmp_path: Path
) -> None:
    found = made(model, flow, tmp_path)
    assert found is not None
    assert found.name.endswith(f":{op}")
    assert found.good_db is not None
    assert (found.bad_db or 0) < 10 < 20 < found.good_db
    assert minimal.replay(tmp_path) == []
    if op == "mul":
        bad = torch.export.load(tmp_path / "minimal" / "bad.pt2")
        assert "dequantize_per_tensor" in str(bad.graph)
