"""NNCF's `quantize_pt2e` driven by a torchao quantizer: NNCF's own statistics, ranges and bias correction.

Upstream: `nncf/experimental/torch/fx/quantization/quantize_pt2e.py`. `nncf-mul` quantizes only the parameters that are
multiplied in (openvinotoolkit/nncf issue 3576); `nncf-x86` takes the static default of X86InductorQuantizer. NNCF
folds, annotates, calibrates and converts in one call: `prepare` shows how that call begins, `calibrate` makes it and
gives the converted graph, and `convert` is left with nothing to do.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

from harness.flows import Flow
from harness.flows.pt2e import export_strict

if TYPE_CHECKING:
    import torch

_TELEMETRY = "openvino_telemetry"


def flow(name: str) -> Flow:
    """The NNCF flow called `name`: `nncf-mul` or `nncf-x86`."""
    quantizer = {"nncf-mul": parameter_mul_quantizer, "nncf-x86": _x86_quantizer}[name]
    return Flow(
        name=name,
        package="nncf",
        export=export_strict,
        prepare=partial(prepare, quantizer),
        calibrate=partial(quantize, quantizer),
        convert=_already_converted,
    )


def parameter_mul_quantizer() -> Any:
    """A torchao quantizer that annotates the parameter operands of `aten.mul.Tensor`: int8, symmetric, per tensor.

    Buffers, activations and every other op stay float.
    """
    import torch
    from torchao.quantization.pt2e.observer import MinMaxObserver
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer

    from harness.graphs import ANNOTATION

    spec = QuantizationSpec(torch.int8, MinMaxObserver, -128, 127, torch.per_tensor_symmetric)

    class ParameterMulQuantizer(Quantizer):  # type: ignore[misc]
        def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
            for node in model.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
                parameters = [operand for operand in node.all_input_nodes if is_parameter(model, operand)]
                if parameters:
                    node.meta[ANNOTATION] = QuantizationAnnotation(dict.fromkeys(parameters, spec), _annotated=True)
            return model

        def validate(self, model: torch.fx.GraphModule) -> None:
            """Nothing to check: every spec is one NNCF takes."""

    return ParameterMulQuantizer()


def is_parameter(graph: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Whether a node is a parameter of the model, or a view of one; a buffer is none."""
    import torch

    from harness.measure.sites import constant, trace_source

    return isinstance(constant(graph, trace_source(node)), torch.nn.Parameter)


def _x86_quantizer() -> Any:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())


def prepare(quantizer: Callable[[], Any], graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph as NNCF first sees it: BatchNorm folded into convolutions, and the quantizer's annotations on it."""
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_

    _fuse_conv_bn_(graph)
    made = quantizer()
    annotated: torch.fx.GraphModule = made.annotate(made.transform_for_annotation(graph))
    return annotated


def quantize(
    quantizer: Callable[[], Any], graph: torch.fx.GraphModule, batches: Iterable[tuple[torch.Tensor, ...]]
) -> torch.fx.GraphModule:
    """What the released `quantize_pt2e`, with its own defaults, makes of a graph; the graph is used up.

    What was taken off the annotations of the prepared graph stays in float. Readers of one value are taken in the order
    of the graph (`_readers_in_order`), which the released call leaves to chance.
    """
    from harness.flows.specs import excluding
    from harness.graphs import ANNOTATION

    # NNCF annotates by itself, and takes its annotations off again before later passes would read them.
    for node in graph.graph.nodes:
        node.meta.pop(ANNOTATION, None)
    source = _Batches(list(batches))
    with silent_nncf(), _readers_in_order():
        import nncf
        from nncf.experimental.torch.fx import quantize_pt2e

        dataset = nncf.Dataset(source)
        quantized: torch.fx.GraphModule = quantize_pt2e(
            graph, excluding(quantizer(), graph), dataset, subset_size=len(source)
        )
    return quantized


@contextmanager
def _readers_in_order() -> Iterator[None]:
    """NNCF with the readers that one quantizer serves in the order of the graph, while the context lasts.

    Upstream keeps them in a set of nodes (`get_quantizer_config_from_annotated_model`), which hash by their address:
    not even PYTHONHASHSEED makes two processes iterate it alike. A weight that several ops read (tied weights, a module
    called twice) is quantized for the first of them alone, so that another one was in each run; all else that NNCF
    makes of the set is the same in any order. A release that has no such function left is taken as it is: what it
    measures is right, if perhaps not twice the same.
    """
    from nncf.experimental.torch.fx.quantization.quantizer import torch_ao_adapter

    from harness.fixes.seams import SeamMovedError, replaced

    with ExitStack() as stack:
        with suppress(SeamMovedError, AttributeError):
            adapter = torch_ao_adapter.TorchAOQuantizerAdapter
            released = adapter._get_quantization_points

            def in_order(
                from_node: torch.fx.Node,
                to_nodes: list[torch.fx.Node],
                annotated_model: torch.fx.GraphModule,
                qconfig: Any,
            ) -> Any:
                order = {node: place for place, node in enumerate(annotated_model.graph.nodes)}
                return released(from_node, sorted(to_nodes, key=order.__getitem__), annotated_model, qconfig)

            stack.enter_context(
                replaced(
                    adapter,
                    "_get_quantization_points",
                    staticmethod(in_order),
                    ("from_node", "to_nodes", "annotated_model", "qconfig"),
                )
            )
        yield


def _already_converted(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    return graph


class _Batches:
    """A data source with the batch size on it: above 1, NNCF turns its per-sample statistics on."""

    def __init__(self, batches: list[tuple[torch.Tensor, ...]]) -> None:
        self._batches = batches
        self.batch_size = len(batches[0][0])

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        return iter(self._batches)


@contextmanager
def silent_nncf() -> Iterator[None]:
    """NNCF without its telemetry, and with nothing but errors printed while the context lasts.

    Raises `ImportError` if NNCF is not installed.
    """
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        _import_without_telemetry()
        with warnings.catch_warnings(), redirect_stdout(StringIO()):  # its progress bars go to stdout
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _import_without_telemetry() -> None:
    """Import NNCF as if its telemetry package were missing.

    Otherwise the import alone writes a client id into the home folder (openvino_telemetry 2025.2), whatever NNCF's own
    environment variables say. The import also makes NNCF's logger class the one of all later loggers.
    """
    hidden, logger_class = sys.modules.get(_TELEMETRY), logging.getLoggerClass()
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
    try:
        import nncf  # noqa: F401
    finally:
        logging.setLoggerClass(logger_class)
        del sys.modules[_TELEMETRY]
        if hidden is not None:
            sys.modules[_TELEMETRY] = hidden
