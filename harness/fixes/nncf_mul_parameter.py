"""NNCF takes a parameter that is multiplied in for an activation, its first axis for samples, and averages over it.

Upstream: openvinotoolkit/nncf issue 3576. `TorchAOQuantizerAdapter._get_quantization_points` calls a constant a weight
only on a port that the op's metatype lists, and Mul lists none, as its weight may be either operand. With batchwise
statistics (batch size above 1) the range of the parameter is then the mean over its first axis.

The repair needs two places: the adapter calls the parameter a weight and notes its port, and the min-max algorithm asks
for that port instead of the metatype's. With the first alone (`trap`) the algorithm finds no port, and the parameter
silently gets no quantizer at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError, replaced, seam
from harness.flows.nncf import is_parameter, parameter_mul_quantizer, quantize, silent_nncf
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_PARAMETER = (0.25, -0.5, 1.0)
_ABSMAX = 1.0
_CLASSIFY = "_get_quantization_points"
_CLASSIFY_TAKES = ("from_node", "to_nodes", "annotated_model", "qconfig")
_LOCATE = "_get_weight_quantization_target_points"
_LOCATE_TAKES = ("self", "quantization_point", "nncf_graph")


def probe() -> Reading:
    """Upper range bound of the parameter in `parameter * x` or `x * parameter`, whichever is further off."""
    bounds = [*_bounds(parameter_first=True), *_bounds(parameter_first=False)]
    if len(bounds) < 2:
        return Reading("no quantizer", _ABSMAX, right=False)
    value = max(bounds, key=lambda bound: abs(bound - _ABSMAX))
    return Reading(value, _ABSMAX, right=abs(value - _ABSMAX) < 1e-6)


def _bounds(parameter_first: bool) -> list[float]:
    """The bound NNCF gives a parameter of shape (3, 1, 1) from a batch of 2; empty if it quantizes nothing."""
    import torch

    from harness.measure.qdq import bind, is_dequantize

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(_PARAMETER).reshape(3, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x if parameter_first else x * self.scale

    inputs = (torch.ones(2, 3, 4, 4),)
    graph: torch.fx.GraphModule = torch.export.export(Scaled().eval(), inputs).module()
    quantized = quantize(parameter_mul_quantizer, graph, [inputs])
    bound = [bind(node) for node in quantized.graph.nodes if is_dequantize(node)]
    return [float(found["scale"] * (found["quant_max"] - found["zero_point"])) for found in bound]


def repair() -> AbstractContextManager[None]:
    """Parameters of Mul are weights, quantized on the port they are on."""
    return _repaired(keep_port=True)


def trap() -> AbstractContextManager[None]:
    """Parameters of Mul are weights, on no port."""
    return _repaired(keep_port=False)


@contextmanager
def _repaired(keep_port: bool) -> Iterator[None]:
    try:
        with silent_nncf():
            from nncf.experimental.torch.fx.quantization.quantizer.torch_ao_adapter import TorchAOQuantizerAdapter
            from nncf.quantization.algorithms.min_max.algorithm import MinMaxQuantization
        seam(TorchAOQuantizerAdapter, _CLASSIFY, _CLASSIFY_TAKES)
        points = _with_mul_weights(getattr(TorchAOQuantizerAdapter, _CLASSIFY))
        targets = _on_noted_port(seam(MinMaxQuantization, _LOCATE, _LOCATE_TAKES))
    except ImportError as error:
        raise SeamMovedError(str(error)) from error
    with ExitStack() as stack:
        stack.enter_context(replaced(TorchAOQuantizerAdapter, _CLASSIFY, staticmethod(points)))
        if keep_port:
            stack.enter_context(replaced(MinMaxQuantization, _LOCATE, targets))
        yield


def _with_mul_weights(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    from nncf.common.quantization.quantizer_setup import SingleConfigQuantizationPoint, WeightQuantizationInsertionPoint
    from nncf.experimental.torch.fx.nncf_graph_builder import GraphConverter
    from nncf.torch.graph.operator_metatypes import PTMulMetatype

    @wraps(original)
    def points(
        from_node: torch.fx.Node, to_nodes: list[torch.fx.Node], annotated_model: torch.fx.GraphModule, qconfig: Any
    ) -> list[Any]:
        metatypes = {GraphConverter.get_node_type_and_metatype(node, annotated_model)[1] for node in to_nodes}
        if metatypes != {PTMulMetatype} or not is_parameter(annotated_model, from_node):
            return original(from_node, to_nodes, annotated_model, qconfig)
        return [point(node, node.args.index(from_node), qconfig) for node in to_nodes]

    def point(mul: torch.fx.Node, port: int, qconfig: Any) -> Any:
        place = WeightQuantizationInsertionPoint(mul.name)
        # The port is noted beside the place's identity, which stays the node's name: equality and hash ignore it.
        place.input_port_id = port
        return SingleConfigQuantizationPoint(place, qconfig, [mul.name])

    return points


def _on_noted_port(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    from nncf.common.graph.transformations.commands import TargetType

    @wraps(original)
    def targets(self: Any, quantization_point: Any, nncf_graph: Any) -> list[Any]:
        place = quantization_point.insertion_point
        port = getattr(place, "input_port_id", None)
        if port is None:
            return original(self, quantization_point, nncf_graph)
        kind = TargetType.OPERATION_WITH_WEIGHTS
        return [self._backend_entity.target_point(kind, place.target_node_name, port)]

    return targets


FIX = Fix(
    name="nncf-mul-parameter",
    link="https://github.com/openvinotoolkit/nncf/issues/3576",
    package="nncf",
    known=("3.4.0",),
    flows=("nncf-mul",),
    stage=Stage.CALIBRATE,
    measures="upper range bound of a multiplied parameter [0.25, -0.5, 1.0]",
    probe=probe,
    repair=repair,
    trap=trap,
)
