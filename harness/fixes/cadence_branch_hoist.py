"""Cadence's branch hoist gives all slices of a tensor the qparams of the one with the largest zero point.

Upstream: `AdvanceQuantizeOpAboveDefInBranchPass` in `executorch/backends/cadence/aot/reorder_ops.py`,
pytorch/executorch PR 24132. Where every reader of a tensor slices and quantizes it, one quantize op on the whole tensor
takes their place, and each slice is requantized to its own qparams. A narrow range's qparams then clip the wide slices,
or a wide range's leave the narrow ones few codes. The repair hoists only what has one set of qparams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.fixes import Fix, Reading
from harness.fixes.seams import replaced, seam
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_NARROW, _WIDE = (2.7 / 255, -34), (100 / 255, -128)
"""(scale, zero point) of int8 codes for [-1, 1.7] and for [0, 100]."""


def probe() -> Reading:
    """SQNR, dB, of the last of three slices, with ranges [-1, 1.7] twice and [0, 100], each with its own qparams."""
    import torch

    from harness.flows.cadence import edge, lower

    ramp = torch.linspace(0, 1, 100)
    narrow, wide = 2.7 * ramp - 1, 100 * ramp
    inputs = (torch.stack((narrow, narrow, wide)),)
    program = edge(_branches((_NARROW, _NARROW, _WIDE)), inputs)
    with torch.no_grad():
        before = _sqnr_db(wide, program.exported_program().module()(*inputs)[-1])
        after = _sqnr_db(wide, lower(program)(*inputs)[-1])
    return Reading(after, before, right=after > before - 0.1)


def _branches(qparams: tuple[tuple[float, int], ...]) -> torch.nn.Module:
    """A model that quantizes row `i` of its input with `qparams[i]`, each as (scale, zero point)."""
    import torch

    ops = torch.ops.quantized_decomposed

    class Branches(torch.nn.Module):
        def forward(self, packed: torch.Tensor) -> tuple[torch.Tensor, ...]:
            branches = []
            for row, (scale, zero_point) in enumerate(qparams):
                args = (scale, zero_point, -128, 127, torch.int8)
                codes = ops.quantize_per_tensor(packed[row : row + 1], *args)
                branches.append(ops.dequantize_per_tensor(codes, *args)[0])
            return tuple(branches)

    return Branches()


def _sqnr_db(reference: torch.Tensor, actual: torch.Tensor) -> float:
    noise = (reference.double() - actual.double()).square().sum()
    return float(10 * (reference.double().square().sum() / noise).log10())


@contextmanager
def repair() -> Iterator[None]:
    """Branches with unequal qparams are none that could be hoisted."""
    import executorch.backends.cadence.aot.ops_registrations  # noqa: F401  (the next import looks up its ops)
    from executorch.backends.cadence.aot import reorder_ops

    owner = seam(reorder_ops, "AdvanceQuantizeOpAboveDefInBranchPass")
    name, taking = "get_descendent_quant_ops", ("self", "node")
    original = seam(owner, name, taking)

    def equal_quant_ops(self: Any, node: torch.fx.Node) -> list[torch.fx.Node]:
        found: list[torch.fx.Node] = original(self, node)
        return found if len({quantize.args[1:] for quantize in found}) == 1 else []

    with replaced(owner, name, equal_quant_ops, taking):
        yield


FIX = Fix(
    name="cadence-branch-hoist",
    link="https://github.com/pytorch/executorch/pull/24132",
    package="executorch",
    known=("1.5.1",),
    flows=("cadence-*",),
    stage=Stage.LOWER,
    measures="SQNR (dB) of a slice of [0, 100] beside slices of [-1, 1.7]",
    probe=probe,
    repair=repair,
)
