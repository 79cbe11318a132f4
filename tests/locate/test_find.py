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
from harness.located import Located
from harness.records import Cause, Status
from harness.workspace import load_module
from tests.fixes.test_nncf_conv_transpose import CONV_TRANSPOSE_2D
from tests.lab import adapter
from tests.locate.defects import (
    MODELS,
    CatHead,
    UnlikeHead,
    baseline_of,
    injected,
    located,
    requantized,
    shared,
    with_head,
)
from tests.upstream import needs

needs("nncf", "executorch")

BRANCH = {"resnet": "layer2.0.conv2:conv2d.input", "bert": "bert.encoder.layer.1.output.dense:linear.input"}
HEAD = {"resnet": "fc", "bert": "classifier"}


def of_flow(model: str, flow: str, variant: str = "released") -> Located:
    return located(load_module(MODELS, model), "small", flows.load(flow), None, variant=variant)


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


@pytest.mark.parametrize("model", ["resnet", "bert"])
def test_fused_linears_of_vulkan_are_numerics_and_no_quantizers(model: str) -> None:
    """pytorch/executorch: `linear_qcs4w` packs nibbles with 8 added, and never takes it off."""
    found = of_flow(model, "vulkan-4w")
    assert {culprit.kind for culprit in found.culprits} == {"layer"}
    assert {culprit.cause for culprit in found.culprits} == {Cause.NUMERICS}
    assert all(culprit.names[0].endswith(":linear") for culprit in found.culprits)
    assert share(found) >= 0.9


def test_nothing_is_put_down_to_a_healthy_graph() -> None:
    found = of_flow("vit", "x86-static")
    assert found.against == "fitted"
    assert found.culprits == ()
    assert "no range is much at fault" in found.remark
    assert found.explained_db == found.sqnr_db


def test_all_layers_of_both_graphs_are_told() -> None:
    found = of_flow("bert", "vulkan-4w")
    assert len({layer.name for layer in found.layers}) == len(found.layers) > 50
    assert all(layer.status in (Status.MEASURED, Status.EXACT) for layer in found.layers)
    assert found.only_quantized  # what the edge dialect takes apart


@pytest.mark.parametrize("against", ["fitted", "baseline"])
@pytest.mark.parametrize("model", ["resnet", "bert"])
class TestAnInjectedDefectRanksFirst:
    """Found from the damaged graph alone (`fitted`), and from the rows of the sound one (`baseline`)."""

    def test_half_a_scale_in_a_residual_branch(self, model: str, against: str) -> None:
        adapter = load_module(MODELS, model)
        flow = injected(convert=requantized(BRANCH[model], scale=0.5))
        self.check(located(adapter, "small", flow, against, baseline_of(adapter, "small")), BRANCH[model], "clipping")

    def test_a_zero_point_off_by_twenty_behind_a_cat(self, model: str, against: str) -> None:
        adapter, name = with_head(model, CatHead), f"{HEAD[model]}.head:linear.input"
        flow = injected(convert=requantized(name, zero_point=20))
        self.check(located(adapter, "small", flow, against, baseline_of(adapter, "small")), name, "clipping")

    def test_one_observer_on_two_unlike_branches(self, model: str, against: str) -> None:
        adapter, place = with_head(model, UnlikeHead), HEAD[model]
        flow = injected(prepare=shared(f"{place}.small:linear.input", f"{place}.large:linear.input"))
        found = located(adapter, "small", flow, against, baseline_of(adapter, "small"))
        self.check(found, f"{place}.small:linear.input", "step_size")

    @staticmethod
    def check(found: Located, name: str, cause: str) -> None:
        assert name in found.culprits[0].names
        assert found.culprits[0].cause == cause
        assert share(found) >= 0.9
        assert found.passes <= 20


class Upsampling(nn.Module):
    """A transposed convolution with one output channel sixteen times smaller, which is made up for behind it."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.up = nn.ConvTranspose2d(8, 2, 8, bias=False)
        self.register_buffer("sizes", torch.tensor([1.0, 1 / 16]).reshape(1, 2, 1, 1))
        self.up.weight = nn.Parameter(torch.randn(8, 2, 8, 8, generator=generator) * self.sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 2, H + 7, W + 7)."""
        image: torch.Tensor = self.up(x) / self.sizes
        return image


@pytest.mark.parametrize("against", [None, "fitted"])
def test_scales_along_the_wrong_axis_are_the_weights(against: str | None) -> None:
    """openvinotoolkit/nncf: the channel axis of a transposed convolution's weight is 1, and 0 is taken."""
    flow = replace(
        nncf.flow("nncf-x86"),
        prepare=partial(nncf.prepare, CONV_TRANSPOSE_2D),
        calibrate=partial(nncf.quantize, CONV_TRANSPOSE_2D),
    )
    module = adapter(lambda: Upsampling().eval().requires_grad_(False), ("y",), _images)
    found = located(module, "small", flow, against)
    assert found.against == (against or "+nncf-conv-transpose-axis")
    [culprit] = found.culprits
    assert (culprit.names, culprit.cause) == (("up:conv_transpose2d.weight",), Cause.AXIS)
    assert share(found) >= 0.9


def _images(seed: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [Batch((torch.randn(2, 8, 6, 6, generator=generator),))]
