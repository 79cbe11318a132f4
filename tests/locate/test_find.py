"""What `locate` finds in released code, and in graphs with one defect put in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from harness import flows
from harness.adapter import Batch
from harness.flows import nncf
from harness.locate.against import Against
from harness.locate.find import Finder
from harness.located import Located
from harness.records import Cause, Status
from harness.workspace import load_module
from tests.fixes.test_nncf_conv_transpose import CONV_TRANSPOSE_2D
from tests.lab import adapter
from tests.locate.defects import (
    MODELS,
    CatHead,
    UnlikeHead,
    found_in,
    injected,
    located,
    requantized,
    shared,
    staged,
    with_head,
)
from tests.upstream import needs

needs("nncf", "executorch")

BRANCH = {"resnet": "layer2.0.conv2:conv2d.input", "bert": "bert.encoder.layer.1.output.dense:linear.input"}
HEAD = {"resnet": "fc", "bert": "classifier"}


def of_flow(model: str, flow: str) -> Located:
    return located(load_module(MODELS, model), "small", flows.load(flow))


def share(found: Located) -> float:
    """Of the difference, what the culprits explain."""
    return found.explained or 0.0


def test_the_hoisted_quantizer_explains_all_that_the_branches_of_slices_lost() -> None:
    """pytorch/executorch PR 24132: one quantize op above slices of [-1, 1.7] and [0, 100] takes the narrow range."""
    found = of_flow("slices", "cadence-hoist")
    [culprit] = found.culprits
    assert (found.against, culprit.kind, culprit.names) == ("+cadence-branch-hoist", "quantizer", ("slice_copy.self",))
    assert culprit.cause == Cause.CLIPPING
    assert culprit.local_db == pytest.approx(0.34, abs=0.05)
    assert culprit.new is None  # the repaired graph has no quantizer up there
    assert share(found) >= 0.9
    assert found.minimal
    assert found.passes <= 20
    assert culprit.readers == ("slice", "select", "select#1")
    local = {layer.name: layer.local_db or 0.0 for layer in found.layers}
    assert max(local["select"], local["select#1"]) < 1
    assert local["slice"] > 40  # whose range it has


def test_the_layer_scales_explain_what_convnext_lost() -> None:
    """openvinotoolkit/nncf issue 3576: parameters of a multiplication are quantized as activations."""
    found = of_flow("convnext", "nncf-mul")
    names = {name for culprit in found.culprits for name in culprit.names}
    assert names == {f"features.{stage}.{block}:mul.self" for stage in (1, 3) for block in (0, 1)}
    assert {culprit.cause for culprit in found.culprits} == {Cause.CLIPPING}
    assert share(found) >= 0.9
    assert found.minimal
    assert found.passes <= 20


@pytest.mark.parametrize("model", ["bert", pytest.param("resnet", marks=pytest.mark.slow)])
def test_fused_linears_of_vulkan_are_numerics_and_no_quantizers(model: str) -> None:
    """pytorch/executorch: `linear_qcs4w` packs nibbles with 8 added, and never takes it off."""
    found = of_flow(model, "vulkan-4w")
    assert {culprit.kind for culprit in found.culprits} == {"layer"}
    assert {culprit.cause for culprit in found.culprits} == {Cause.NUMERICS}
    assert all(culprit.names[0].endswith(":linear") for culprit in found.culprits)
    assert share(found) >= 0.9
    assert len({layer.name for layer in found.layers}) == len(found.layers)
    assert all(layer.status in (Status.MEASURED, Status.EXACT) for layer in found.layers)
    assert found.only_quantized  # what the edge dialect takes apart


def test_nothing_is_put_down_to_a_healthy_graph() -> None:
    found = of_flow("vit", "x86-static")
    assert found.against == "fitted"
    assert found.culprits == ()
    assert "no range is much at fault" in found.remark
    assert found.explained_db == found.sqnr_db


@pytest.mark.parametrize("model", ["resnet", pytest.param("bert", marks=pytest.mark.slow)])
class TestAnInjectedDefectRanksFirst:
    """From the damaged graph alone, and from the rows of the sound one."""

    def test_half_a_scale_in_a_residual_branch(self, model: str) -> None:
        flow = injected(convert=requantized(BRANCH[model], scale=0.5))
        self.check(found_in(load_module(MODELS, model), "small", flow), BRANCH[model], "clipping")

    def test_a_zero_point_off_by_twenty_behind_a_cat(self, model: str) -> None:
        name = f"{HEAD[model]}.head:linear.input"
        flow = injected(convert=requantized(name, zero_point=20))
        self.check(found_in(with_head(model, CatHead), "small", flow), name, "clipping")

    def test_one_observer_on_two_unlike_branches(self, model: str) -> None:
        place = HEAD[model]
        flow = injected(prepare=shared(f"{place}.small:linear.input", f"{place}.large:linear.input"))
        self.check(found_in(with_head(model, UnlikeHead), "small", flow), f"{place}.small:linear.input", "step_size")

    @staticmethod
    def check(found: dict[str, Located], name: str, cause: str) -> None:
        for one in found.values():
            assert name in one.culprits[0].names
            assert one.culprits[0].cause == cause
            assert share(one) >= 0.9
            assert one.passes <= 20


class Upsampling(nn.Module):
    """A transposed convolution with one output channel sixteen times smaller."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        sizes = torch.tensor([1.0, 1 / 16]).reshape(1, 2, 1, 1)
        self.up = nn.ConvTranspose2d(8, 2, 8, bias=False)
        self.up.weight = nn.Parameter(torch.randn(8, 2, 8, 8, generator=generator) * sizes)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both channels (N, 1, H + 7, W + 7)."""
        large, small = self.up(x).split(1, 1)
        return large, small


def test_scales_along_the_wrong_axis_are_the_weights() -> None:
    """openvinotoolkit/nncf: the channel axis of a transposed convolution's weight is 1, and 0 is taken."""
    flow = replace(
        nncf.flow("nncf-x86"),
        prepare=partial(nncf.prepare, CONV_TRANSPOSE_2D),
        calibrate=partial(nncf.quantize, CONV_TRANSPOSE_2D),
    )
    module = adapter(lambda: Upsampling().eval().requires_grad_(False), ("large", "small"), _images)
    scene, pipeline, subject = staged(module, "small", flow)
    found = Finder(scene, Against(pipeline, subject, scene, None).find("fitted")).find("small")
    assert share(found) >= 0.9
    assert (found.culprits[0].names, found.culprits[0].cause) == (("up:conv_transpose2d.weight",), Cause.AXIS)


def _images(_seed: int) -> list[Batch]:
    """The same ones for calibration, whose ranges then clip nothing."""
    generator = torch.Generator().manual_seed(0)
    return [Batch((torch.rand(8, 8, 6, 6, generator=generator),)) for _ in range(4)]
