"""NNCF's range of a parameter that is multiplied in, on the real package: released, repaired, and the trap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.adapter import Batch
from harness.fixes import Reading
from harness.fixes.nncf_mul_parameter import FIX as MUL
from harness.flows import nncf as flows
from harness.measure.qdq import bind, is_dequantize
from harness.measure.sites import Sites, trace_source
from harness.records import Cause, QuantizerStatus, Role
from harness.workspace import find_workspace
from tests.lab import adapter, lab
from tests.upstream import needs

needs("nncf")

torch.set_num_threads(1)

ROOT = Path(__file__).parents[2]
VALUES = torch.tensor([0.25, -0.5, 1.0])
ABSMAX, MEAN_ABS = 1.0, 1.75 / 3
WAYS = {"released": nullcontext, "repaired": MUL.repair, "trap": MUL.trap}


class Scaled(nn.Module):
    """Channels scaled by a parameter; `scale` says how the two are multiplied."""

    def __init__(self, scale: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.parameter = nn.Parameter(VALUES.reshape(3, 1, 1).clone())
        self.flat = nn.Parameter(VALUES.clone())
        self.register_buffer("buffer", VALUES.reshape(3, 1, 1).clone())
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(self, x)


ORDERS = {
    "parameter * x": lambda m, x: m.parameter * x,
    "x * parameter": lambda m, x: x * m.parameter,
    "view of a parameter * x": lambda m, x: m.flat.view(3, 1, 1) * x,
    "parameter * buffer": lambda m, x: (m.parameter * m.buffer) * x,
}


def images(channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, 4, 4, generator=torch.Generator().manual_seed(0))


def quantized(model: nn.Module, quantizer=flows.parameter_mul_quantizer, inputs=None) -> torch.fx.GraphModule:
    inputs = inputs or (images(),)
    with torch.no_grad():
        graph = torch.export.export(model.eval(), inputs).module()
        return flows.quantize(quantizer, graph, [inputs])


def bounds(graph: torch.fx.GraphModule) -> dict[str, tuple[float, float]]:
    """Representable range of each per-tensor quantizer."""
    sites, found = Sites(graph), {}
    for node in graph.graph.nodes:
        if is_dequantize(node):
            q = bind(node)
            low, high = ((q[limit] - q["zero_point"]) * q["scale"] for limit in ("quant_min", "quant_max"))
            found[sites.quantizer(node)[0]] = (low, high)
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_a_parameter_gets_the_mean_of_its_channels_unsigned_and_repaired_its_absmax_signed(order):
    """(0.25 - 0.5 + 1.0) / 3 is positive, so the range that NNCF takes for an activation's starts at 0."""
    ((_, released),) = bounds(quantized(Scaled(ORDERS[order]))).items()
    assert released == (0.0, pytest.approx(MEAN_ABS, abs=1e-6))
    with MUL.repair():
        ((_, repaired),) = bounds(quantized(Scaled(ORDERS[order]))).items()
    assert repaired == (pytest.approx(-ABSMAX * 128 / 127), pytest.approx(ABSMAX, abs=1e-6))


def test_the_probe_reads_the_three_states_and_leaves_none_behind():
    readings = {}
    for way, entered in WAYS.items():
        with entered():
            readings[way] = MUL.probe()
    assert readings["released"].value == pytest.approx(MEAN_ABS, abs=1e-6)
    assert readings["repaired"].value == pytest.approx(ABSMAX, abs=1e-6)
    assert readings["trap"].value == "no quantizer"
    assert [reading.right for reading in readings.values()] == [False, True, False]
    assert MUL.probe() == readings["released"]


def content_with_none() -> Reading:
    """A probe of somebody who takes the trap for the repair."""
    value = MUL.probe().value
    return Reading(value, "no quantizer", right=value == "no quantizer")


def test_a_weight_without_its_port_is_an_unquantized_row_that_names_its_cause():
    bench = lab(adapter(lambda: Scaled(ORDERS["x * parameter"]).eval(), ("y",), lambda _seed: [Batch((images(),))] * 2))
    half = replace(MUL, name="nncf-mul-trap", repair=MUL.trap, probe=content_with_none)
    trapped = bench.measure("nncf-mul", (half,))
    ((row,), repaired) = trapped.quantizers, bench.measure("nncf-mul", (MUL,)).quantizers
    assert (row.quantizer, row.status, row.cause) == ("mul.other", QuantizerStatus.UNQUANTIZED, Cause.UNQUANTIZED)
    assert [(row.quantizer, row.status, row.role) for row in repaired] == [("mul.other", "quantized", Role.WEIGHT)]


def test_two_muls_that_share_a_parameter_share_its_repaired_range():
    with MUL.repair():
        found = bounds(quantized(Scaled(lambda m, x: m.parameter * x + torch.relu(x * m.parameter))))
    assert set(found) == {"mul.self", "mul#1.other"}
    assert [high for _, high in found.values()] == pytest.approx([ABSMAX] * 2, abs=1e-6)


