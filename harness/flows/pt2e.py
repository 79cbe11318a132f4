"""What the flows through torchao's PT2E share: a strict export, `prepare_pt2e`, calibration and `convert_pt2e`.

Upstream: `torchao/quantization/pt2e/quantize_pt2e.py`. Upstream packages are imported inside the stages, so that
listing flows costs nothing and the fp32 reference is computed before upstream code is loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def export_strict(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.fx.GraphModule:
    """The float ATen graph. Strict, as the quantizers' pattern matchers stop at non-strict graphs' extra nodes."""
    import torch

    exported: torch.fx.GraphModule = torch.export.export(model, inputs, strict=True).module()
    _forget_exports()
    return exported


def _forget_exports() -> None:
    """Drop what dynamo left in its own globals: one compiled module, with all its weights, for each strict export.

    `torch._dynamo.functional_export` of torch 2.14 is where exported frames run; a process that exports five BERT-base
    keeps 2 GB there.
    """
    from torch._dynamo import functional_export

    for name in [name for name in vars(functional_export) if name.startswith("__compiled_fn")]:
        delattr(functional_export, name)


def prepare(quantizer: Callable[[], Any], graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with observers where the quantizer that `quantizer()` makes asks for them."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared: torch.fx.GraphModule = prepare_pt2e(graph, quantizer())
    _forget_graphs()
    return prepared


def calibrate(prepared: torch.fx.GraphModule, batches: Iterable[tuple[torch.Tensor, ...]]) -> None:
    """Show the observers every batch."""
    for inputs in batches:
        prepared(*inputs)


def convert(calibrated: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with quantize and dequantize ops in the place of its observers, and its weights folded to codes."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    converted: torch.fx.GraphModule = convert_pt2e(calibrated)
    _forget_graphs()
    return converted


def _forget_graphs() -> None:
    """Empty the cache in which torchao keeps the last 128 graphs it asked for their device.

    `torchao.utils._assert_and_get_unique_device` is an lru_cache over modules: each BERT-base flow would leave 0.5 to
    1 GB behind.
    """
    from torchao import utils

    clear = getattr(getattr(utils, "_assert_and_get_unique_device", None), "cache_clear", None)
    if clear is not None:
        clear()


def keep_integer_scalars(graph: torch.fx.GraphModule) -> None:
    """Write integer `x + 2` and `x * 2` with the scalar overloads, which compute the same.

    ExecuTorch's quantizers turn the scalar of every `add.Tensor` and `mul.Tensor` into a float tensor, and so the
    positions with which BERT indexes its attention mask into floats (pytorch/executorch issues 22062 and 22365); they
    leave the scalar overloads alone.
    """
    import torch

    aten = torch.ops.aten
    scalar = {aten.add.Tensor: aten.add.Scalar, aten.mul.Tensor: aten.mul.Scalar}
    for node in graph.graph.nodes:
        if node.target in scalar and isinstance(node.args[1], int) and not node.meta["val"].is_floating_point():
            node.target = scalar[node.target]
    graph.recompile()
