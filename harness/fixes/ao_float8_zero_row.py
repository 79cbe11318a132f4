"""torchao: a row of zeros gets the float8 scale 0, and its codes are 0 / 0.

Upstream: `_choose_scale_float8` in `torchao/quantization/quant_primitives.py`, pytorch/ao issue 4713. A pruned channel
or an unused embedding row is enough; with a scale for the whole tensor, so is a tensor of zeros.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError, replaced, seam
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_CHOOSE = "_choose_scale_float8"
_SIGNATURE = ("tensor", "block_size", "float8_dtype", "scale_dtype", "hp_value_lb", "hp_value_ub")


def _probe() -> Reading:
    import torch
    from torchao.quantization import PerRow
    from torchao.quantization.quantize_.workflows import Float8Tensor

    weight = torch.linspace(-1, 1, 4 * 16).reshape(4, 16)
    weight[2] = 0
    restored = Float8Tensor.from_hp(weight, granularity=PerRow()).dequantize()
    value = 100 * float(restored.isnan().double().mean())
    return Reading(value, 0.0, right=value == 0)


@contextmanager
def _repair() -> Iterator[None]:
    """Choose the scale 1 where upstream chooses 0: a row without values is then stored exactly.

    The function is an op (torch.ops.torchao.choose_scale_float8), imported by name into every module that makes float8
    tensors, so the name is replaced in each, but not where it is defined: a module first imported under the repair
    would take it from there and keep it.
    """
    import torch
    import torchao.quantization.quantize_.workflows  # noqa: F401 the modules that use the name are loaded
    from torchao.quantization import quant_primitives

    released = seam(quant_primitives, _CHOOSE)
    names = tuple(argument.name for argument in released.default._schema.arguments)
    if names != _SIGNATURE:
        raise SeamMovedError(f"{released} takes ({', '.join(names)}), not ({', '.join(_SIGNATURE)})")

    def never_zero(*args: Any, **kwargs: Any) -> torch.Tensor:
        scale: torch.Tensor = released(*args, **kwargs)
        return torch.where(scale == 0, 1.0, scale)

    loaded = [module for name, module in sys.modules.items() if name.startswith("torchao.")]
    users = [module for module in loaded if vars(module).get(_CHOOSE) is released and module is not quant_primitives]
    with ExitStack() as seams:
        for module in users:
            seams.enter_context(replaced(module, _CHOOSE, never_zero))
        yield


FIX = Fix(
    name="ao-float8-zero-row",
    link="https://github.com/pytorch/ao/issues/4713",
    package="torchao",
    known=("0.18.0",),
    flows=(),
    stage=Stage.CONVERT,
    measures="NaN in the dequantized weight, %",
    probe=_probe,
    repair=_repair,
)
