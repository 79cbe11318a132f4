"""ExecuTorch's Cadence quantizer and the pass that moves quantize ops from branches up to the tensor they share.

Upstream: `executorch/backends/cadence/aot/quantizer/quantizer.py` (`CadenceDefaultQuantizer`: asymmetric int8
activations and weights, per tensor) and `executorch/backends/cadence/aot/reorder_ops.py`
(`AdvanceQuantizeOpAboveDefInBranchPass`, pytorch/executorch PR 24132). The converted graph goes to the edge dialect as
it is, without Cadence's fusions before it, so that the pass is all that separates `lowered` from `converted`.
`cadence-portable` takes the same graph through the same pass and then to the portable kernels of ExecuTorch's runtime.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from harness.flows import Flow
from harness.flows.pt2e import calibrate, convert, export_strict, prepare
from harness.flows.runtime import make_program, shared_provenance

if TYPE_CHECKING:
    import torch

    from harness.flows import Program


def flow(name: str) -> Flow:
    """The Cadence flow called `name`: `cadence-hoist`, whose pass gives a graph, or `cadence-portable`, a program."""
    portable = {"cadence-hoist": False, "cadence-portable": True}[name]
    return Flow(
        name=name,
        package="executorch",
        export=export_strict,
        prepare=partial(prepare, _quantizer),
        calibrate=calibrate,
        convert=convert,
        edge=core_edge if portable else edge,
        lower=lower_to_portable if portable else lower,
        programs=portable,
    )


def _quantizer() -> Any:
    from executorch.backends.cadence.aot.quantizer.quantizer import CadenceDefaultQuantizer

    return CadenceDefaultQuantizer()


def edge(converted: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """The `EdgeProgramManager` of a Q/DQ module.

    The ops that Cadence's quantizer matches (linear, conv2d, ...) stay whole, as Cadence's compiler keeps them for its
    fusions; a quantizer then has the same name here as in the converted graph.
    """
    return _edge(converted, inputs, _quantizer().get_ops_to_preserve_from_decomposition())


def core_edge(converted: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """The same of core ATen ops alone: the runtime has no kernels for the ops that `edge` keeps whole."""
    return _edge(converted, inputs, [])


def _edge(converted: torch.nn.Module, inputs: tuple[torch.Tensor, ...], whole: list[Any]) -> Any:
    import torch
    from executorch.exir import EdgeCompileConfig, to_edge

    config = EdgeCompileConfig(
        _check_ir_validity=False,  # the ops that stay whole are not core ATen
        _skip_dim_order=True,  # as Cadence's compiler does
        preserve_ops=whole,
    )
    with shared_provenance():
        return to_edge(torch.export.export(converted, inputs), compile_config=config)


def lower(program: Any) -> torch.fx.GraphModule:
    """The graph after `AdvanceQuantizeOpAboveDefInBranchPass`, as a module of the model's inputs."""
    graph: torch.fx.GraphModule = _hoisted(program).exported_program().module()
    return graph


def lower_to_portable(program: Any) -> Program:
    """The same graph on the portable kernels."""
    with shared_provenance():
        return make_program(_hoisted(program))


def _hoisted(program: Any) -> Any:
    import executorch.backends.cadence.aot.ops_registrations  # noqa: F401  (the next import looks up its ops)
    from executorch.backends.cadence.aot.reorder_ops import AdvanceQuantizeOpAboveDefInBranchPass

    return program.transform([AdvanceQuantizeOpAboveDefInBranchPass()])
