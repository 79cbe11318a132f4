"""torchao: moving an exported model between train and eval resets BatchNorm's eps and momentum and dropout's p.

Upstream: `_replace_batchnorm` and `_replace_dropout` in `torchao/quantization/pt2e/export_utils.py`, pytorch/ao issue
2980. Both rewrite nodes by a pattern in which literals are ignored, with a replacement traced from the defaults: eps
1e-5, momentum 0.1, p 0.5. They run on `move_exported_model_to_train` and `_to_eval`, and behind `model.train()` and
`.eval()` after `allow_exported_model_train_eval`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.fixes import Fix, Reading
from harness.fixes.seams import replaced, seam
from harness.records import Stage

if TYPE_CHECKING:
    from torch.fx import GraphModule

_MOMENTUM, _EPS, _CUDNN = 6, 7, 8
"""Positions in the arguments of `aten.batch_norm`; 5 is the training flag."""
_P = 1


def _probe() -> Reading:
    import torch
    from torchao.quantization.pt2e import move_exported_model_to_train

    model = torch.nn.BatchNorm2d(1, eps=0.1).eval()
    exported = torch.export.export(model, (torch.ones(2, 1, 4, 4),)).module()
    moved = move_exported_model_to_train(exported)
    norm = next(node for node in moved.graph.nodes if node.target is torch.ops.aten.batch_norm.default)
    value = float(norm.args[_EPS])
    return Reading(value, 0.1, right=value == 0.1)


@contextmanager
def _repair() -> Iterator[None]:
    from torchao.quantization.pt2e import export_utils

    names = ("_replace_batchnorm", "_replace_dropout")
    norm, dropout = (seam(export_utils, name, ("m", "train_to_eval")) for name in names)
    with (
        replaced(export_utils, "_replace_batchnorm", _keeping_literals(norm)),
        replaced(export_utils, "_replace_dropout", _keeping_literals(dropout)),
    ):
        yield


def _keeping_literals(released: Callable[[GraphModule, bool], None]) -> Callable[[GraphModule, bool], None]:
    """A rewrite that gives each new node the literals of the node it replaced, but for the training flag.

    Both functions import torch's rewriter when they run, so it is watched for as long as one of them does.
    """

    def rewrite(m: GraphModule, train_to_eval: bool) -> None:
        from torch.fx import subgraph_rewriter

        original = seam(subgraph_rewriter, "replace_pattern_with_filters")

        def watched(*args: Any, **kwargs: Any) -> Any:
            matches = original(*args, **kwargs)
            for match in matches:
                _copy_literals(match)
            return matches

        with replaced(subgraph_rewriter, "replace_pattern_with_filters", watched):
            released(m, train_to_eval)

    return rewrite


def _copy_literals(match: Any) -> None:
    import torch

    aten = torch.ops.aten
    norm = (_MOMENTUM, _EPS, _CUDNN)
    kept = {aten.batch_norm.default: norm, aten.dropout.default: (_P,), aten.dropout_.default: (_P,)}
    old = {node.target: node for node in match.nodes_map.values() if node.target in kept}
    for new in match.replacements:
        if new.target in old:
            args = list(new.args)
            for position in kept[new.target]:
                args[position] = old[new.target].args[position]
            new.args = tuple(args)


FIX = Fix(
    name="ao-bn-eps-reset",
    link="https://github.com/pytorch/ao/issues/2980",
    package="torchao",
    known=("0.18.0",),
    flows=(),
    stage=Stage.PREPARE,
    measures="eps of a BatchNorm made with 0.1, moved to train",
    probe=_probe,
    repair=_repair,
)
