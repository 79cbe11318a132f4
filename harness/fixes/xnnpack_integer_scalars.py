"""XNNPACKQuantizer makes floats of integer scalars: an index that is computed can index no more.

Upstream: `_convert_scalars_to_attrs` in `executorch/backends/xnnpack/quantizer/xnnpack_quantizer_utils.py`,
pytorch/executorch issue 22062 (mended on its main branch by PR 22065). Every scalar of `add.Tensor` and `mul.Tensor`
becomes a float tensor, whatever it is added to. BERT indexes its attention mask with `arange + 0`, so its prepared
graph raises IndexError. The repair lets integer additions and products keep their scalars.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.fixes import Fix, Reading
from harness.fixes.seams import replaced, seam
from harness.flows.pt2e import keep_integer_scalars
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_SEAM, _TAKES = "_convert_scalars_to_attrs", ("model",)


def probe() -> Reading:
    """Type of `positions + 1`, for int64 positions, in the graph that the quantizer has made ready to annotate."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    class Next(torch.nn.Module):
        def forward(self, positions: torch.Tensor) -> torch.Tensor:
            return positions + 1

    inputs = (torch.arange(4),)
    graph: torch.fx.GraphModule = torch.export.export(Next(), inputs).module()
    found = XNNPACKQuantizer().transform_for_annotation(graph)(*inputs).dtype
    return Reading(str(found), str(torch.int64), right=found == torch.int64)


@contextmanager
def repair() -> Iterator[None]:
    """Integer scalars are out of reach before upstream looks for scalars."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

    original = seam(xnnpack_quantizer, _SEAM, _TAKES)

    def keeping_integers(model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        keep_integer_scalars(model)
        transformed: torch.fx.GraphModule = original(model)
        return transformed

    with replaced(xnnpack_quantizer, _SEAM, keeping_integers, _TAKES):
        yield


FIX = Fix(
    name="xnnpack-integer-scalars",
    link="https://github.com/pytorch/executorch/issues/22062",
    package="executorch",
    known=("1.5.1",),
    flows=("xnnpack",),
    stage=Stage.PREPARE,
    last=Stage.PREPARE,
    measures="type of int64 positions + 1 in the graph to annotate",
    probe=probe,
    repair=repair,
)
