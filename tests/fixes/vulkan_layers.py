"""One linear layer, seeded, taken through the Vulkan flow stage by stage."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.fx import GraphModule, Interpreter

from harness.fixes import Fix
from harness.fixes.vulkan_qcs4w_odd_channels import FIX as ODD
from harness.fixes.vulkan_qcs4w_offset import FIX as OFFSET
from harness.flows import vulkan

torch.set_num_threads(1)

BOTH = list(itertools.permutations((OFFSET, ODD)))


def seeded(features: int, bias: bool = False, rows: tuple[int, ...] = (16,)) -> tuple[nn.Linear, torch.Tensor]:
    """A Linear(features, 32) and an input, drawn from seed 0."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(features, 32, bias=bias).eval().requires_grad_(False), torch.randn(*rows, features)


def converted(bits: int, model: nn.Module, x: torch.Tensor) -> GraphModule:
    flow = vulkan.flow(f"vulkan-{bits}w")
    with torch.no_grad():
        prepared = flow.prepare(flow.export(model, (x,)))
        flow.calibrate(prepared, [(x,)])
        return flow.convert(prepared)


def edge(graph: GraphModule, x: torch.Tensor):
    return vulkan.flow("vulkan-4w").edge(graph, (x,))


def fused(program, x: torch.Tensor, fixes: Iterable[Fix] = ()) -> torch.Tensor:
    """The output of a copy of the program, lowered and run under the repairs, in the order given."""
    with ExitStack() as repairs, torch.no_grad():
        for fix in fixes:
            repairs.enter_context(fix.repair())
        return Interpreter(vulkan.fuse(copy.deepcopy(program))).run(x)


@cache
def case(bits: int, features: int, bias: bool = False, rows: tuple[int, ...] = (16,)) -> SimpleNamespace:
    model, x = seeded(features, bias, rows)
    graph = converted(bits, model, x)
    return SimpleNamespace(x=x, reference=model(x), converted=graph(x), graph=graph, program=edge(graph, x))


def assert_odd_fails(it: SimpleNamespace, fixes: Iterable[Fix] = ()) -> None:
    with pytest.raises(Exception, match="FuseQuantizedOpsTransform") as caught:
        fused(it.program, it.x, fixes)
    assert "same reduction dim, but got [16, 63] X [64, 32]" in str(caught.value.__cause__)
