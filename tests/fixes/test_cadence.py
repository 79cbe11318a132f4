"""Cadence's branch hoist on executorch as released, and repaired: what is hoisted, and what it costs."""

from __future__ import annotations

import copy
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.fixes.cadence_branch_hoist import FIX
from harness.fixes.seams import SeamMovedError
from harness.flows import cadence
from harness.measure.metrics import sqnr_db
from harness.measure.qdq import bind, is_quantize, op_name
from harness.workspace import load_module
from tests.upstream import needs

needs("executorch")

torch.set_num_threads(1)

FLOW = cadence.flow("cadence-hoist")
MODELS = Path(__file__).parents[2] / "models"
NARROW, WIDE = (0.01, -28), (0.4, -128)
"""(scale, zero point): [-1, 1.55] and [0, 102]."""


def converted(model: nn.Module, batches: list[tuple[torch.Tensor, ...]]) -> torch.fx.GraphModule:
    with torch.no_grad():
        graph = FLOW.prepare(FLOW.export(model, batches[0]))
        FLOW.calibrate(graph, batches)
        return FLOW.convert(graph)


def lowered(program) -> torch.fx.GraphModule:
    return FLOW.lower(copy.deepcopy(program))


def repaired(program) -> torch.fx.GraphModule:
    with FIX.repair():
        return lowered(program)


def nodes(graph: torch.fx.GraphModule) -> list[tuple[str, str, str]]:
    """Every node's op, target and arguments, in order: equal for equal graphs."""
    return [(node.op, str(node.target), f"{node.args} {node.kwargs}") for node in graph.graph.nodes]


def counts(graph: torch.fx.GraphModule) -> tuple[int, int, int, int]:
    """(quantize, dequantize, slice or select, all nodes)."""
    names = Counter(op_name(node) for node in graph.graph.nodes if node.op == "call_function")
    slices = names["slice_copy"] + names["select_copy"]
    return names["quantize_per_tensor"], names["dequantize_per_tensor"], slices, len(graph.graph.nodes)


def quality(reference, actual) -> list[float]:
    """SQNR of each output, dB."""
    reference, actual = ((x,) if isinstance(x, torch.Tensor) else x for x in (reference, actual))
    return [sqnr_db(reference=a, actual=b) for a, b in zip(reference, actual, strict=True)]


class Branches(nn.Module):
    """Rows (start, stop) of the input, each quantized with a scale and a zero point of its own."""

    def __init__(self, *branches: tuple[int, int, tuple[float, int]], also: bool = False) -> None:
        super().__init__()
        self.branches, self.also = branches, also

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ops, found = torch.ops.quantized_decomposed, []
        for start, stop, qparams in self.branches:
            args = (*qparams, -128, 127, torch.int8)
            found.append(ops.dequantize_per_tensor(ops.quantize_per_tensor(x[start:stop], *args), *args))
        return (*found, x + 1) if self.also else tuple(found)


def edge_of(*branches: tuple[int, int, tuple[float, int]], also: bool = False):
    return FLOW.edge(Branches(*branches, also=also), (torch.linspace(0, 1, 32).reshape(8, 4),))


def before(program) -> torch.fx.GraphModule:
    return program.exported_program().module()


def test_the_probe_reads_what_clipping_at_the_narrow_range_leaves():
    reading = FIX.probe()
    ramp = torch.linspace(0, 100, 100, dtype=torch.float64)
    highest = round(2.7 / 255 * (127 + 34) / (100 / 255)) * 100 / 255  # 1.7047, requantized to steps of 100/255
    assert reading.value == pytest.approx(
        10 * math.log10(ramp.square().sum() / (ramp - highest).clamp(min=0).square().sum()), abs=0.001
    )
    # Rounding to steps of 100/255 makes an error of step^2 / 12.
    assert reading.should == pytest.approx(10 * math.log10(ramp.square().mean() * 12 / (100 / 255) ** 2), abs=0.2)
    assert not reading.right


def test_repaired_the_probe_reads_the_right_value_and_leaves_nothing_behind():
    released = FIX.probe()
    with FIX.repair():
        reading = FIX.probe()
    assert reading.right
    assert reading.value == reading.should == released.should
    assert FIX.probe() == released


class ThreeLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 8, bias=False) for _ in range(3))
        stream = torch.Generator().manual_seed(0)
        for layer in self.layers:
            layer.weight.data = torch.randn(8, 16, generator=stream)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x[:, 16 * i : 16 * (i + 1)]) for i, layer in enumerate(self.layers))


def test_of_three_linears_the_one_with_the_wide_range_loses_everything():
    """It reads at most 1.7 of 100: the output is all but zero, and the noise as large as the signal (0 dB)."""
    stream = torch.Generator().manual_seed(1)
    narrow, other, wide = torch.rand(3, 64, 16, generator=stream)
    x = torch.cat((2.7 * narrow - 1, 2.6 * other - 0.9, 100 * wide), 1)
    model = ThreeLinears().eval()
    graph = converted(model, [(x,)])
    program = FLOW.edge(graph, (x,))
    with torch.no_grad():
        reference = model(x)
        should = quality(reference, graph(x))
        wrong = quality(reference, lowered(program)(x))
        mended = quality(reference, repaired(program)(x))
    assert min(should) > 35
    assert wrong[:2] == pytest.approx(should[:2], abs=1)
    assert 0 < wrong[2] < 0.5
    assert mended == should


@pytest.fixture(scope="module")
def slices():
    """(adapter's evaluation inputs, float outputs, converted graph, edge program) of the small trained model."""
    adapter = load_module(MODELS, "slices")
    model = adapter.build("small", "trained", 0)
    batches = [batch.inputs for batch in adapter.calibration("small", 0)]
    inputs = next(iter(adapter.evaluation("small", 0))).inputs
    graph = converted(model, batches)
    with torch.no_grad():
        return inputs, model(*inputs), graph, FLOW.edge(graph, inputs)


