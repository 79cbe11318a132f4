"""ExecuTorch's Cadence quantizer and the pass that moves quantize ops from branches up to the tensor they share.

Upstream: `executorch/backends/cadence/aot/quantizer/quantizer.py` (`CadenceDefaultQuantizer`: asymmetric int8
activations and weights, per tensor) and `executorch/backends/cadence/aot/reorder_ops.py`
(`AdvanceQuantizeOpAboveDefInBranchPass`, pytorch/executorch PR 24132). The converted graph goes to the edge dialect as
it is, without Cadence's fusions before it, so that the pass is all that separates `lowered` from `converted`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from harness.flows import Flow
from harness.flows.pt2e import calibrate, convert, export_strict, prepare

if TYPE_CHECKING:
    import torch


def flow(name: str) -> Flow:
    """The flow `cadence-hoist`."""
    return Flow(
        name=name,
        package="executorch",
        export=export_strict,
        prepare=partial(prepare, _quantizer),
        calibrate=calibrate,
        convert=convert,
        edge=edge,
        lower=lower,
    )


def _quantizer() -> Any:
    from executorch.backends.cadence.aot.quantizer.quantizer import CadenceDefaultQuantizer

    return CadenceDefaultQuantizer()


def edge(converted: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """The `EdgeProgramManager` of a Q/DQ module.

    The ops that Cadence's quantizer matches (linear, conv2d, ...) stay whole, as Cadence's compiler keeps them for its
    fusions; a quantizer then has the same name here as in the converted graph.
    """
    import torch
    from executorch.exir import EdgeCompileConfig, to_edge

    config = EdgeCompileConfig(
        _check_ir_validity=False,  # the ops that stay whole are not core ATen
        _skip_dim_order=True,  # as Cadence's compiler does
        preserve_ops=_quantizer().get_ops_to_preserve_from_decomposition(),
    )
    return to_edge(torch.export.export(converted, inputs), compile_config=config)


def lower(program: Any) -> torch.fx.GraphModule:
    """The graph after `AdvanceQuantizeOpAboveDefInBranchPass`, as a module of the model's inputs."""
    import executorch.backends.cadence.aot.ops_registrations  # noqa: F401  (the next import looks up its ops)
    from executorch.backends.cadence.aot.reorder_ops import AdvanceQuantizeOpAboveDefInBranchPass

    hoisted = program.transform([AdvanceQuantizeOpAboveDefInBranchPass()])
    graph: torch.fx.GraphModule = hoisted.exported_program().module()
    return graph
