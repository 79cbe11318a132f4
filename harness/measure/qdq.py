"""What the quantize and dequantize ops of every upstream mean: one table for all dialects.

Covers `quantized_decomposed.*` (ATen and edge dialect, per tensor, per channel, per channel group, per token) and
torchao's `quantize_affine` / `dequantize_affine` and their float8 relatives. Arguments are bound by the names in each
op's schema, so `.tensor` and `.tensor2` overloads need no case of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from harness.records import Granularity

_PREFIXES = ("quantized_decomposed::", "torchao::")


def _qualified(node: Node) -> str:
    """`namespace::op` of a node's target, also behind the edge dialect's wrapper; empty for a plain function."""
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else ""


def op_name(node: Node) -> str:
    """Short op name without namespace, overload and in-place underscore, e.g. `conv2d`, `add`, `getitem`."""
    qualified = _qualified(node)
    name = qualified.split("::")[-1] if qualified else getattr(node.target, "__name__", str(node.target))
    return name if name.startswith("__") else name.rstrip("_") or name


def _is(node: Node, stem: str) -> bool:
    qualified = _qualified(node) if node.op == "call_function" else ""
    return qualified.startswith(_PREFIXES) and qualified.split("::")[1].startswith(stem)


def is_quantize(node: Node) -> bool:
    """Whether a node turns floats into codes."""
    return _is(node, "quantize_")


def is_dequantize(node: Node) -> bool:
    """Whether a node turns codes into floats."""
    return _is(node, "dequantize_")


def is_qparams(node: Node) -> bool:
    """Whether a node chooses qparams at run time, or picks one of them."""
    if op_name(node) == "getitem":
        return isinstance(node.args[0], Node) and is_qparams(node.args[0])
    return _is(node, "choose_qparams") or _is(node, "_choose_qparams")


def bind(node: Node, values: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """The node's arguments by schema name, defaults filled in, each mapped through `values`."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    bound = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    bound |= dict(zip((argument.name for argument in arguments), node.args, strict=False))
    bound |= node.kwargs
    return {name: values(value) for name, value in bound.items()}


@dataclass(frozen=True, slots=True)
class QParams:
    """Evaluated qparams: `scale` and `zero_point` are float64/int64, shaped to broadcast against the input."""

    scale: torch.Tensor
    zero_point: torch.Tensor
    quant_min: int
    quant_max: int
    dtype: str
    granularity: Granularity
    axis: int | None

    @property
    def lo(self) -> torch.Tensor:
        """Lower range bounds, the least of scale x (code - zero_point), broadcastable, float64.

        That of `quant_min`, but of `quant_max` where a scale is negative: ops take one, and mirror the range.
        """
        return torch.minimum(*self._ends())

    @property
    def hi(self) -> torch.Tensor:
        """Upper range bounds, the most of scale x (code - zero_point), broadcastable, float64."""
        return torch.maximum(*self._ends())

    def _ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scale * (self.quant_min - self.zero_point), self.scale * (self.quant_max - self.zero_point)

    def dequantize(self, codes: torch.Tensor) -> torch.Tensor:
        """Float32 values of integer codes, (code - zero_point) x scale."""
        scale, zero_point = (expand_groups(part, codes.shape) for part in (self.scale, self.zero_point))
        return ((codes.to(torch.int64) - zero_point) * scale).to(torch.float32)


def _first(bound: Mapping[str, Any], *names: str) -> Any:
    return next((bound[name] for name in names if bound.get(name) is not None), None)


def input_of(bound: Mapping[str, Any]) -> torch.Tensor:
    """The tensor that a quantize or dequantize op with these arguments takes."""
    found: torch.Tensor = _first(bound, "input", "tensor")
    return found


def read_qparams(bound: Mapping[str, Any], codes: torch.Tensor) -> QParams:
    """Qparams of a quantize or dequantize op that gives or takes `codes`; `bound` are its evaluated arguments."""
    shape, dtype = codes.shape, codes.dtype
    scale = torch.as_tensor(_first(bound, "scale", "scales"), dtype=torch.float64)
    zero = _first(bound, "zero_point", "zero_points")
    zero_point = torch.zeros_like(scale, dtype=torch.int64) if zero is None else torch.as_tensor(zero).to(torch.int64)
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    low, high = _first(bound, "quant_min"), _first(bound, "quant_max")
    granularity, axis, layout = _granularity(bound, scale, shape)
    return QParams(
        scale=scale.reshape(layout),
        zero_point=zero_point.reshape(layout),
        quant_min=int(info.min if low is None else low),
        quant_max=int(info.max if high is None else high),
        dtype=str(dtype).removeprefix("torch."),
        granularity=granularity,
        axis=axis,
    )


def _granularity(
    bound: Mapping[str, Any], scale: torch.Tensor, shape: torch.Size
) -> tuple[Granularity, int | None, list[int]]:
    """(granularity, axis, shape that lets the scales broadcast against the input)."""
    rank = len(shape)
    if bound.get("axis") is not None:
        axis = int(bound["axis"]) % max(rank, 1)
        return Granularity.PER_CHANNEL, axis, [-1 if i == axis else 1 for i in range(rank)]
    if bound.get("group_size") is not None:
        return Granularity.PER_GROUP, rank - 1, [*shape[:-1], -1]
    if bound.get("block_size") is not None:
        return _block_granularity([int(size) for size in bound["block_size"]], shape)
    if scale.numel() > 1:
        return Granularity.PER_TOKEN, None, [*shape[:-1], 1]
    return Granularity.PER_TENSOR, None, [1] * rank


def _block_granularity(block: list[int], shape: torch.Size) -> tuple[Granularity, int | None, list[int]]:
    counts = [full // size for full, size in zip(shape, block, strict=True)]
    split = [i for i, count in enumerate(counts) if count > 1]
    if not split:
        return Granularity.PER_TENSOR, None, [1] * len(shape)
    if len(split) == 1 and block[split[0]] == 1:
        return Granularity.PER_CHANNEL, split[0], counts
    if split == list(range(len(shape) - 1)) and block[:-1] == [1] * (len(shape) - 1):
        return Granularity.PER_TOKEN, None, counts
    return Granularity.PER_GROUP, split[-1], counts


def expand_groups(qparams: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Repeat grouped qparams along each axis that they divide, so that they broadcast against `shape`."""
    for axis, (count, full) in enumerate(zip(qparams.shape, shape, strict=True)):
        if 1 < count < full:
            qparams = qparams.repeat_interleave(full // count, dim=axis)
    return qparams
