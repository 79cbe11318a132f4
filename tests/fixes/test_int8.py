"""Graph rewrites ahead of Inductor's patterns compute the same numbers, and end with their context."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._inductor.fx_passes import freezing_patterns
from torch.fx import Graph, GraphModule

from harness.fixes import _int8
from harness.fixes.ao_s8_conv_lowering import FIX as S8_CONV
from harness.fixes.arm_per_tensor_lowering import FIX as PER_TENSOR
from harness.fixes.inductor_choose_qparams import FIX as CHOOSE_QPARAMS
from harness.fixes.states import diagnose
from harness.records import FixState

ATEN, Q = torch.ops.aten, torch.ops.quantized_decomposed
INT8, UINT8 = (-128, 127, torch.int8), (0, 255, torch.uint8)


def quantized_convolution(zero_point: int = 3, weight_zero_point: int = 0) -> GraphModule:
    """int8 activations of scale 0.1, an int8 weight of scale 0.02 for the whole tensor, as a frozen graph has them."""
    root = nn.Module()
    generator = torch.Generator().manual_seed(0)
    root.register_buffer("codes", torch.randint(-128, 128, (6, 4, 3, 3), dtype=torch.int8, generator=generator))
    graph = Graph()
    x, code = graph.placeholder("x"), graph.get_attr("codes")
    quantize = graph.call_function(Q.quantize_per_tensor.default, (x, 0.1, zero_point, *INT8))
    source = graph.call_function(Q.dequantize_per_tensor.default, (quantize, 0.1, zero_point, *INT8))
    weight = graph.call_function(Q.dequantize_per_tensor.default, (code, 0.02, weight_zero_point, *INT8))
    window = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    graph.output(graph.call_function(ATEN.convolution.default, (source, weight, None, *window)))
    quantize.meta["val"], weight.meta["val"] = torch.empty(1, dtype=torch.int8), torch.empty(6, 4, 3, 3)
    return GraphModule(root, graph)


def inputs() -> torch.Tensor:
    """Values beyond both ends of the codes too."""
    return 20 * torch.randn((2, 4, 8, 8), generator=torch.Generator().manual_seed(1))


def called(graph: GraphModule, target: object) -> list[torch.fx.Node]:
    return [node for node in graph.graph.nodes if node.target is target]


@pytest.mark.parametrize("weight_zero_point", [0, 5])
def test_equal_scales_for_every_channel_are_one_scale_for_all(weight_zero_point):
    graph = quantized_convolution(weight_zero_point=weight_zero_point)
    before = graph(inputs())
    _int8.weights_per_channel(graph.graph)
    graph.recompile()
    [weight] = called(graph, Q.dequantize_per_channel.default)
    assert torch.equal(getattr(graph, weight.args[1].target), torch.full((6,), 0.02))
    assert torch.equal(graph(inputs()), before)


@pytest.mark.parametrize("zero_point", [-128, -7, 0, 127])
def test_uint8_with_the_zero_point_128_higher_is_int8(zero_point):
    graph = quantized_convolution(zero_point)
    before = graph(inputs())
    _int8.convolved_as_uint8(graph.graph)
    graph.recompile()
    [quantize] = called(graph, Q.quantize_per_tensor.default)
    assert quantize.args[1:] == (0.1, zero_point + 128, *UINT8)
    assert quantize.meta["val"].dtype == torch.uint8
    assert torch.equal(graph(inputs()), before)


def test_codes_that_somebody_else_reads_stay_as_they_are():
    graph = quantized_convolution()
    [quantize] = called(graph, Q.quantize_per_tensor.default)
    with graph.graph.inserting_after(quantize):
        graph.graph.call_function(ATEN.relu.default, (quantize,))
    _int8.convolved_as_uint8(graph.graph)
    assert quantize.args[-1] is torch.int8


def test_a_convolution_whose_weight_is_float_keeps_int8():
    graph = quantized_convolution()
    weight = called(graph, Q.dequantize_per_tensor.default)[1]
    weight.target, weight.args = ATEN.relu.default, (weight.args[0],)
    _int8.convolved_as_uint8(graph.graph)
    assert called(graph, Q.quantize_per_tensor.default)[0].args[-1] is torch.int8


def test_a_table_of_embeddings_and_a_vector_are_no_weights():
    graph = quantized_convolution()
    weight = called(graph, Q.dequantize_per_tensor.default)[1]
    weight.meta["val"] = torch.empty(6)
    _int8.weights_per_channel(graph.graph)
    assert not called(graph, Q.dequantize_per_channel.default)
    weight.meta["val"] = torch.empty(6, 4)
    [convolution] = called(graph, ATEN.convolution.default)
    convolution.target, convolution.args = ATEN.embedding.default, (weight, graph.graph.find_nodes(op="placeholder")[0])
    _int8.weights_per_channel(graph.graph)
    assert not called(graph, Q.dequantize_per_channel.default)


def test_rewrites_end_with_their_context_also_after_an_error():
    first = freezing_patterns.pass_patterns[0]
    ran: list[str] = []

    def broken(_graph: Graph) -> None:
        ran.append("rewrite")
        raise KeyError

    with pytest.raises(KeyError), _int8.rewriting(broken):
        first.apply(quantized_convolution().graph)
    assert ran == ["rewrite"]
    assert "apply" not in vars(first)


def test_two_repairs_of_one_seam_are_refused():
    with _int8.rewriting(), pytest.raises(_int8.SeamMovedError), _int8.rewriting():
        pass


def test_the_installed_release_needs_all_three_repairs():
    """Of a Conv2d and a Linear per tensor 0 kernels, repaired 2; an int8 convolution raises; 1 to 2 spans 255 steps."""
    per_tensor, s8_conv, choose = (diagnose(fix) for fix in (PER_TENSOR, S8_CONV, CHOOSE_QPARAMS))
    assert {per_tensor.state, s8_conv.state, choose.state} == {FixState.NEEDED}
    assert (per_tensor.released, per_tensor.repaired) == (0, 2)
    assert "Input tensor should have uint8" in str(s8_conv.released)
    assert s8_conv.repaired == 1
    assert (choose.released, choose.repaired) == (pytest.approx(1 / 255), pytest.approx(2 / 255))


def test_what_is_added_to_a_sum_that_a_convolution_reads_moves_with_it():
    """A fused kernel adds in place: summand and sum are uint8; codes that the sum has nothing to do with stay int8."""
    graph = quantized_convolution()
    graph.register_buffer("second", torch.ones((2, 6, 1, 1), dtype=torch.int8))
    [convolution] = called(graph, ATEN.convolution.default)
    [output] = graph.graph.find_nodes(op="output")
    call = graph.graph.call_function
    with graph.graph.inserting_before(output):
        other, second = graph.graph.placeholder("other"), graph.graph.get_attr("second")

        def quantized(value, scale):
            node = call(Q.quantize_per_tensor.default, (value, scale, 0, *INT8))
            node.meta["val"] = torch.empty(1, dtype=torch.int8)
            return call(Q.dequantize_per_tensor.default, (node, scale, 0, *INT8))

        summand, apart = quantized(other, 0.3), quantized(other, 0.7)
        total = quantized(call(ATEN.relu.default, (call(ATEN.add.Tensor, (convolution, summand)),)), 0.5)
        weight = call(Q.dequantize_per_tensor.default, (second, 0.02, 0, *INT8))
        result = call(ATEN.convolution.default, (total, weight, None, *convolution.args[3:]))
    output.args = ((result, apart),)
    graph.recompile()
    values = inputs(), 5 * torch.randn((2, 6, 6, 6), generator=torch.Generator().manual_seed(2))
    before = graph(*values)
    _int8.convolved_as_uint8(graph.graph)
    graph.recompile()
    types = {node.args[1]: node.args[-1] for node in called(graph, Q.quantize_per_tensor.default)}
    assert types == {0.1: torch.uint8, 0.3: torch.uint8, 0.5: torch.uint8, 0.7: torch.int8}
    assert all(torch.equal(*pair) for pair in zip(before, graph(*values), strict=True))


def test_codes_that_are_moved_about_on_the_way_move_with_the_rest():
    graph = quantized_convolution()
    quantize, source = (
        called(graph, Q.quantize_per_tensor.default)[0],
        called(graph, Q.dequantize_per_tensor.default)[0],
    )
    with graph.graph.inserting_after(quantize):
        turned = graph.graph.call_function(ATEN.permute.default, (quantize, [0, 1, 3, 2]))
    turned.meta["val"], source.args = quantize.meta["val"], (turned, *source.args[1:])
    graph.recompile()
    before = graph(inputs())
    _int8.convolved_as_uint8(graph.graph)
    graph.recompile()
    assert quantize.args[-1] is torch.uint8
    assert torch.equal(graph(inputs()), before)
