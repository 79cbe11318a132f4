"""Graph rewrites ahead of Inductor's patterns, which compute the same numbers in a form that a pattern or kernel takes.

They run on the frozen graph, before the first of the passes that torchao registers its patterns with
(`torch._inductor.fx_passes.freezing_patterns.pass_patterns`), and torchao's patterns do the lowering: on x86 to
oneDNN's kernels, on aarch64 to those of its ACL build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.utils._python_dispatch import _disable_current_modes

from harness.errors import in_a_line, root_of
from harness.fixes import Reading
from harness.fixes.seams import SeamMovedError

_AGREE_DB = 40.0
_SHIFT = 128
"""Between the codes of int8 and those of uint8 for the same values."""
_ATEN = torch.ops.aten
_ADD = _ATEN.add.Tensor
_ELEMENTWISE = (_ATEN.relu.default, _ATEN.clamp_min.default, _ATEN.clamp.default, _ATEN.hardtanh.default)
"""What a kernel applies to a sum before it is quantized."""
_MOVES = (
    *(_ATEN.permute.default, _ATEN.view.default, _ATEN.reshape.default, _ATEN.transpose.int, _ATEN.clone.default),
    *(_ATEN.expand.default, _ATEN.slice.Tensor, _ATEN.select.int, _ATEN.unsqueeze.default, _ATEN.squeeze.dim),
)
"""Ops that move codes and compute nothing."""


def weights_per_channel(graph: Graph) -> None:
    """Write a weight's per-tensor dequantize as a per-channel one whose scales are equal.

    Scales become float32, as per-channel ones are; the per-tensor op multiplies in float32 too.
    """
    decomposed = torch.ops.quantized_decomposed
    for node in list(graph.nodes):
        if node.target is not decomposed.dequantize_per_tensor.default or not _is_weight(node):
            continue
        code, scale, zero_point, low, high, dtype = node.args
        channels = node.meta["val"].shape[0]
        with graph.inserting_before(node):
            scales = _constant(graph, f"{node.name}_scales", [scale] * channels, torch.float32)
            points = _constant(graph, f"{node.name}_zero_points", [zero_point] * channels, torch.int64)
            arguments = (code, scales, points, 0, low, high, dtype)
            widened = graph.call_function(decomposed.dequantize_per_channel.default, arguments)
        widened.meta.update(node.meta)
        node.replace_all_uses_with(widened)
        graph.erase_node(node)


def convolved_as_uint8(graph: Graph) -> None:
    """Quantize what a quantized convolution reads to uint8 in the place of int8, with the zero point moved by 128.

    So are the tensors that it is added to and the sum, which a fused kernel holds in one place.
    """
    moved: dict[Node, None] = {}
    waiting = [_quantize_behind(node.args[0]) for node in graph.nodes if _is_quantized_convolution(node)]
    while waiting:
        quantize = waiting.pop()
        ends = None if quantize is None or quantize in moved else _read_as(quantize)
        if quantize is None or ends is None or quantize.args[-1] is not torch.int8:
            continue
        moved[quantize] = None
        for edge in (quantize, *ends):
            value, scale, zero_point, low, high, _ = cast("tuple[Any, ...]", edge.args)
            edge.args = (value, scale, zero_point + _SHIFT, low + _SHIFT, high + _SHIFT, torch.uint8)
        sums = [reader for end in ends for reader in end.users if reader.target is _ADD]
        sums += [node for node in _elementwise_above(quantize.args[0]) if node.target is _ADD]
        waiting += [partner for node in sums for partner in _added(node)]


def _read_as(quantize: Node) -> list[Node] | None:
    """The dequantize nodes that read a quantize node's codes, moved about or not; None where anything else does.

    The nodes between them that move codes take on their type.
    """
    ends: list[Node] = []
    between, waiting = [quantize], list(quantize.users)
    while waiting:
        node = waiting.pop()
        if _is_dequantized(node):
            ends.append(node)
        elif node.target in _MOVES:
            between.append(node)
            waiting += node.users
        else:
            return None
    for node in between:
        node.meta["val"] = node.meta["val"].to(torch.uint8)
    return ends


def _quantize_behind(node: Any) -> Node | None:
    """The static quantize node whose codes are dequantized at a node, if that is what it does."""
    source = node.args[0] if _is_dequantized(node) else None
    while isinstance(source, Node) and source.target in _MOVES:
        source = source.args[0]
    static = torch.ops.quantized_decomposed.quantize_per_tensor.default
    return source if isinstance(source, Node) and source.target is static else None


def _added(node: Node) -> Iterator[Node | None]:
    """The quantize nodes behind both operands of a sum, and those that quantize it."""
    yield from map(_quantize_behind, node.args[:2])
    waiting = list(node.users)
    while waiting:
        reader = waiting.pop()
        if reader.target in _ELEMENTWISE:
            waiting += reader.users
        elif reader.target is torch.ops.quantized_decomposed.quantize_per_tensor.default:
            yield reader


def _elementwise_above(node: Any) -> Iterator[Node]:
    while isinstance(node, Node) and node.target in (*_ELEMENTWISE, _ADD):
        yield node
        if node.target is _ADD:
            return
        node = node.args[0]


@contextmanager
def rewriting(*rewrites: Callable[[Graph], None]) -> Iterator[None]:
    """Let Inductor run `rewrites` on frozen graphs before the patterns registered with it, until the context ends.

    The first of its passes is given an `apply` of its own: patterns are registered by a pass's place in the list.
    """
    from torch._inductor.fx_passes import freezing_patterns

    first = next(iter(getattr(freezing_patterns, "pass_patterns", ())), None)
    apply = getattr(first, "apply", None)
    if apply is None or "apply" in vars(first):
        raise SeamMovedError("torch._inductor.fx_passes.freezing_patterns has no first pass in pass_patterns")

    def rewritten(graph: Graph) -> Any:
        for rewrite in rewrites:
            rewrite(graph)
        return apply(graph)

    vars(first)["apply"] = rewritten
    try:
        yield
    finally:
        del vars(first)["apply"]


@cache
def kernels_take_int8_activations() -> bool:
    """Whether the int8 convolution of this machine takes int8 activations; oneDNN's on x86 takes uint8 alone."""
    codes = torch.ones((1, 4, 4, 4), dtype=torch.int8)
    weight = torch.ones((4, 4, 1, 1), dtype=torch.int8)
    scales, points = torch.ones(4), torch.zeros(4, dtype=torch.int64)
    window: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], 1)
    try:
        packed = torch.ops.onednn.qconv_prepack(weight, scales, 1.0, 0, *window, list(codes.shape))
        ending: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")
        torch.ops.onednn.qconv_pointwise(codes, 1.0, 0, packed, scales, points, None, *window, *ending)
    except (RuntimeError, AttributeError):
        return False
    return True