def test_slices_keep_the_narrow_output_and_lose_the_wide_ones_until_repaired(slices):
    inputs, reference, graph, program = slices
    with torch.no_grad():
        outputs, hoisted, mended = graph(*inputs), lowered(program)(*inputs), repaired(program)(*inputs)
    digit, centre, quadrants = quality(reference, hoisted)
    assert torch.equal(hoisted[0], outputs[0])  # the narrow branch has the largest zero point
    assert digit > 25
    assert -1 < centre < 3
    assert -1 < quadrants < 3
    assert all(torch.equal(a, b) for a, b in zip(mended, outputs, strict=True))
    assert min(quality(reference, mended)) > 17


def test_the_hoisted_quantizer_clips_the_packed_tensor_to_a_third_of_a_db(slices):
    (packed,), _, _, program = slices
    args = bind(next(node for node in lowered(program).graph.nodes if is_quantize(node)))
    assert str(args["input"]) == "packed"
    scale, zero_point = args["scale"], args["zero_point"]
    restored = torch.fake_quantize_per_tensor_affine(packed, scale, zero_point, -128, 127)
    clipped = packed.clamp(scale * (-128 - zero_point), scale * (127 - zero_point))
    assert clipped.max() == pytest.approx(1.7, abs=0.05)
    local = sqnr_db(reference=packed, actual=restored)
    assert local == pytest.approx(sqnr_db(reference=packed, actual=clipped), abs=0.01)
    assert 0 < local < 0.5


def test_not_hoisting_slices_costs_no_node(slices):
    """Released, three branches of slice -> quantize gain a quantize above and a dequantize each."""
    program = slices[-1]
    quantize, dequantize, slicing, total = counts(before(program))
    assert counts(lowered(program)) == (quantize + 1, dequantize + 3, slicing, total + 4)
    assert counts(repaired(program)) == (quantize, dequantize, slicing, total)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param([(0, 4, NARROW), (4, 8, NARROW)], id="equal qparams"),
        pytest.param([(0, 6, NARROW)], id="one branch"),
        pytest.param([(0, 8, NARROW), (0, 8, NARROW), (2, 6, NARROW)], id="overlapping slices"),
    ],
)
def test_what_has_one_set_of_qparams_is_hoisted_as_released(branches):
    program = edge_of(*branches)
    assert nodes(repaired(program)) == nodes(lowered(program)) != nodes(before(program))
    first = next(node for node in repaired(program).graph.nodes if is_quantize(node))
    assert first.args[0].op == "placeholder"


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param([(0, 4, NARROW), (4, 8, WIDE)], id="other scale and zero point"),
        pytest.param([(0, 4, (0.01, -28)), (4, 8, (0.02, -28))], id="other scale"),
        pytest.param([(0, 4, (0.01, -28)), (4, 8, (0.01, -27))], id="other zero point"),
        pytest.param([(0, 2, NARROW), (2, 4, NARROW), (4, 6, NARROW), (6, 8, WIDE)], id="three of four equal"),
    ],
)
def test_what_has_several_stays_where_it_is(branches):
    program = edge_of(*branches)
    assert counts(lowered(program))[0] == len(branches) + 1
    assert nodes(repaired(program)) == nodes(before(program))


@pytest.mark.parametrize(
    ("branches", "also"),
    [
        pytest.param([(0, 4, NARROW), (4, 8, NARROW)], True, id="a reader that is no quantize"),
        pytest.param([(0, 1, NARROW), (7, 8, NARROW)], False, id="slices of less than half the tensor"),
    ],
)
def test_equal_qparams_still_need_the_other_conditions(branches, also):
    program = edge_of(*branches, also=also)
    assert nodes(repaired(program)) == nodes(lowered(program)) == nodes(before(program))


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_no_output_of_a_model_without_packed_branches_changes(name):
    adapter = load_module(MODELS, name)
    model = adapter.build("small", adapter.SIZES["small"].weights[0], 0)
    inputs = next(iter(adapter.evaluation("small", 0))).inputs
    program = FLOW.edge(converted(model, [inputs]), inputs)
    hoisted = lowered(program)
    assert nodes(repaired(program)) == nodes(hoisted)
    with torch.no_grad():
        assert torch.equal(hoisted(*inputs), before(program)(*inputs))


def test_the_repair_is_undone_also_after_an_exception_and_released_graphs_stay_the_same():
    from executorch.backends.cadence.aot.reorder_ops import AdvanceQuantizeOpAboveDefInBranchPass as Hoist

    program = edge_of((0, 4, NARROW), (4, 8, WIDE))
    original, released = Hoist.get_descendent_quant_ops, nodes(lowered(program))

    def fail() -> None:
        assert Hoist.get_descendent_quant_ops is not original
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), FIX.repair():
        fail()
    assert Hoist.get_descendent_quant_ops is original
    repaired(program)
    assert nodes(lowered(program)) == released


def test_a_seam_that_moved_is_an_error(monkeypatch):
    from executorch.backends.cadence.aot.reorder_ops import AdvanceQuantizeOpAboveDefInBranchPass as Hoist

    monkeypatch.setattr(Hoist, "get_descendent_quant_ops", lambda self, node, depth: [])
    with pytest.raises(SeamMovedError, match=r"takes \(self, node, depth\)"), FIX.repair():
        pass
    monkeypatch.delattr(Hoist, "get_descendent_quant_ops")
    with pytest.raises(SeamMovedError, match="has no get_descendent_quant_ops"), FIX.repair():
        pass
