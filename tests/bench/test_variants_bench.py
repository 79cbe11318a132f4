"""What a second variant of a pass-level fix costs: everything before the pass is run and measured once."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness import fixes
from harness.workspace import load_module
from tests.lab import Lab, lab
from tests.upstream import needs

needs("executorch")

pytestmark = pytest.mark.bench
FLOW = "cadence-hoist"
REPAIRED = fixes.of_variant("+cadence-branch-hoist", fixes.installed())
ROUNDS = 5
MOST = 1.3


def small(name: str) -> Lab:
    return lab(load_module(Path(__file__).parents[2] / "models", name), weights="trained")


def one(bench: Lab) -> float:
    """Seconds of the released variant, in a pipeline that has measured nothing yet."""
    start = time.perf_counter()
    bench.measure(FLOW)
    return time.perf_counter() - start


def two(bench: Lab) -> float:
    """Seconds of the released and the repaired variant."""
    start = time.perf_counter()
    bench.measure(FLOW)
    bench.measure(FLOW, REPAIRED)
    return time.perf_counter() - start


@pytest.mark.parametrize("name", ["slices", "resnet"])
def test_two_variants_of_a_pass_cost_at_most_1_3_times_one(name: str) -> None:
    two(small("slices"))  # imports and the probe, paid once in a process
    rounds = [(one(small(name)), two(small(name))) for _ in range(ROUNDS)]
    singles, doubles = zip(*rounds, strict=True)
    ratio = statistics.median(doubles) / statistics.median(singles)
    print(
        f"{name}: one variant {statistics.median(singles):.2f} s, two {statistics.median(doubles):.2f} s, {ratio:.2f}x"
    )
    assert ratio <= MOST


@pytest.mark.benchmark(group="variants of cadence-hoist, slices")
@pytest.mark.parametrize("variants", [one, two], ids=["released", "released and repaired"])
def test_time(benchmark: BenchmarkFixture, variants) -> None:
    two(small("slices"))
    benchmark.pedantic(variants, setup=lambda: ((small("slices"),), {}), rounds=ROUNDS)