def test_a_parameter_times_a_parameter_gets_a_quantizer_on_each_port():
    with MUL.repair():
        found = bounds(quantized(Scaled(lambda m, x: (m.parameter * (m.flat.view(3, 1, 1))) * x)))
    assert set(found) == {"mul.self", "mul.other"}


def constants_of(op) -> Callable[[], object]:
    """A quantizer that annotates every constant operand of an op, buffers too, like the mul flow's otherwise."""
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer

    spec = QuantizationSpec(torch.int8, torch.nn.Identity, -128, 127, torch.per_tensor_symmetric)

    class ConstantOperands(Quantizer):
        def annotate(self, model):
            for node in model.graph.find_nodes(op="call_function", target=op):
                found = [value for value in node.all_input_nodes if trace_source(value).op == "get_attr"]
                annotation = QuantizationAnnotation(dict.fromkeys(found, spec), _annotated=True)
                node.meta["quantization_annotation"] = annotation
            return model

        def validate(self, model):
            pass

    return ConstantOperands


def test_a_buffer_stays_an_activation():
    quantize = partial(quantized, quantizer=constants_of(torch.ops.aten.mul.Tensor))
    released = bounds(quantize(Scaled(lambda m, x: x * m.buffer)))
    assert released == {"mul.other": (0.0, pytest.approx(MEAN_ABS, abs=1e-6))}
    with MUL.repair():
        assert bounds(quantize(Scaled(lambda m, x: x * m.buffer))) == released


def test_the_positional_embedding_that_vit_adds_stays_as_it_is():
    vit = find_workspace(ROOT).load_adapter("vit")
    model = vit.build("small", "trained", 0)
    quantize = partial(quantized, quantizer=constants_of(torch.ops.aten.add.Tensor))
    inputs = next(iter(vit.calibration("small", 0))).inputs
    released = bounds(quantize(model, inputs=inputs))
    assert list(released) == ["encoder:add.other"]
    with MUL.repair():
        assert bounds(quantize(model, inputs=inputs)) == released


def test_where_a_weight_is_quantized_is_the_same_place_whatever_its_port():
    with flows.silent_nncf():
        from nncf.experimental.torch.fx.quantization.quantizer.torch_ao_adapter import TorchAOQuantizerAdapter

    places = []
    for order in ("parameter * x", "x * parameter"):
        graph = torch.export.export(Scaled(ORDERS[order]).eval(), (images(),)).module()
        annotated = flows.parameter_mul_quantizer().annotate(graph)
        with MUL.repair():
            setup = TorchAOQuantizerAdapter.get_quantizer_config_from_annotated_model(annotated)
        (point,) = setup.quantization_points.values()
        assert point.is_weight_quantization_point()
        places.append(point.insertion_point)
    assert [place.input_port_id for place in places] == [0, 1]
    assert places[0] == places[1]
    assert len({*places}) == len({str(place) for place in places}) == 1


# LayerScale of ConvNeXt, the parameter this is about.


def test_every_layer_scale_of_the_small_convnext_is_isolated():
    convnext = find_workspace(ROOT).load_adapter("convnext")
    model = convnext.build("small", "trained", 0)
    inputs = next(iter(convnext.calibration("small", 0))).inputs
    scales = {f"{name}:mul.self": p.detach().abs() for name, p in _layer_scales(model).items()}
    released = bounds(quantized(model, inputs=inputs))
    with MUL.repair():
        repaired = bounds(quantized(model, inputs=inputs))
    assert len(scales) == 4
    assert {name: high for name, (_, high) in released.items()} == _near({k: v.mean() for k, v in scales.items()})
    assert {name: high for name, (_, high) in repaired.items()} == _near({k: v.max() for k, v in scales.items()})


def test_block_1_of_the_full_convnext_has_the_published_bounds():
    convnext = find_workspace(ROOT).load_adapter("convnext")
    block = convnext.build("full", "seeded", 0).features[1][0]
    assert float(block.layer_scale.detach().abs().max()) == pytest.approx(0.226632953, abs=1e-6)
    ((_, released),) = bounds(quantized(block, inputs=(images(96),))).values()
    with MUL.repair():
        ((_, repaired),) = bounds(quantized(block, inputs=(images(96),))).values()
    assert (released, repaired) == (pytest.approx(0.092455307, abs=1e-6), pytest.approx(0.226632945, abs=1e-6))


def _layer_scales(model: nn.Module) -> dict[str, nn.Parameter]:
    named = model.named_parameters()
    return {name.removesuffix(".layer_scale"): p for name, p in named if name.endswith("layer_scale")}


def _near(values: dict[str, torch.Tensor]) -> dict[str, object]:
    return {name: pytest.approx(float(value), abs=1e-6) for name, value in values.items()}
