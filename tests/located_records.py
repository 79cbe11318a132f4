"""Builders of located cases in round numbers; keywords override any field."""

from __future__ import annotations

from typing import Any

from harness.located import Culprit, LayerLevel, Located
from tests.rows import CASE


def layer(**changes: Any) -> LayerLevel:
    """A convolution at 30 dB, 20 dB in its worst channel, that loses 40 dB by itself."""
    values: dict[str, Any] = {
        "name": "conv1:conv2d",
        "op": "conv2d",
        "actual_op": "conv2d",
        "source": "models/net.py:7",
        "status": "measured",
        "sqnr_db": 30.0,
        "worst_channel_db": 20.0,
        "local_db": 40.0,
        "samples": 8,
    }
    return LayerLevel(**{**values, **changes})


def no_level(status: str, **changes: Any) -> LayerLevel:
    """A layer whose status leaves no dB."""
    return layer(**{"status": status, "sqnr_db": None, "worst_channel_db": None, "local_db": None, **changes})


def culprit(**changes: Any) -> Culprit:
    """The input of the convolution, clipped at 1.7 where it goes up to 100."""
    values: dict[str, Any] = {
        "kind": "quantizer",
        "names": ("conv1:conv2d.input",),
        "cause": "clipping",
        "old": (-1.0, 1.7),
        "new": (0.0, 100.0),
        "local_db": None,
        "alone_db": None,
    }
    return Culprit(**{**values, **changes})


def located(**changes: Any) -> Located:
    """Logits at 10 dB, 40 dB with a fix and 37 dB with the one culprit put right; two layers."""
    values: dict[str, Any] = {
        **{name: getattr(CASE, name) for name in type(CASE).__slots__},
        "point": "converted",
        "output": "logits",
        "against": "+fix",
        "sqnr_db": 10.0,
        "other_db": 40.0,
        "explained_db": 37.0,
        "explained": 0.9,
        "minimal": True,
        "passes": 12.0,
        "culprits": (culprit(),),
        "layers": (layer(), layer(name="fc:linear", op="linear", actual_op="linear", sqnr_db=10.0)),
        "only_float": (),
        "only_quantized": (),
    }
    return Located(**{**values, **changes})


def called(name: str) -> Located:
    """A record in which everything that has a name is called `name`."""
    return located(
        **dict.fromkeys(("model", "flow", "variant", "output", "against", "remark"), name),
        culprits=(culprit(names=(name, name), source=name, readers=(name,)),),
        layers=(layer(name=name, op=name, actual_op=f"{name}2", source=name),),
        only_float=(name,),
        only_quantized=(name,),
    )
