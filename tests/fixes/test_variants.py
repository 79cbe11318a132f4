"""Every fix that has variants, on one tiny model that meets all their defects: what each does, and that none leaks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import nn

from harness import fixes, flows
from harness.adapter import Batch
from harness.flows import INDUCTOR_FLOWS, Flow
from harness.pipeline import CaseResult
from harness.records import RELEASED, Point, Stage
from tests.lab import adapter, lab, uncompiled
from tests.upstream import needs

needs("nncf", "executorch")


def lowers(flow: str) -> bool:
    """Whether some of a flow's variants differ only once it is lowered."""
    return any(fix.applies_to(flow) and fix.stage in (Stage.EDGE, Stage.LOWER) for fix in fixes.installed())


def param(flow: str, *before: str) -> ParameterSet:
    """A flow, after other values of a parameter; one whose variants have to be compiled is for the slow tests."""
    return pytest.param(*before, flow, marks=[pytest.mark.slow] if flow in INDUCTOR_FLOWS and lowers(flow) else [])


FLOWS = [param(name) for name in flows.names() if any(fix.applies_to(name) for fix in fixes.installed())]
ALONE = {
    "nncf-mul-parameter": "nncf-mul",
    "cadence-branch-hoist": "cadence-hoist",
    "vulkan-qcs4w-odd-channels": "vulkan-4w",
    "arm-weight-granularity": "arm-static-default",
    "xnnpack-integer-scalars": "xnnpack",
    "arm-per-tensor-lowering": "arm-static-s8s8f32-per-tensor",
    "inductor-choose-qparams": "arm-dynamic-s8s8f32-per-tensor",
}
"""Fixes that show on this model by themselves, each with a flow it applies to."""


class MeetsAll(nn.Module):
    """Slices of [-1, 1.7] and [0, 100], a multiplied parameter, 7 input features, rows of 1 and 1/16, an index + 0."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(7, 4), nn.Linear(7, 4)
        self.scale = nn.Parameter(torch.tensor([0.25, -0.5, 1.0, 0.75]).reshape(4, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        narrow, wide = self.narrow(x[:, 0]), self.wide(x[:, 1])
        picked = narrow[:, torch.arange(4) + 0]
        return picked.unsqueeze(2) * self.scale, wide


def meets_all() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MeetsAll().eval()
    with torch.no_grad():
        model.wide.weight /= 50
        model.narrow.weight[0] /= 16
    return model.requires_grad_(False)


def ramps(seed: int) -> Iterator[Batch]:
    """Two batches of (8, 2, 7): one row in [-1, 1.7], one in [0, 100]."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        packed = torch.rand(8, 2, 7, generator=generator)
        yield Batch((torch.stack((2.7 * packed[:, 0] - 1, 100 * packed[:, 1]), 1),))


def loaded_as(flow: str) -> Flow:
    """A flow as far as its variants differ."""
    return flows.load(flow) if lowers(flow) else uncompiled(flow)


@cache
def measured(flow: str) -> dict[str, CaseResult]:
    """All variants of a flow, and `released` once more after them as `again`, in one process."""
    bench = lab(adapter(meets_all, ("narrow", "wide"), ramps))
    loaded = loaded_as(flow)
    found = {}
    for variant in reversed(fixes.variants(flow, fixes.installed())):
        found[variant] = bench.measure(loaded, fixes.of_variant(variant, fixes.installed()))
    bench.measure("x86-static")  # another flow in between: nothing of this one is kept
    return {**found, "again": bench.measure(loaded)}


def alone(flow: str) -> CaseResult:
    """`released` where no repair was ever entered."""
    return lab(adapter(meets_all, ("narrow", "wide"), ramps)).measure(loaded_as(flow))


@pytest.mark.parametrize("flow", FLOWS)
def test_released_rows_are_the_same_bits_whether_or_not_repaired_variants_ran_before(flow):
    rows = measured(flow)
    first, again, untouched = rows[RELEASED], rows["again"], alone(flow)
    assert (first.outputs, first.quantizers) == (untouched.outputs, untouched.quantizers)
    assert (again.outputs, again.quantizers) == (untouched.outputs, untouched.quantizers)


@pytest.mark.parametrize(("name", "flow"), [param(flow, name) for name, flow in ALONE.items()])
def test_each_fix_changes_the_model_that_meets_its_defect(name, flow):
    rows = measured(flow)
    assert {row.fix_state for row in rows[f"+{name}"].outputs} == {"", "needed"}
    assert {row.fix_state for row in rows[RELEASED].outputs} == {""}


def _last(result: CaseResult) -> dict[str, tuple[str, float | None]]:
    point = result.outputs[-1].point
    return {row.output: (row.status, row.sqnr_db) for row in result.outputs if row.point == point}


def test_of_two_fixes_each_alone_does_its_part_and_both_together_all():
    """7 input features: as released the fused op raises, and mending the offset alone changes nothing."""
    rows = measured("vulkan-4w")
    odd, offset = "+vulkan-qcs4w-odd-channels", "+vulkan-qcs4w-offset"
    assert {status for status, _ in _last(rows[RELEASED]).values()} == {"failed:lower"}
    assert {row.fix_state for row in rows[offset].outputs} == {"", "inert"}
    assert max(level for _, level in _last(rows[odd]).values()) < 0
    converted = {row.output: row.sqnr_db for row in rows[RELEASED].outputs if row.point == Point.CONVERTED}
    both = {name: level for name, (_, level) in _last(rows[odd + offset]).items()}
    assert both == pytest.approx(converted, abs=0.01)
    assert min(both.values()) > 10


def test_the_wide_branch_is_clipped_as_released_and_whole_when_repaired():
    rows = measured("cadence-hoist")
    released, repaired = _last(rows[RELEASED]), _last(rows["+cadence-branch-hoist"])
    converted = {row.output: row.sqnr_db for row in rows[RELEASED].outputs if row.point == Point.CONVERTED}
    assert released["wide"][1] < 3
    assert {name: level for name, (_, level) in repaired.items()} == pytest.approx(converted, abs=0.01)
    causes = {(row.output, row.cause) for row in rows[RELEASED].outputs if row.point == Point.LOWERED}
    assert ("wide", "clipping") in causes


def test_the_parameter_gets_the_bound_of_its_absmax():
    """Mean absmax over the first axis, (0.25 + 0.5 + 1.0 + 0.75) / 4 = 0.625, against 1.0."""
    rows = measured("nncf-mul")
    bounds = {
        variant: [row.hi for row in rows[variant].quantizers if row.hi is not None]
        for variant in (RELEASED, "+nncf-mul-parameter")
    }
    assert bounds[RELEASED] == [pytest.approx(0.625, abs=1e-6)]
    assert bounds["+nncf-mul-parameter"] == [pytest.approx(1.0, abs=1e-6)]
