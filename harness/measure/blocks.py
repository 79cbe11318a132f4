"""Sums over pairs of tensors, walked in blocks that fit in the L2 cache and converted to float64 there.

So sums are float64 whatever the inputs, memory is that of a few blocks, and inputs of any layout are only read.
Integers and bools count as numbers, a complex value as two. Called with tensors of one shape, made by `numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

_THREAD_SHARE = 1 << 16
"""Elements of a block for each thread: two in float64 take 1 MiB of L2. Fewer, and threads cost more than they give."""
_MOST_SHARES = 8
_SAFE_EXPONENTS = range(-200, 481)
"""Binary exponents of a float64 tensor's largest value for which sums of squares keep all that matters."""


def numbers(tensor: Tensor) -> Tensor:
    """A view without gradient, real, of at least one dimension."""
    tensor = tensor.detach()
    tensor = tensor.unsqueeze(0) if tensor.dim() == 0 else tensor
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def exponent_of(reference: Tensor, actual: Tensor) -> int:
    """The e for which sums over values x 2^e neither overflow nor lose what matters: 0 but for extreme float64."""
    if torch.float64 not in (reference.dtype, actual.dtype):
        return 0
    largest = 0.0
    for pair in _blocks(*_in_memory_order(reference, actual)):
        largest = max(largest, *(float(side.abs().max()) for side in pair))
    if largest == 0 or not math.isfinite(largest):
        return 0
    exponent = math.frexp(largest)[1]
    return 0 if exponent in _SAFE_EXPONENTS else max(-1000, min(1000, -exponent))


def block_size() -> int:
    """Elements of a block; it depends on the number of threads, so sums of other numbers of threads round otherwise."""
    return _THREAD_SHARE * min(_MOST_SHARES, torch.get_num_threads())


def all_finite(tensor: Tensor) -> bool:
    """Whether no element is NaN or infinite."""
    return all(bool(block.isfinite().all()) for block, _ in _blocks(tensor, tensor))


def signal_and_noise(reference: Tensor, actual: Tensor, exponent: int = 0) -> tuple[float, float]:
    """Sum of reference^2 and of (reference - actual)^2, each x 4^exponent."""
    reference, actual = _in_memory_order(reference, actual)
    signal, noise = torch.zeros(2, dtype=torch.float64, device="cpu")
    for ref, act in _float64_blocks(reference, actual, exponent, _scratch(reference)):
        signal += torch.dot(ref, ref)
        act.sub_(ref)
        noise += torch.dot(act, act)
    return float(signal), float(noise)


def row_sums(reference: Tensor, actual: Tensor, exponent: int = 0) -> Iterator[Tensor]:
    """For the rows along the first dimension, a few at a time and in order: a (5, rows) float64 tensor.

    Sums of reference^2, (reference - actual)^2, actual^2 and reference x actual, each x 4^exponent, and the largest
    |reference - actual| x 2^exponent. The tensors must have elements.
    """
    scratch, spare = _scratch(reference), _scratch(reference)[0]
    step = max(1, block_size() // (reference.numel() // len(reference)))
    for ref_rows, act_rows in _split(step, reference, actual):
        rows = len(ref_rows)
        if rows == 1:  # maybe of many blocks, and in any order
            ref_rows, act_rows = _in_memory_order(ref_rows, act_rows)
        total = torch.zeros((5, rows), dtype=torch.float64, device="cpu")
        for ref, act in _float64_blocks(ref_rows, act_rows, exponent, scratch):
            sums = _five_sums(ref.view(rows, -1), act.view(rows, -1), spare[: ref.numel()].view(rows, -1))
            total[:4] += sums[:4]
            total[4] = torch.maximum(total[4], sums[4])
        yield total


def _five_sums(ref: Tensor, act: Tensor, spare: Tensor) -> Tensor:
    """The sums of `row_sums` for (rows, elements) that fit in a block; overwrites `act` and `spare`."""

    def inner(left: Tensor, right: Tensor) -> Tensor:
        if len(left) == 1:
            return torch.dot(left[0], right[0]).unsqueeze(0)
        return torch.mul(left, right, out=spare).sum(1)

    signal, power, product = inner(ref, ref), inner(act, act), inner(ref, act)
    act.sub_(ref)
    return torch.stack([signal, inner(act, act), power, product, torch.abs(act, out=spare).amax(1)])


def _scratch(like: Tensor) -> Tensor:
    return torch.empty((2, min(block_size(), like.numel())), dtype=torch.float64, device="cpu")


def _float64_blocks(
    reference: Tensor, actual: Tensor, exponent: int, scratch: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Flat float64 copies of block after block, x 2^exponent, free to be overwritten."""
    for ref, act in _blocks(reference, actual):
        flat = scratch[:, : ref.numel()]
        ref64, act64 = flat[0], flat[1]
        ref64.view(ref.shape).copy_(ref)
        act64.view(act.shape).copy_(act)
        if exponent:
            flat.mul_(2.0**exponent)
        yield ref64, act64


def _blocks(reference: Tensor, actual: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of at most `block_size` elements that cover both tensors, alike."""
    if reference.numel() <= block_size():
        yield reference, actual
    elif reference.is_contiguous() and actual.is_contiguous():
        yield from _split(block_size(), reference.view(-1), actual.view(-1))
    elif len(reference) == 1:
        yield from _blocks(reference[0], actual[0])
    else:
        step = max(1, block_size() // (reference.numel() // len(reference)))
        for pair in _split(step, reference, actual):
            yield from _blocks(*pair)


def _split(step: int, reference: Tensor, actual: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of `step` rows of both, the last maybe shorter."""
    for start in range(0, len(reference), step):
        rows = min(step, len(reference) - start)
        yield reference.narrow(0, start, rows), actual.narrow(0, start, rows)


def _in_memory_order(reference: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
    """Both with dimensions permuted so that the reference's strides fall: channels_last is then read in a line."""
    order = sorted(range(reference.dim()), key=reference.stride, reverse=True)
    return reference.permute(order), actual.permute(order)
