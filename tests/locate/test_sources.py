"""Where right values come from: what each source makes of a quantizer, by arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  (registers the ops)
from torch import nn

from harness import flows
from harness.locate.against import Accepted, Against
from harness.locate.qparams import AcceptedSource, fit
from harness.locate.scene import Scene, level
from harness.locate.sources import FloatSource, Replacement, VariantSource, qdq
from harness.locate.units import Unit
from harness.measure.qdq import QParams
from harness.records import Granularity
from tests.lab import adapter
from tests.locate.defects import injected, requantized, shared, staged


def qparams(scale: float, zero_point: int, low: int = -128, high: int = 127) -> QParams:
    return QParams(
        torch.tensor(scale, dtype=torch.float64),
        torch.tensor(zero_point),
        low,
        high,
        "int8",
        Granularity.PER_TENSOR,
        None,
    )


@pytest.fixture(scope="module")
def sound() -> Scene:
    return staged(adapter(), "small", flows.load("x86-static"))[0]


def unit(scene: Scene, name: str) -> Unit:
    return next(one for one in scene.quantized.quantizers.units if name in one.names)


def replaced(found: Replacement | None) -> Replacement:
    assert found is not None
    return found


# Arithmetic


def test_a_value_is_rounded_to_the_nearest_step_and_held_to_the_range() -> None:
    x = torch.tensor([0.24, 0.26, -70.0, 70.0])
    assert torch.equal(qdq(qparams(0.5, 0), x), torch.tensor([0.0, 0.5, -64.0, 63.5]))


def test_fitted_ranges_just_hold_the_values_and_zero() -> None:
    """Of 256 codes 255 steps: [0, 5.1] in steps of 0.02, zero at the first code."""
    low, high = (torch.tensor(value, dtype=torch.float64) for value in (1.0, 5.1))
    fitted = fit(qparams(1.0, 3), low, high)
    assert float(fitted.scale) == pytest.approx(0.02)
    assert int(fitted.zero_point) == -128
    assert (float(fitted.lo), float(fitted.hi)) == (0.0, pytest.approx(5.1))


def test_symmetric_qparams_stay_symmetric() -> None:
    low, high = (torch.tensor(value, dtype=torch.float64) for value in (-1.0, 0.5))
    fitted = fit(qparams(9.0, 0), low, high)
    assert (float(fitted.scale), int(fitted.zero_point)) == (1 / 128, 0)
    four_bits = fit(qparams(9.0, 0, -8, 7), -high, high)
    assert (float(four_bits.lo), float(four_bits.hi)) == (pytest.approx(-4 / 7), 0.5)


def test_what_is_all_zero_gets_a_scale_that_divides() -> None:
    nothing = torch.tensor(0.0, dtype=torch.float64)
    assert float(fit(qparams(1.0, 3), nothing, nothing).scale) == 1.0


# Units


def test_every_quantizer_is_in_one_unit_and_those_that_share_an_observer_in_the_same(sound: Scene) -> None:
    named = [name for one in sound.quantized.quantizers.units for name in one.names]
    assert sorted(named) == sorted(sound.quantized.rows)
    groups: dict[str, set[str]] = {}
    for row in sound.quantized.rows.values():
        if row.share_group:
            groups.setdefault(row.share_group, set()).add(row.quantizer)
    for members in groups.values():
        assert any(set(one.names) == members for one in sound.quantized.quantizers.units)


# Float


def test_all_units_in_float_give_the_float_models_outputs(sound: Scene) -> None:
    """But for what folding BatchNorm into a convolution rounds."""
    source = FloatSource(sound.quantized)
    everything = {
        node: one
        for unit in sound.quantized.quantizers.units
        for node, one in replaced(source.replacement(unit)).overrides.items()
    }
    assert min(level(row) for row in sound.what_if(everything).values()) > 120
    assert max(level(row) for row in sound.outputs.values()) < 60


def test_one_unit_in_float_is_better_than_none_and_leaves_the_graph_as_it_was(sound: Scene) -> None:
    found = replaced(FloatSource(sound.quantized).replacement(unit(sound, "stem:conv2d.weight")))
    assert found.new is None
    assert sound.what_if(found.overrides) != sound.outputs
    again = sound.what_if({})
    assert {name: row.sqnr_db for name, row in again.items()} == {
        name: row.sqnr_db for name, row in sound.outputs.items()
    }


# Another graph, and accepted rows


def test_a_graph_has_nothing_to_take_from_its_equal(sound: Scene) -> None:
    twin, _, _ = staged(adapter(), "small", flows.load("x86-static"))
    source = VariantSource(sound.quantized, twin.quantized)
    assert [source.replacement(one) for one in sound.quantized.quantizers.units] == [None] * len(
        sound.quantized.quantizers.units
    )
    accepted = AcceptedSource(sound.quantized, twin.quantized.rows)
    assert [accepted.replacement(one) for one in sound.quantized.quantizers.units] == [None] * len(
        sound.quantized.quantizers.units
    )


@pytest.mark.parametrize("kind", ["variant", "accepted"])
def test_a_defect_is_taken_back_to_the_last_bit(sound: Scene, kind: str) -> None:
    name = "body:conv2d.input"
    broken, _, _ = staged(adapter(), "small", injected(convert=requantized(name, scale=0.25)))
    source = (
        VariantSource(broken.quantized, sound.quantized)
        if kind == "variant"
        else AcceptedSource(broken.quantized, sound.quantized.rows)
    )
    found = [replacement for one in broken.quantized.quantizers.units if (replacement := source.replacement(one))]
    assert [replacement.unit.names for replacement in found] == [unit(broken, name).names]
    mended = broken.what_if(found[0].overrides)
    assert min(level(row) for row in broken.outputs.values()) < min(level(row) for row in sound.outputs.values()) - 5
    for output, row in sound.outputs.items():
        assert level(mended[output]) == level(row)
    assert found[0].new == (sound.quantized.rows[name].lo, sound.quantized.rows[name].hi)


def test_a_quantizer_that_the_other_has_not_is_left_in_float(sound: Scene) -> None:
    rows = {name: row for name, row in sound.quantized.rows.items() if name != "head:linear.weight"}
    found = replaced(AcceptedSource(sound.quantized, rows).replacement(unit(sound, "head:linear.weight")))
    assert found.new is None


def test_accepted_scales_of_channels_change_by_the_factor_of_the_widest(sound: Scene) -> None:
    name = "body:conv2d.weight"
    row = sound.quantized.rows[name]
    assert row.scale is not None
    rows = {**sound.quantized.rows, name: replace(row, scale=2 * row.scale)}
    found = replaced(AcceptedSource(sound.quantized, rows).replacement(unit(sound, name)))
    [weight] = [one.compute() for one in found.overrides.values()]
    [node] = unit(sound, name).dequantize
    parameter = sound.quantized.parameter(node)
    assert parameter is not None
    steps = weight.flatten(1).abs().amax(1) / parameter.flatten(1).abs().amax(1)
    assert torch.allclose(steps, torch.ones(8), atol=0.03)  # a step of 1/64: half of one at most is lost
    assert len(torch.unique(weight[0])) < len(torch.unique(parameter[0]))


# Fitted


def test_two_readers_of_one_range_are_fitted_each_to_its_own_values() -> None:
    scene, pipeline, subject = staged(
        adapter(), "small", injected(prepare=shared("stem:conv2d.input", "head:linear.input"))
    )
    source = Against(pipeline, subject, scene, None).find("fitted").source
    one = unit(scene, "head:linear.input")
    assert set(one.names) >= {"stem:conv2d.input", "head:linear.input"}
    found = replaced(source.replacement(one))
    ranges = set()
    for node in one.dequantize:
        wide = found.overrides[node].compute(torch.linspace(-50, 50, 10001))
        ranges.add((round(float(wide.min()), 4), round(float(wide.max()), 4)))
    assert len(ranges) == 2


class InPlace(nn.Module):
    """A sum that is made in place, and quantized right behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 2, H, W)."""
        z: torch.Tensor = self.first(x)
        z += self.second(x)
        image: torch.Tensor = self.head(z)
        return image


def in_place() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return InPlace().eval().requires_grad_(False)


def test_a_layer_in_float_that_writes_in_place_is_run_once() -> None:
    """The op it replaces would have added before its input was read in its place."""
    scene, _, _ = staged(adapter(in_place, ("y",)), "small", flows.load("x86-static"))
    floats = scene.float_layers()
    everything = {node: one for overrides in floats.values() for node, one in overrides.items()}
    assert level(scene.what_if(everything)["y"]) > 120
    [add] = [overrides for name, overrides in floats.items() if ":add" in name or name == "add"]
    assert level(scene.what_if(add)["y"]) >= level(scene.outputs["y"]) - 0.5


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_an_accepted_scale_takes_the_place_of_one_that_is_no_number(sound: Scene, scale: float) -> None:
    name = "body:conv2d.input"
    broken, _, _ = staged(adapter(), "small", injected(convert=requantized(name, scale=scale)))
    found = replaced(AcceptedSource(broken.quantized, sound.quantized.rows).replacement(unit(broken, name)))
    mended = broken.what_if(found.overrides)
    assert {output: level(row) for output, row in mended.items()} == {
        output: level(row) for output, row in sound.outputs.items()
    }


def test_accepted_scales_along_another_axis_are_fitted_to_it(sound: Scene) -> None:
    name = "body:conv2d.weight"
    rows = {**sound.quantized.rows, name: replace(sound.quantized.rows[name], axis=1)}
    found = replaced(AcceptedSource(sound.quantized, rows).replacement(unit(sound, name)))
    [weight] = [one.compute() for one in found.overrides.values()]
    scale = sound.quantized.rows[name].scale
    assert scale is not None
    widest = weight.movedim(1, 0).flatten(1).abs().amax(1).argmax()
    codes = weight[:, widest] / scale
    assert torch.allclose(codes, codes.round(), atol=1e-3)


def test_a_source_is_chosen_for_the_output_that_is_looked_into(sound: Scene) -> None:
    """A baseline that is better for `head` only is none for `score`."""
    scene, pipeline, subject = staged(adapter(), "small", flows.load("x86-static"))
    better = {**sound.outputs, "head": replace(sound.outputs["head"], sqnr_db=level(sound.outputs["head"]) + 3)}
    against = Against(pipeline, subject, scene, Accepted(sound.quantized.rows, better))
    assert against.find(None, "head").name == "baseline"
    assert against.find(None, "score").name == "fitted"
