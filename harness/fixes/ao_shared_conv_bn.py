"""torchao: prepare_pt2e folds BatchNorm into a conv weight that other paths of the graph still use.

Upstream: `_fuse_conv_bn_` in `torchao/quantization/pt2e/utils.py`, pytorch/ao pull request 2795. A weight is folded for
the first BatchNorm only. A second chain with another BatchNorm loses that one and multiplies with the first one's
scale; a path without BatchNorm gets the scale too; and where the conv has no bias, the second chain, even of the same
BatchNorm, writes zeros over the bias that the first one folded. Right as released: one weight with a bias, always
followed by the same BatchNorm. Linear layers have the same defect (`_fuse_linear_bn_`), and so has one conv call whose
output something besides its BatchNorm reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from harness.fixes import Fix, Reading
from harness.fixes.seams import replaced, seam
from harness.records import Stage

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

_CAP_DB = 160.0


def _shared_conv() -> torch.nn.Module:
    """One conv: twice into one BatchNorm, once into another, once into none."""
    import torch
    from torch import nn

    class SharedConv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first, second = self.norms
            return first(self.conv(x)), second(self.conv(x + 1)), self.conv(x + 2), first(self.conv(x + 3))

    model = SharedConv().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 2, generator=generator)
    return model


def _probe() -> Reading:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
    from torchao.quantization.pt2e.quantizer import Quantizer

    class Nothing(Quantizer):  # type: ignore[misc]
        def annotate(self, model: GraphModule) -> GraphModule:
            return model

        def validate(self, model: GraphModule) -> None:
            pass

    model, x = _shared_conv(), torch.linspace(-1, 1, 2 * 2 * 4 * 4).reshape(2, 2, 4, 4)
    with torch.no_grad():
        signal = model(x)
        actual = prepare_pt2e(torch.export.export(model, (x,)).module(), Nothing())(x)
    value = min(_db(a.double(), b.double()) for a, b in zip(signal, actual, strict=True))
    return Reading(value, "over 100", right=value > 100)


def _db(signal: torch.Tensor, actual: torch.Tensor) -> float:
    noise = (signal - actual).square().sum()
    return min(_CAP_DB, float(10 * (signal.square().sum() / noise).log10()))


@contextmanager
def _repair() -> Iterator[None]:
    """Fold each chain of a shared weight into a weight of its own.

    Patched where `_fuse_conv_bn_` and `_fuse_linear_bn_` look it up, so that NNCF, which imports the former, is
    repaired as well.
    """
    # Loaded first, as it imports a folding function by name and would keep the one that is there for a while.
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401
    from torchao.quantization.pt2e import utils

    with ExitStack() as seams:
        for layer in ("conv", "linear"):
            name = f"fold_bn_weights_into_{layer}_node"
            nodes = (f"{layer}_node", f"{layer}_weight_node", f"{layer}_bias_node", "bn_node")
            released = seam(utils, name, (*nodes, "m", "fake_fuse"))
            seams.enter_context(replaced(utils, name, _separating(released)))
        yield


def _separating(released: Callable[..., None]) -> Callable[..., None]:
    """A folding function for layers whose weight other nodes read too.

    Chains of one weight and one BatchNorm keep sharing, so that what is right as released keeps its structure. Whether
    a fold only repeats an earlier one (`fake_fuse`) is decided here, as upstream goes by the weight alone.
    """
    folded: WeakKeyDictionary[GraphModule, dict[str, tuple[Node, Node]]] = WeakKeyDictionary()

    def fold(layer: Node, weight: Node, bias: Node | None, bn: Node, m: GraphModule, _fake_fuse: bool = False) -> None:
        if set(layer.users) != {bn}:
            return  # something else reads this output as it is before the BatchNorm
        chains = folded.setdefault(m, {})
        chain = str((weight, bias, bn.args[1:]))
        again = chain in chains
        if not again and _is_shared(weight, m):
            chains[chain] = _own_parameters(weight, bias, bn, m)
        if chain in chains:
            weight, bias = chains[chain]
            layer.args = (layer.args[0], weight, bias, *layer.args[3:])
        released(layer, weight, bias, bn, m, again)

    return fold


def _is_shared(weight: Node, m: GraphModule) -> bool:
    readers = [node.users for node in m.graph.nodes if node.op == "get_attr" and node.target == weight.target]
    return sum(map(len, readers)) > 1


def _own_parameters(weight: Node, bias: Node | None, bn: Node, m: GraphModule) -> tuple[Node, Node]:
    """Copies of a layer's weight and bias (zeros if it has none) under names of their own, beside the shared ones."""
    import torch
    from torchao.quantization.pt2e.utils import _get_tensor_constant_from_node as value_of

    zeros = torch.zeros_like(value_of(bn.args[3], m))
    own_weight = _insert_parameter(weight, f"weight_{bn.name}", value_of(weight, m), m)
    own_bias = _insert_parameter(bias or own_weight, f"bias_{bn.name}", value_of(bias, m) if bias else zeros, m)
    return own_weight, own_bias


def _insert_parameter(beside: Node, attribute: str, value: torch.Tensor, m: GraphModule) -> Node:
    import torch

    owner, _, _ = str(beside.target).rpartition(".")
    parameter = torch.nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
    m.get_submodule(owner).register_parameter(attribute, parameter)
    with m.graph.inserting_after(beside):
        node = m.graph.get_attr(f"{owner}.{attribute}".removeprefix("."))
    node.meta = dict(beside.meta)
    node.meta["val"] = beside.meta["val"].fake_mode.from_tensor(value, static_shapes=True)
    return node


FIX = Fix(
    name="ao-shared-conv-bn",
    link="https://github.com/pytorch/ao/pull/2795",
    package="torchao",
    known=("0.18.0",),
    flows=(),
    stage=Stage.PREPARE,
    measures="worst prepared output against float, dB",
    probe=_probe,
    repair=_repair,
)
