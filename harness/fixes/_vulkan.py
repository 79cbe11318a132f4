"""What both fixes of Vulkan's 4-bit linear share: the op's reference implementation as a seam, and a tiny fused layer.

The reference implementation of `et_vk::linear_qcs4w` (`backends/vulkan/custom_ops_lib.py` of pytorch/executorch) is
what shapes are inferred with while a program is lowered, and what runs when a fused program runs on the CPU.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.errors import in_a_line, root_of
from harness.fixes import Reading
from harness.fixes.seams import SeamMovedError, replaced, seam

if TYPE_CHECKING:
    import torch

    Reference = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_NAME, _PARAMETERS = "linear_qcs4w", ("x", "weights_4x2", "scales")
OUT_FEATURES = 32
_AGREE = 0.01
"""dB; float32 sums move the figure of a right fused layer by 1e-5."""


@contextmanager
def reference_wrapped(wrap: Callable[[Reference], Reference]) -> Iterator[None]:
    """Run `wrap(found)` as the op's reference implementation, where `found` is the one it has now.

    As each wraps what it finds, several may be active, in any order. Raises `SeamMovedError`.
    """
    import torch

    try:
        from executorch.backends.vulkan import custom_ops_lib
    except ImportError as error:
        raise SeamMovedError(f"executorch.backends.vulkan has no custom_ops_lib: {error}") from error
    found: Reference = seam(custom_ops_lib, _NAME, _PARAMETERS)
    new = wrap(found)
    with replaced(custom_ops_lib, _NAME, new, _PARAMETERS), torch.library._scoped_library("et_vk", "IMPL") as library:
        library.impl(_NAME, new, "CompositeExplicitAutograd")
        try:
            yield
        finally:
            # Leaving the scope gives the dispatcher its kernel back, but under a dispatch mode (fake tensors) torch
            # 2.14 calls what was registered last from Python, and keeps that when a library is destroyed.
            library.impl(_NAME, found, "CompositeExplicitAutograd")


def fused_layer(in_features: int, balanced: bool = False) -> Reading:
    """Output SQNR in dB of a fused 4-bit Linear(in_features, 32) with bias; right is as good as the converted graph.

    The value is the error instead (type and first line) where lowering or running it raised one. With `balanced`, the
    features of each sample add up to zero.
    """
    import torch

    from harness.flows.vulkan import flow, fuse

    vulkan = flow("vulkan-4w")
    generator = torch.Generator().manual_seed(0)
    # Made empty, as its random initialization would draw from the global generator.
    layer = torch.nn.Linear(in_features, OUT_FEATURES, device="meta").to_empty(device="cpu").eval()
    layer.requires_grad_(False)
    for parameter in layer.parameters():
        parameter.uniform_(-1, 1, generator=generator)
    x = torch.randn(16, in_features, generator=generator)
    if balanced:
        x -= x.mean(-1, keepdim=True)
    with torch.no_grad(), torch.random.fork_rng([]), _quiet():  # torchao's convert draws random numbers
        prepared = vulkan.prepare(vulkan.export(layer, (x,)))
        vulkan.calibrate(prepared, [(x,)])
        converted = vulkan.convert(prepared)
        reference = layer(x)
        should = _sqnr_db(reference=reference, actual=converted(x))
        try:
            actual = fuse(vulkan.edge(converted, (x,)))(x)  # type: ignore[misc]
        except Exception as error:
            return Reading(in_a_line(root_of(error)), should, right=False)
    value = _sqnr_db(reference=reference, actual=actual)
    return Reading(value, should, right=abs(value - should) < _AGREE)


def _sqnr_db(*, reference: torch.Tensor, actual: torch.Tensor) -> float:
    from harness.measure.metrics import sqnr_db

    level = sqnr_db(reference=reference, actual=actual)
    return math.nan if level is None else level


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the traceback that torch logs when inferring a shape fails: here that is a reading, not news."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled
