"""ExecuTorch's Vulkan backend: VulkanQuantizer, weight only, then the backend's fusion into quantized linear ops.

Upstream: `backends/vulkan/quantizer/vulkan_quantizer.py`, `backends/vulkan/_passes/fuse_quantized_ops.py` and
`backends/vulkan/vulkan_preprocess.py` of pytorch/executorch. Linear weights are int8 codes of 4 or 8 bits, symmetric
per output channel; nothing else is quantized. The fused ops run on the CPU through the reference implementations of
the op library (`et_vk.linear_qcs4w`, `aten._weight_int8pack_mm`), not through the shaders.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from harness.flows import Flow
from harness.flows.pt2e import calibrate, convert, export_strict, keep_integer_scalars, prepare
from harness.flows.runtime import shared_provenance

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def flow(name: str) -> Flow:
    """The Vulkan flow called `name`: `vulkan-4w` or `vulkan-8w`, by the bits of a weight."""
    bits = {"vulkan-4w": 4, "vulkan-8w": 8}[name]
    return Flow(
        name=name,
        package="executorch",
        export=export_strict,
        prepare=partial(_prepare, bits),
        calibrate=calibrate,
        convert=convert,
        edge=to_edge_program,
        lower=fuse,
    )


def _prepare(bits: int, graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    keep_integer_scalars(graph)  # VulkanQuantizer makes them floats as XNNPACKQuantizer does
    return prepare(partial(_quantizer, bits), graph)


def _quantizer(bits: int) -> Any:
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
        VulkanQuantizer,
        get_symmetric_quantization_config,
    )

    return VulkanQuantizer().set_global(get_symmetric_quantization_config(is_dynamic=False, weight_bits=bits))


def to_edge_program(converted: torch.fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> ExportedProgram:
    """The edge program with its linears, as the backend has it before it fuses.

    `to_edge` takes linears apart and the backend's first pass puts them together again, with views around a linear of
    more than two dimensions. Telling `to_edge` to leave linears alone gives another graph: `_weight_int8pack_mm`
    then gets the unflattened activation, which it does not take.
    """
    import torch
    from executorch.backends.transforms.addmm_mm_to_linear import AddmmToLinearTransform
    from executorch.backends.vulkan.vulkan_preprocess import apply_passes
    from executorch.exir import to_edge

    with shared_provenance():
        program: ExportedProgram = to_edge(torch.export.export(converted, inputs)).exported_program()
        linears: ExportedProgram = apply_passes(program, [AddmmToLinearTransform()])
    return linears


def fuse(program: ExportedProgram) -> torch.fx.GraphModule:
    """Fuse dequantized weights into quantized linear ops; packed weights replace the codes in `program`'s state."""
    from executorch.backends.vulkan._passes import FuseQuantizedOpsTransform
    from executorch.backends.vulkan.vulkan_preprocess import apply_passes

    fused: torch.fx.GraphModule = apply_passes(program, [FuseQuantizedOpsTransform()]).module()
    _view_without_copies(fused)
    return fused


def _view_without_copies(graph: torch.fx.GraphModule) -> None:
    """Let views be views, as in eager code: the same values.

    The edge dialect only knows views that copy. Running those would copy the weight of a linear whose input stays
    batched once for each element of the batch: 100 s and 2.5 GB for the evaluation set of ViT-B/16.
    """
    import torch

    aten = torch.ops.aten
    views: dict[object, torch._ops.OpOverload] = {
        aten.expand_copy.default: aten.expand.default,
        aten.view_copy.default: aten.reshape.default,
    }
    for node in graph.graph.nodes:
        node.target = views.get(getattr(node.target, "_op", None), node.target)
    graph.recompile()
