"""torchao: registering a graph pass with Inductor silently throws out the one that another backend registered.

Upstream: pytorch/ao pull request 2391, where a second quantization backend needs the same hook. Two places in torchao
0.18 assign `torch._inductor.config.pre_grad_custom_pass`, each as if it were the only one: the import of
`quantization/pt2e/quantizer/x86_inductor_quantizer.py` (`quant_lift_up`; Arm's and XPU's quantizers import it too) and
`prototype/attention/shared_utils/setup.py`. The last one wins. Inductor itself takes a sequence of passes and runs
all of them, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError, replaced
from harness.records import Stage

if TYPE_CHECKING:
    import torch

_HOOK = "pre_grad_custom_pass"


def _probe() -> Reading:
    """Register two backends, the second through torchao's own code, and run Inductor's pre-grad passes once."""
    import torch
    from torch._inductor import config
    from torch._inductor.fx_passes.pre_grad import pre_grad_passes
    from torchao.prototype.attention.shared_utils import setup

    ran: list[str] = []

    def counting(name: str) -> Callable[[torch.fx.Graph], None]:
        return lambda _graph: ran.append(name)

    with config.patch({_HOOK: None}), replaced(setup, "RopeSDPAFusionPass", lambda **_: counting("second")):
        setattr(config, _HOOK, counting("first"))
        setup.setup_fp8_backend(torch.nn.Identity(), "FA3")
        pre_grad_passes(torch.fx.symbolic_trace(torch.nn.ReLU()), (torch.ones(1),))
    value = f"{ran.count('first')} of the first, {ran.count('second')} of the second"
    return Reading(value, "1 of the first, 1 of the second", right=ran == ["first", "second"])


class _Chain(tuple[object, ...]):
    """Passes that were each assigned alone, in order; Inductor reads any tuple."""


@contextmanager
def _repair() -> Iterator[None]:
    """Let an assigned pass join those already there.

    One of torchao's two assignments is a statement that runs at import, so the seam is the config module's setter: the
    class of `torch._inductor.config` is its own. A sequence or None still replaces what is there, which is how saved
    settings come back: under the repair no single pass is ever read. On exit the hook holds what it would hold without
    the repair, the pass assigned last, since the import that assigned it may not happen again.
    """
    import torch._dynamo.config
    from torch._inductor import config

    kind = type(config)
    if not hasattr(config, _HOOK) or "__setattr__" in vars(kind) or kind is type(torch._dynamo.config):
        raise SeamMovedError(f"torch._inductor.config does not keep {_HOOK} in a class of its own")
    released: Callable[[object, str, object], None] = kind.__setattr__

    def joining(module: object, name: str, value: object) -> None:
        if name == _HOOK and callable(value):
            present = getattr(config, _HOOK) or ()
            value = present if value in present else _Chain((*present, value))
        released(module, name, value)

    before = getattr(config, _HOOK)
    if callable(before):
        setattr(config, _HOOK, _Chain((before,)))
    setattr(kind, "__setattr__", joining)  # noqa: B010 mypy takes the plain assignment for a mistake
    try:
        yield
    finally:
        delattr(kind, "__setattr__")
        after = getattr(config, _HOOK)
        if isinstance(after, _Chain):
            setattr(config, _HOOK, after[-1])


FIX = Fix(
    name="pre-grad-pass-chain",
    link="https://github.com/pytorch/ao/pull/2391",
    package="torchao",
    known=("0.18.0",),
    flows=(),
    stage=Stage.LOWER,
    measures="runs of each of two registered passes",
    probe=_probe,
    repair=_repair,
)
