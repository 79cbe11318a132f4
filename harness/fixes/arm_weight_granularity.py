"""torchao: Arm's default quantization config offers one scale for a whole weight and no way to ask for another.

Upstream: `torchao/quantization/pt2e/quantizer/arm_inductor_quantizer.py`, pytorch/ao pull request 2391.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.fixes import Fix, Reading
from harness.fixes.seams import replaced, seam
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_HELPER = "get_default_arm_inductor_quantization_config"
_MAGNITUDES = (1.0, 0.3, 0.1, 0.03)
"""Of the probe's four rows, otherwise equal: with a scale of its own each row has the same SQNR."""


def _rows() -> torch.Tensor:
    import torch

    return torch.tensor(_MAGNITUDES).unsqueeze(1) * torch.linspace(-1, 1, 64)


def _worst_row_db(weight: torch.Tensor, restored: torch.Tensor) -> float:
    weight, restored = weight.double(), restored.double()
    ratio = weight.square().sum(1) / (weight - restored).square().sum(1)
    return float(10 * ratio.log10().min())


def _probe() -> Reading:
    import torch

    weight = _rows()
    scale = weight.abs().amax(1, keepdim=True) / 127.5
    should = _worst_row_db(weight, (weight / scale).round().clamp(-128, 127) * scale)
    value = _worst_row_db(weight, _quantized_weight(torch.nn.Linear(64, 4, bias=False)))
    return Reading(value, should, right=value > should - 0.1)


def _quantized_weight(linear: torch.nn.Linear) -> torch.Tensor:
    """The weight that a converted linear multiplies with, when per-channel weights are asked for."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import arm_inductor_quantizer as arm

    helper = getattr(arm, _HELPER)
    choice = {"is_per_channel": True} if "is_per_channel" in inspect.signature(helper).parameters else {}
    quantizer = arm.ArmInductorQuantizer().set_global(helper(is_dynamic=True, **choice))
    inputs = (torch.ones(1, 64),)
    seen: list[torch.Tensor] = []

    class Weights(torch.fx.Interpreter):
        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if target is torch.ops.aten.linear.default:
                seen.append(args[1])
            return super().call_function(target, args, kwargs)

    with torch.no_grad():
        linear.weight.copy_(_rows())
        prepared = prepare_pt2e(torch.export.export(linear.eval(), inputs).module(), quantizer)
        prepared(*inputs)
        Weights(convert_pt2e(prepared)).run(*inputs)
    return seen[0]


@contextmanager
def _repair() -> Iterator[None]:
    from torchao.quantization.pt2e.quantizer import arm_inductor_quantizer as arm

    released = seam(arm, _HELPER, ("is_qat", "is_dynamic"))

    @functools.lru_cache
    def choosing(is_qat: bool = False, is_dynamic: bool = False, is_per_channel: bool = False) -> Any:
        # Per tensor stays the released object, out of the released cache; what is made here never enters that one.
        config = released(is_qat=is_qat, is_dynamic=is_dynamic)
        return replace(config, weight=_per_channel(config.weight, is_qat)) if is_per_channel else config

    with replaced(arm, _HELPER, choosing):
        yield


def _per_channel(weight: Any, is_qat: bool) -> Any:
    """The released weight spec with a scale for each output channel, other observer arguments as they are."""
    import torch
    from torchao.quantization.pt2e.observer import MovingAveragePerChannelMinMaxObserver, PerChannelMinMaxObserver

    arguments = weight.observer_or_fake_quant_ctr.p.keywords
    if is_qat:
        observer = weight.observer_or_fake_quant_ctr.with_args(observer=MovingAveragePerChannelMinMaxObserver)
    else:
        observer = PerChannelMinMaxObserver.with_args(**arguments)
    return replace(weight, qscheme=torch.per_channel_symmetric, ch_axis=0, observer_or_fake_quant_ctr=observer)


FIX = Fix(
    name="arm-weight-granularity",
    link="https://github.com/pytorch/ao/pull/2391",
    package="torchao",
    known=("0.18.0",),
    flows=("arm-*-default",),
    stage=Stage.PREPARE,
    measures="worst weight channel, dB",
    probe=_probe,
    repair=_repair,
)
