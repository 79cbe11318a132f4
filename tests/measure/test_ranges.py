"""Range bounds, local error, coverage and names, on converted graphs that released torchao made."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from harness import flows
from harness.measure.prepared import PreparedFacts, read_prepared
from harness.measure.ranges import RangeReader
from harness.records import Case, Point, QuantizerRow

CASE = Case("m", "small", "seeded", "f")


def quantize(model: nn.Module, inputs: tuple[torch.Tensor, ...], flow: str = "x86-static"):
    """(converted graph, facts of the prepared one) of a model calibrated on the inputs themselves."""
    route = flows.load(flow)
    with torch.no_grad():
        prepared = route.prepare(route.export(model.eval(), inputs))
        route.calibrate(prepared, [inputs])
        facts = read_prepared(prepared)
        return route.convert(prepared), facts


def rows(
    model: nn.Module, *inputs: torch.Tensor, flow: str = "x86-static", batches: int = 1
) -> dict[str, QuantizerRow]:
    graph, facts = quantize(model, inputs, flow)
    reader = RangeReader(graph, facts)
    with torch.no_grad():
        for _ in range(batches):
            reader.run(*inputs)
    return {row.quantizer: row for row in reader.rows(CASE, Point.CONVERTED)}


def linear(weight: list[list[float]]) -> nn.Linear:
    values = torch.tensor(weight)
    layer = nn.Linear(values.shape[1], values.shape[0])
    layer.weight.data = values
    return layer


def test_per_channel_weight_bounds_are_those_of_the_widest_channel():
    """Symmetric int8 in torchao: scale = absmax / 127.5; the channel with absmax 2.55 has scale 0.02."""
    row = rows(linear([[1.275, -0.5], [2.55, 1.0]]), torch.randn(4, 2))["linear.weight"]
    assert (row.role, row.mode, row.dtype, row.granularity, row.axis) == ("weight", "static", "int8", "per_channel", 0)
    assert row.scale == pytest.approx(0.02, rel=1e-6)
    assert (row.lo, row.hi) == (pytest.approx(-2.56, rel=1e-6), pytest.approx(2.54, rel=1e-6))
    assert (row.observed_lo, row.observed_hi) == (pytest.approx(-0.5), pytest.approx(2.55))


def test_per_tensor_weight_bounds_come_from_one_scale():
    row = rows(linear([[1.275, -0.5], [2.55, 1.0]]), torch.randn(4, 2), flow="arm-static-s8s8f32-per-tensor")[
        "linear.weight"
    ]
    assert (row.granularity, row.axis) == ("per_tensor", None)
    assert row.hi == pytest.approx(2.54, rel=1e-6)


def test_the_worst_channel_of_a_weight_is_told_from_the_whole():
    """Per tensor, the channel 100 times smaller gets 40 dB less; the whole weight hides it behind the large one."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(2, 64, generator=generator) * 2 - 1
    weight[1] /= 100
    row = rows(linear(weight.tolist()), torch.randn(4, 64), flow="arm-static-s8s8f32-per-tensor")["linear.weight"]
    assert row.sqnr_db > 40
    assert row.sqnr_min_db < 10


def test_local_error_of_an_activation_is_that_of_its_own_rounding():
    """Uniform values over 255 steps: noise is step^2 / 12, signal 1/3 of the bound squared, so about 52.9 dB."""
    x = torch.linspace(0, 1, 4096).reshape(64, 64)
    row = rows(nn.Linear(64, 2), x, flow="arm-dynamic-u8s8f32-per-tensor")["linear.input"]
    assert (row.mode, row.dtype, row.quant_min, row.quant_max) == ("dynamic", "uint8", 0, 255)
    assert row.sqnr_db == pytest.approx(10 * torch.log10(torch.tensor(12 * 255**2 / 3)).item(), abs=0.1)
    assert row.utilisation == 1.0
    assert row.clip_fraction == 0.0


def test_clipped_share_counts_values_more_than_half_a_step_outside():
    """Calibrated on [0, 1], measured on inputs of which a quarter is 2: those, and only those, are clipped."""
    calibration = torch.linspace(0, 1, 64).reshape(4, 16)
    graph, facts = quantize(nn.Linear(16, 2), (calibration,))
    reader = RangeReader(graph, facts)
    evaluation = torch.full((4, 16), 0.5)
    evaluation[0] = 2.0
    with torch.no_grad():
        reader.run(evaluation)
    row = next(row for row in reader.rows(CASE, Point.CONVERTED) if row.quantizer == "linear.input")
    assert row.clip_fraction == 0.25
    assert (row.observed_lo, row.observed_hi) == (0.5, 2.0)


def test_dynamic_bounds_are_those_of_the_widest_batch():
    graph, facts = quantize(nn.Linear(4, 2), (torch.ones(2, 4),), "arm-dynamic-u8s8f32-per-tensor")
    reader = RangeReader(graph, facts)
    with torch.no_grad():
        for width in (1.0, 5.1, 2.0):
            reader.run(torch.full((2, 4), width))
    row = next(row for row in reader.rows(CASE, Point.CONVERTED) if row.quantizer == "linear.input")
    assert row.hi == pytest.approx(5.1, rel=1e-6)
    assert row.scale == pytest.approx(0.02, rel=1e-6)


def test_running_the_reader_gives_the_graphs_own_outputs():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 8, 8)
    graph, facts = quantize(model, (x,))
    with torch.no_grad():
        assert torch.equal(RangeReader(graph, facts).run(x), graph(x))


def test_statistics_do_not_depend_on_how_often_the_same_batch_is_seen():
    model, x = nn.Linear(8, 2), torch.randn(4, 8)
    assert rows(model, x, batches=1) == rows(model, x, batches=3)


def test_names_are_module_path_op_and_operand_and_the_same_from_export_to_export():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)])

        def forward(self, x):
            return self.convs[1](torch.relu(self.convs[0](x))) + x

    names = set(rows(Block(), torch.randn(1, 4, 4, 4)))
    assert {"convs.0:conv2d.weight", "convs.1:conv2d.input", "convs.1:conv2d.weight"} <= names
    assert names == set(rows(Block(), torch.randn(1, 4, 4, 4)))


def test_a_second_call_of_one_module_is_another_occurrence():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(torch.relu(self.layer(x)))

    names = set(rows(Twice(), torch.randn(2, 4)))
    assert {"layer:linear.input", "layer:linear#1.input"} <= names


def test_quantizers_that_share_an_observer_share_a_group_and_others_have_none():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool, self.fc = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            return self.fc(self.pool(self.conv(x)))

    found = rows(Pooled(), torch.randn(2, 3, 8, 8))
    assert found["pool:max_pool2d.self"].share_group == found["fc:conv2d.input"].share_group != ""
    assert found["conv:conv2d.input"].share_group == ""


def test_the_linears_inside_multihead_attention_are_named_as_left_in_float():
    """X86InductorQuantizer never annotates them; the case's coverage says so."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 4)

        def forward(self, x):
            return self.out(self.attention(x, x, x, need_weights=False)[0])

    found = rows(Attention(), torch.randn(2, 5, 8))
    weights = {name: row.status for name, row in found.items() if row.role == "weight"}
    assert weights["out:linear.weight"] == "quantized"
    unquantized = [name for name, status in weights.items() if status == "unquantized"]
    assert len(unquantized) == 2
    assert all(name.startswith("attention") for name in unquantized)


def test_an_annotated_edge_without_a_quantizer_is_a_row():
    """Silent skipping: the annotation asked for int8, the converted graph has nothing there."""
    graph, _ = quantize(nn.Linear(4, 2), (torch.randn(2, 4),))
    facts = PreparedFacts(annotated={"linear.input": False, "gone:mul.other": True})
    reader = RangeReader(graph, facts)
    with torch.no_grad():
        reader.run(torch.randn(2, 4))
    found = {row.quantizer: (row.status, row.role) for row in reader.rows(CASE, Point.CONVERTED)}
    assert found["gone:mul.other"] == ("unquantized", "weight")
    assert found["linear.input"] == ("quantized", "activation")


def test_annotations_are_read_off_the_prepared_graph():
    _, facts = quantize(nn.Linear(4, 2), (torch.randn(2, 4),))
    assert facts.annotated == {"linear.input": False, "linear.weight": True}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_scale_that_is_not_finite_is_a_status_and_leaves_no_number(bad):
    graph, facts = quantize(nn.Linear(4, 2), (torch.randn(2, 4),))
    for node in graph.graph.nodes:
        if "quantize_per_tensor" in str(node.target):
            node.args = (node.args[0], bad, *node.args[2:])
    graph.recompile()
    reader = RangeReader(graph, facts)
    with torch.no_grad():
        reader.run(torch.randn(2, 4))
    row = next(row for row in reader.rows(CASE, Point.CONVERTED) if row.quantizer == "linear.input")
    assert (row.status, row.scale, row.lo, row.hi) == ("nonfinite", None, None, None)


@pytest.mark.parametrize(("scale", "status"), [(0.0, "nonfinite"), (0.01, "quantized")])
def test_a_scale_of_zero_is_not_finite_as_it_makes_nan_of_zeros(scale, status):
    """A float8 weight with one scale a row; the second row is all zero."""
    from torchao.quantization.pt2e import _affine_quantization  # noqa: F401  # registers torchao's ops

    ops = torch.ops.torchao
    graph = torch.fx.Graph()
    x, weight, scales = graph.placeholder("x"), graph.get_attr("weight"), graph.get_attr("scales")
    codes = graph.call_function(ops.quantize_affine_float8_non_decomposed.default, (weight, scales))
    restored = graph.call_function(ops.dequantize_affine_float8_non_decomposed.default, (codes, scales))
    graph.output(graph.call_function(torch.ops.aten.linear.default, (x, restored)))
    root = nn.Module()
    root.weight = nn.Parameter(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), requires_grad=False)
    root.scales = torch.tensor([[0.01], [scale]])
    reader = RangeReader(torch.fx.GraphModule(root, graph), PreparedFacts())
    output = reader.run(torch.ones(1, 2))
    (row,) = reader.rows(CASE, Point.CONVERTED)
    assert (row.quantizer, row.status, row.cause) == ("linear.weight", status, "nonfinite" if scale == 0 else "")
    assert bool(output.isnan().any()) == (scale == 0)
