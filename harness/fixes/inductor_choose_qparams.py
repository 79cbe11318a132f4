"""Inductor: dynamically quantized values that are all of one sign are clipped once the graph is compiled.

`choose_qparams_tensor` in `torch/_inductor/decomposition.py` of torch 2.14 takes the range from the least to the
largest value as it is. The op that it decomposes (`quantized_decomposed.choose_qparams.tensor`) widens the range to
hold 0 first, for which there must be a code: values of 1 to 2 get a scale of 2 / 255 from it, and of 1 / 255, with the
zero point clamped to 0, from the decomposition, so that all of them come out as 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError
from harness.records import Stage

if TYPE_CHECKING:
    import torch


def _probe() -> Reading:
    """The scale for values of 1 to 2: eager, and as the table decomposes the op."""
    import torch
    from torch._inductor.decomposition import select_decomp_table

    values = torch.linspace(1.0, 2.0, 256)
    arguments = (values, 0, 255, 2**-12, torch.uint8)
    choose = torch.ops.quantized_decomposed.choose_qparams.tensor
    decomposed = select_decomp_table().get(choose, choose)
    scale, _ = decomposed(*arguments)
    should, _ = choose(*arguments)
    return Reading(scale, should, right=abs(float(scale) - float(should)) <= 1e-6 * float(should))


@contextmanager
def _repair() -> Iterator[None]:
    """Replace the decomposition in every table that Inductor hands out."""
    import torch
    from torch._inductor import decomposition

    choose = torch.ops.quantized_decomposed.choose_qparams.tensor
    tables = [decomposition.decompositions, decomposition.fast_random_decomps()]
    if not all(choose in table for table in tables):
        raise SeamMovedError("torch._inductor.decomposition decomposes choose_qparams.tensor no more")
    before = [table[choose] for table in tables]
    for table in tables:
        table[choose] = _choose_qparams
    try:
        yield
    finally:
        for table, released in zip(tables, before, strict=True):
            table[choose] = released


def _choose_qparams(
    values: torch.Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    del dtype
    low, high = torch.aminmax(values)
    low, high = torch.clamp(low, max=0.0), torch.clamp(high, min=0.0)
    scale = torch.clamp((high - low) / float(quant_max - quant_min), min=eps)
    zero_point = torch.clamp(quant_min - torch.round(low / scale).to(torch.int), quant_min, quant_max)
    return scale.to(torch.float64), zero_point.to(torch.int64)


FIX = Fix(
    name="inductor-choose-qparams",
    link="https://github.com/pytorch/pytorch/blob/v2.14.1/torch/_inductor/decomposition.py#L1200",
    package="torch",
    known=("2.14.1",),
    flows=("x86-dynamic", "arm-dynamic-*"),
    stage=Stage.LOWER,
    measures="scale that a compiled graph chooses for values of 1 to 2, 255 steps",
    probe=_probe,
    repair=_repair,
)
