"""BatchNorms behind one shared layer: torchao folds them wrongly, and the prepared point shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from harness import flows
from harness.adapter import Batch
from harness.fixes import Fix
from harness.fixes.ao_shared_conv_bn import FIX
from harness.records import Cause, OutputRow, Point
from tests.lab import Lab, adapter, images, lab, lab_case


def randomised(model: nn.Module) -> nn.Module:
    """In eval mode, every BatchNorm far from the identity."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (module.running_var, module.weight.data):
                tensor.uniform_(0.5, 2, generator=generator)
            for tensor in (module.running_mean, module.bias.data):
                tensor.normal_(generator=generator)
    return model.eval().requires_grad_(False)


class Chains(nn.Module):
    """One conv or linear layer, called once for each named BatchNorm (`-` for none); one output a call."""

    def __init__(self, chains: str, layer: nn.Module, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.layer, self.chains = layer, chains
        self.norms = nn.ModuleDict({name: norm(8) for name in sorted(set(chains) - {"-"})})

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for shift, name in enumerate(self.chains):
            y = self.layer(x + shift)
            found.append(self.norms[name](y) if name != "-" else y)
        return tuple(found)


class OneCallTwoReaders(nn.Module):
    """The same conv output into two BatchNorms, or into one and out as it is."""

    def __init__(self, second: bool) -> None:
        super().__init__()
        self.conv, self.a = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.b = nn.BatchNorm2d(8) if second else nn.Identity()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        return self.a(y), self.b(y)


def _conv(bias: bool) -> nn.Module:
    return nn.Conv2d(3, 8, 3, padding=1, bias=bias)


WRONG = {
    "different BatchNorms": lambda: Chains("ab", _conv(True)),
    "different BatchNorms, no bias": lambda: Chains("ab", _conv(False)),
    "the same BatchNorm, no bias": lambda: Chains("aa", _conv(False)),
    "a path without": lambda: Chains("a-", _conv(True)),
    "all of them": lambda: Chains("aba-b", _conv(False)),
    "one call, two BatchNorms": lambda: OneCallTwoReaders(True),
    "one call, one BatchNorm": lambda: OneCallTwoReaders(False),
}


def bench_of(build: Callable[[], nn.Module], batches: Callable[[int], Iterator[Batch]] = images) -> Lab:
    """A bench with the randomised model; its weights come from a fixed seed."""

    def seeded() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return randomised(build())

    outputs = len(getattr(build(), "chains", "ab"))
    return lab(adapter(seeded, tuple(f"path{i}" for i in range(outputs)), batches))


def prepared(bench: Lab, *fixes: Fix) -> list[OutputRow]:
    """Rows at the prepared point, without calibrating."""
    variant = "".join(f"+{fix.name}" for fix in fixes) or "released"
    only = frozenset({Point.PREPARED})
    return bench.pipeline.measure(lab_case(variant=variant), flows.load("x86-static"), fixes, only).outputs


@pytest.mark.parametrize("case", WRONG)
def test_the_prepared_point_shows_a_fold_into_a_shared_weight(case):
    bench = bench_of(WRONG[case])
    released, repaired = prepared(bench), prepared(bench, FIX)
    assert min(row.sqnr_db for row in released) < 7
    assert [row.cause == Cause.FOLDING for row in released] == [row.sqnr_db < 100 for row in released]
    assert all(row.sqnr_db > 130 and not row.cause for row in repaired)


def test_a_shared_linear_has_the_defect_too():
    def vectors(seed: int) -> Iterator[Batch]:
        yield Batch((torch.randn(16, 6, generator=torch.Generator().manual_seed(seed)),))

    bench = bench_of(lambda: Chains("ab", nn.Linear(6, 8), nn.BatchNorm1d), vectors)
    assert prepared(bench)[1].sqnr_db < 7
    assert all(row.sqnr_db > 130 for row in prepared(bench, FIX))


@pytest.mark.parametrize("chains", ["a", "aa"])
def test_what_is_right_as_released_keeps_its_graph(chains):
    """A weight with a bias that always meets the same BatchNorm is folded once and stays shared."""
    bench = bench_of(lambda: Chains(chains, _conv(True)))
    released, repaired = bench.measure("x86-static"), bench.measure("x86-static", (FIX,))
    assert {row.fix_state for row in repaired.outputs} == {"", "inert"}
    assert [row.sqnr_db for row in repaired.outputs] == [row.sqnr_db for row in released.outputs]
