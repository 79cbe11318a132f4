"""ExecuTorch's XNNPACKQuantizer, static int8 activations and per-channel symmetric int8 weights, on its own runtime.

Upstream: `executorch/backends/xnnpack/quantizer/xnnpack_quantizer.py`, configured as ExecuTorch's own
`executorch/examples/xnnpack/quantization/example.py` does: `get_symmetric_quantization_config(is_per_channel=True)`;
lowered by `to_edge_transform_and_lower` with `XnnpackPartitioner`, and run by the runtime of the wheel.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from harness.flows import Flow, Program
from harness.flows.pt2e import calibrate, convert, export_strict, prepare
from harness.flows.runtime import make_program, shared_provenance

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def flow(name: str) -> Flow:
    """The flow `xnnpack`."""
    return Flow(
        name=name,
        package="executorch",
        export=export_strict,
        prepare=partial(prepare, _quantizer),
        calibrate=calibrate,
        convert=convert,
        edge=export_again,
        lower=lower,
        programs=True,
    )


def _quantizer() -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


def export_again(converted: torch.fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> ExportedProgram:
    """The Q/DQ graph as the exported program that XNNPACK's lowering takes."""
    import torch

    return torch.export.export(converted, inputs)


def lower(program: ExportedProgram) -> Program:
    """Run what the partitioner takes by XNNPACK, and the rest by the portable kernels."""
    return make_program(delegated(program))


def delegated(program: ExportedProgram) -> Any:
    """The `EdgeProgramManager` with what the partitioner takes in delegates of XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with shared_provenance():
        return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
