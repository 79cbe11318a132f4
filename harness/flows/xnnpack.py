"""ExecuTorch's XNNPACKQuantizer, static int8 activations and per-channel symmetric int8 weights.

Upstream: `executorch/backends/xnnpack/quantizer/xnnpack_quantizer.py`, configured as ExecuTorch's own
`executorch/examples/xnnpack/quantization/example.py` does: `get_symmetric_quantization_config(is_per_channel=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.flows import Flow
from harness.flows.pt2e import calibrate, convert, export_strict, prepare

if TYPE_CHECKING:
    import torch


def flow(name: str) -> Flow:
    """The flow `xnnpack`."""
    return Flow(name, "executorch", export_strict, _prepare, calibrate, convert)


def _prepare(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    _keep_integer_scalars(graph)
    return prepare(_quantizer, graph)


def _quantizer() -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


def _keep_integer_scalars(graph: torch.fx.GraphModule) -> None:
    """Write integer `x + 2` and `x * 2` with the scalar overloads, which upstream leaves alone and compute the same.

    The quantizer of executorch 1.5.1 turns the scalar of every `add.Tensor` and `mul.Tensor` into a float tensor, so
    the positions with which BERT indexes its attention mask become floats and the prepared graph raises IndexError
    (pytorch/executorch issue 22062, mended on its main branch after 1.5.1).
    """
    import torch

    aten = torch.ops.aten
    scalar = {aten.add.Tensor: aten.add.Scalar, aten.mul.Tensor: aten.mul.Scalar}
    for node in graph.graph.nodes:
        if node.target in scalar and isinstance(node.args[1], int) and not node.meta["val"].is_floating_point():
            node.target = scalar[node.target]
    graph.recompile()
