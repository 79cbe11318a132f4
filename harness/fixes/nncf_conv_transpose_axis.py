"""NNCF quantizes a transposed convolution's weight per input channel where the quantizer asked for output channels.

Upstream: `FXMinMaxAlgoBackend` of `nncf/quantization/algorithms/min_max/torch_fx_backend.py` takes axis 0 of every
weight, for its statistics and for its quantizer, and marks both as open; openvinotoolkit/nncf pull request 3334 touches
it. A transposed convolution has its output channels on axis 1, which is what ExecuTorch's XNNPACKQuantizer annotates.
An output channel of small weights then gets the step of the large ones, which the output as a whole hardly shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError, replaced, seam
from harness.flows.nncf import quantize, silent_nncf
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_OUTPUT_AXIS = 1
_AXIS = "_get_channel_axis"
_STATISTICS = "get_weight_quantization_axes"
_SEAMS = {
    _STATISTICS: ("node", "target_point", "ndims"),
    "create_quantizer_insertion_command": ("nncf_graph", "target_point", "quantizer_config", "parameters"),
    "create_unified_scales_quantizers_insertion_commands": (
        *("nncf_graph", "target_points", "quantizer_config", "parameters"),
    ),
}
_SMALLER = 16
"""How much smaller the weights of the second output channel are: on a common step it loses four of its eight bits."""


def probe() -> Reading:
    """SQNR of the worst output channel of a transposed convolution's weight; right is what torch's own op reaches."""
    import torch

    layer, inputs = _layer()
    weight = layer.weight.detach()
    graph: torch.fx.GraphModule = torch.export.export(layer, inputs).module()
    value = _worst_channel_db(weight, _dequantized_weight(quantize(_xnnpack_quantizer, graph, [inputs])))
    scale = weight.abs().amax((0, 2, 3)) / 127
    zero_point = torch.zeros_like(scale, dtype=torch.int32)
    ideal = torch.fake_quantize_per_channel_affine(weight, scale, zero_point, _OUTPUT_AXIS, -127, 127)
    should = _worst_channel_db(weight, ideal)
    return Reading(value, should, right=value > should - 0.5)


def _layer() -> tuple[torch.nn.ConvTranspose2d, tuple[torch.Tensor]]:
    import torch

    layer = torch.nn.ConvTranspose2d(8, 2, 8, bias=False).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1.0, 1 / _SMALLER]).reshape(1, 2, 1, 1)
    layer.weight.data = torch.randn(layer.weight.shape, generator=generator) * sizes
    return layer, (torch.randn(2, 8, 4, 4, generator=generator),)


def _xnnpack_quantizer() -> Any:
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    # For this op alone: the patterns of all others are exported for each call, which takes seconds.
    config = get_symmetric_quantization_config(is_per_channel=True)
    return XNNPACKQuantizer().set_operator_type(torch.ops.aten.conv_transpose2d.input, config)


def _dequantized_weight(graph: torch.fx.GraphModule) -> torch.Tensor:
    import torch

    from harness.measure.qdq import bind, is_dequantize
    from harness.measure.sites import constant

    def value(argument: Any) -> Any:
        return constant(graph, argument) if isinstance(argument, torch.fx.Node) else argument

    (folded,) = [node for node in graph.graph.nodes if is_dequantize(node) and value(node.args[0]) is not None]
    weight: torch.Tensor = folded.target(**bind(folded, value))
    return weight


def _worst_channel_db(weight: torch.Tensor, quantized: torch.Tensor) -> float:
    """The lowest SQNR of any output channel, in dB."""
    noise = (weight - quantized).double().square().sum((0, 2, 3))
    return float((10 * (weight.double().square().sum((0, 2, 3)) / noise).log10()).min())


@contextmanager
def repair() -> Iterator[None]:
    """Weights of transposed convolutions have their channels on axis 1, in the statistics and in the quantizer."""
    try:
        with silent_nncf():
            from nncf.quantization.algorithms.min_max.torch_fx_backend import FXMinMaxAlgoBackend as Backend
            from nncf.torch.graph import operator_metatypes as om
    except ImportError as error:
        raise SeamMovedError(str(error)) from error
    transposed = {om.PTConvTranspose1dMetatype, om.PTConvTranspose2dMetatype, om.PTConvTranspose3dMetatype}
    seam(Backend, _AXIS, ("is_weight_quantizer",))
    with ExitStack() as stack:
        for name, taking in _SEAMS.items():
            seam(Backend, name, taking)
            wrap = _output_axes if name == _STATISTICS else partial(_on_output_axis, Backend)
            stack.enter_context(replaced(Backend, name, staticmethod(wrap(transposed, getattr(Backend, name)))))
        yield


def _output_axes(transposed: set[Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def axes(node: Any, target_point: Any, ndims: int) -> Any:
        return (_OUTPUT_AXIS,) if node.metatype in transposed else original(node, target_point, ndims)

    return axes


def _on_output_axis(backend: Any, transposed: set[Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The command for one point or several, whose quantizer is made on axis 1 where that is right."""

    @wraps(original)
    def command(nncf_graph: Any, points: Any, quantizer_config: Any, parameters: Any) -> Any:
        point = points[0] if isinstance(points, list) else points
        metatype = nncf_graph.get_node_by_name(point.target_node_name).metatype
        with ExitStack() as stack:
            if point.is_weight_target_point() and metatype in transposed:
                stack.enter_context(replaced(backend, _AXIS, staticmethod(lambda _is_weight: _OUTPUT_AXIS)))
            return original(nncf_graph, points, quantizer_config, parameters)

    return command


FIX = Fix(
    name="nncf-conv-transpose-axis",
    link="https://github.com/openvinotoolkit/nncf/pull/3334",
    package="nncf",
    known=("3.4.0",),
    flows=(),
    stage=Stage.CALIBRATE,
    measures="SQNR of a transposed convolution's worst weight channel, dB",
    probe=probe,
    repair=repair,
    needs=("executorch",),
)
