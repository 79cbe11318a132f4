"""torchao's Inductor quantizers: X86InductorQuantizer and ArmInductorQuantizer.

Upstream: `torchao/quantization/pt2e/quantizer/{x86,arm}_inductor_quantizer.py`. `arm-*-s8s8f32-per-tensor` is Arm's
released default configuration; the other Arm flows configure the same quantizer through the public
`QuantizationConfig` (activations s8 or u8, weights per tensor or per channel), as the released helper offers neither
choice. `arm-static-default` asks that helper for per-channel weights: as released it cannot be told, and gives the
same as `arm-static-s8s8f32-per-tensor`; with fix `arm-weight-granularity` it does as asked. torchao is imported inside
the stages, so that listing flows costs nothing and the fp32 reference is computed before upstream code is loaded.
"""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import Any

from harness.flows import Flow, compiled
from harness.flows.pt2e import calibrate, convert, export_strict, prepare

_EPS = 2**-12
"""Smallest scale an observer may choose; the value both released default configurations pass."""


def flow(name: str) -> Flow:
    """The Inductor flow called `name`, e.g. `x86-static` or `arm-dynamic-u8s8f32-per-channel`."""
    backend, mode, *rest = name.split("-")
    dynamic = mode == "dynamic"
    if backend == "x86":
        quantizer = partial(_x86_quantizer, dynamic)
    elif rest == ["default"]:
        quantizer = partial(_arm_default_quantizer, dynamic)
    else:
        quantizer = partial(_arm_quantizer, dynamic, rest[0].startswith("u8"), rest[-1] == "channel")
    return Flow(
        name=name,
        package="torchao",
        export=export_strict,
        prepare=partial(prepare, quantizer),
        calibrate=calibrate,
        convert=convert,
        edge=compiled.edge,
        lower=compiled.lower,
        programs=True,
    )


def _x86_quantizer(dynamic: bool) -> Any:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(is_dynamic=dynamic))


def _arm_default_quantizer(dynamic: bool) -> Any:
    from torchao.quantization.pt2e.quantizer import arm_inductor_quantizer as arm

    default = arm.get_default_arm_inductor_quantization_config
    choice = {"is_per_channel": True} if "is_per_channel" in signature(default).parameters else {}
    return arm.ArmInductorQuantizer().set_global(default(is_dynamic=dynamic, **choice))


def _arm_quantizer(dynamic: bool, unsigned: bool, per_channel: bool) -> Any:
    from torchao.quantization.pt2e.quantizer.arm_inductor_quantizer import (
        ArmInductorQuantizer,
        get_default_arm_inductor_quantization_config,
    )

    if unsigned or per_channel:
        return ArmInductorQuantizer().set_global(_arm_config(dynamic, unsigned, per_channel))
    return ArmInductorQuantizer().set_global(get_default_arm_inductor_quantization_config(is_dynamic=dynamic))


def _arm_config(dynamic: bool, unsigned: bool, per_channel: bool) -> Any:
    import torch
    from torchao.quantization.pt2e.observer import (
        HistogramObserver,
        MinMaxObserver,
        PerChannelMinMaxObserver,
        PlaceholderObserver,
    )
    from torchao.quantization.pt2e.quantizer import QuantizationConfig
    from torchao.quantization.pt2e.quantizer.quantizer import QuantizationSpec

    observer = PlaceholderObserver if dynamic else HistogramObserver
    activation = QuantizationSpec(
        dtype=torch.uint8 if unsigned else torch.int8,
        quant_min=0 if unsigned else -128,
        quant_max=255 if unsigned else 127,
        qscheme=torch.per_tensor_affine,
        is_dynamic=dynamic,
        observer_or_fake_quant_ctr=observer.with_args(eps=_EPS),
    )
    weight = QuantizationSpec(
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        ch_axis=0 if per_channel else None,
        observer_or_fake_quant_ctr=(PerChannelMinMaxObserver if per_channel else MinMaxObserver).with_args(eps=_EPS),
    )
    return QuantizationConfig(activation, activation, weight, None, is_qat=False)
