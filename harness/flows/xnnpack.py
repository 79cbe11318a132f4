"""ExecuTorch's XNNPACKQuantizer, static int8 activations and per-channel symmetric int8 weights.

Upstream: `executorch/backends/xnnpack/quantizer/xnnpack_quantizer.py`, configured as ExecuTorch's own
`executorch/examples/xnnpack/quantization/example.py` does: `get_symmetric_quantization_config(is_per_channel=True)`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.flows import Flow
from harness.flows.pt2e import calibrate, convert, export_strict, prepare


def flow(name: str) -> Flow:
    """The flow `xnnpack`."""
    return Flow(name, "executorch", export_strict, partial(prepare, _quantizer), calibrate, convert)


def _quantizer() -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