def _constant(graph: Graph, name: str, values: list[float], dtype: torch.dtype) -> Node:
    owner = graph.owning_module
    assert owner is not None
    with _disable_current_modes():  # passes run where every new tensor is fake, and constants are not
        owner.register_buffer(name, torch.tensor(values, dtype=dtype))
    return graph.get_attr(name)


def _is_dequantized(node: Any) -> bool:
    decomposed = torch.ops.quantized_decomposed
    kinds = (decomposed.dequantize_per_tensor.default, decomposed.dequantize_per_channel.default)
    return isinstance(node, Node) and node.target in kinds


def _is_quantized_convolution(node: Node) -> bool:
    if node.target is not torch.ops.aten.convolution.default:
        return False
    weight = node.args[1]
    if isinstance(weight, Node) and weight.target is torch.ops.aten.clone.default:  # to channels last
        weight = weight.args[0]
    return _is_dequantized(weight)


def _is_weight(node: Node) -> bool:
    """Whether a dequantized constant has output channels; tables of embeddings have none, and patterns of their own."""
    readers = [reader.target for reader in node.users]
    constant = isinstance(node.args[0], Node) and node.args[0].op == "get_attr"
    return constant and node.meta["val"].dim() > 1 and torch.ops.aten.embedding.default not in readers


def lowered_kernels(flow_name: str, layers: torch.nn.Module) -> Reading:
    """How many int8 kernels a flow's lowering makes of a model of convolutions (4 x 6 x 6 inputs) and linears.

    Right is one for each, whose result is within 40 dB of the converted graph's. Calibration sees values of -1 to 1,
    and the two are compared on -1 to -0.5: uint8 codes below 64, whose products no 16-bit sum saturates.
    """
    from harness.flows import Program, load
    from harness.measure.metrics import sqnr_db

    flow = load(flow_name)
    generator = torch.Generator().manual_seed(0)
    seen = torch.rand((2, 4, 6, 6), generator=generator)
    wanted = sum(isinstance(layer, torch.nn.Conv2d | torch.nn.Linear) for layer in layers.modules())
    with torch.no_grad():
        prepared = flow.prepare(flow.export(layers, (seen,)))
        flow.calibrate(prepared, [(2 * seen - 1,)])
        converted = flow.convert(prepared)
        reference = converted(seen / 2 - 1)
        assert flow.edge is not None
        assert flow.lower is not None
        try:
            program = flow.lower(flow.edge(converted, (seen,)))
            assert isinstance(program, Program)
            agreement = sqnr_db(reference=reference, actual=program.run(seen / 2 - 1))
        except Exception as error:
            return Reading(in_a_line(root_of(error)), wanted, right=False)
    found = program.counts["int8_convs"] + program.counts["int8_linears"]
    return Reading(found, wanted, right=found == wanted and agreement is not None and agreement >= _AGREE_DB)
