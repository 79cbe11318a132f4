"""What int8 kernels gain: ResNet-50, BERT-base and ViT-B/16 lowered by Inductor, beside the same models in float.

All programs of a model are timed side by side (`harness.measure.speed`), and pytest-benchmark is handed the seconds of
each, so that `--benchmark-save` and `--benchmark-compare` see every program; ratios and where they were measured lie in
`extra_info`, from which `sqnr history` takes them. Nothing is pinned: kernels are the fastest that the processor has.
Threads are OMP_NUM_THREADS, or one: several wait for each other, and so for whatever else a core is busy with, and then
ratios say as much of that as of kernels. No time is asserted, only ratios and kernels.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from harness import fixes, flows
from harness.environment import fingerprint
from harness.fixes import Fix
from harness.fixes.states import repaired, state_of
from harness.flows import Program
from harness.flows.compiled import lower_beside
from harness.measure.metrics import sqnr_db
from harness.measure.speed import Ratio, SpeedRow, interleaved, ratio
from harness.records import Case, FixState, Stage
from harness.stages import Artefact, Stages
from harness.subject import Subject, flatten
from harness.workspace import load_module

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
SIZE, WEIGHTS, BATCH = "full", "seeded", 2
ROUNDS, WARMUP = 30, 5
EAGER, COMPILED = "fp32 eager", "fp32 compiled"
PER_TENSOR, PER_CHANNEL, RELEASED = "int8 per-tensor", "int8 per-channel", "Arm's default as released"
FLOWS = {
    PER_TENSOR: ("arm-static-u8s8f32-per-tensor", "+arm-per-tensor-lowering"),
    PER_CHANNEL: ("arm-static-u8s8f32-per-channel", "released"),
    RELEASED: ("arm-static-default", "released"),
}
PUBLISHED = {"resnet": 1.4156, "bert": 1.4437, "vit": 1.1510}
PUBLISHED_ON = "Graviton 3E, 32 cores (pytorch/ao pull request 2391)"
LEAST_OF_PER_CHANNEL = 0.9
FLOOR_DB = 10.0
"""A wrong result is no faster than a right one: what the gate asks of every repaired output, too."""

_clock: Iterator[float] = iter(())


@dataclass(frozen=True)
class Timed:
    """The programs of a model: seconds of each by name, and of those that were int8 graphs the row and the SQNR."""

    model: str
    seconds: dict[str, list[float]]
    rows: dict[str, SpeedRow]
    levels_db: dict[str, float]


def threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS") or 1)


@cache
def isa() -> str:
    """The instruction set that oneDNN says it takes, of a process with this one's environment."""
    convolution = "import torch; torch.nn.functional.conv2d(torch.ones(8, 16, 32, 32), torch.ones(32, 16, 3, 3))"
    command = [sys.executable, "-c", convolution]
    said = subprocess.run(
        command, env={**os.environ, "ONEDNN_VERBOSE": "1"}, capture_output=True, text=True, check=True
    ).stdout
    found = [line.split("cpu,isa:", 1)[1] for line in said.splitlines() if "cpu,isa:" in line]
    return found[0] if found else torch.backends.cpu.get_cpu_capability()


def needed(variant: str) -> tuple[Fix, ...]:
    """A variant's fixes as far as the installed release needs them."""
    wanted = fixes.of_variant(variant, fixes.installed())
    return tuple(fix for fix in wanted if state_of(fix).state is not FixState.UPSTREAMED)


def converted(stages: Stages, case: Case) -> Artefact:
    made = stages.at(Stage.EDGE, case, flows.load(case.flow), needed(case.variant)).copy_for(Stage.LOWER)
    stages.forget()
    return made


def lowered(made: Artefact, case: Case) -> Program:
    with repaired(needed(case.variant)):
        return lower_beside(made.graph)


@pytest.fixture(scope="module", params=PUBLISHED)
def timed(request: pytest.FixtureRequest) -> Timed:
    """All programs of a model, measured once; none of them is kept."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads())  # before compiling: generated loops are written for a number of threads
    try:
        with torch.no_grad():
            found = measure(request.param)
    finally:
        torch.set_num_threads(before)
        torch._dynamo.reset()
        gc.collect()
    return found


def measure(model: str) -> Timed:
    subject = Subject(load_module(ROOT / "models", model), SIZE, WEIGHTS, 0)
    try:
        inputs = subject.inputs
        reference = flatten(subject.model(*inputs))[0]
        stages = Stages(subject, lambda _case, _stage: None)
        graphs = {name: converted(stages, case_of(model, name)) for name in FLOWS}
        del stages  # and with it the exported graph: programs hold weights of their own
        gc.unfreeze()  # `Stages` freezes what it leaves
        gc.collect()
        # Only now: exporting and probing reset dynamo, after which programs made before do not run any more.
        programs = {EAGER: subject.model, COMPILED: lower_beside((subject.model, inputs)).run}
        made = {name: lowered(graphs.pop(name), case_of(model, name)) for name in FLOWS}
        programs |= {name: program.run for name, program in made.items()}
        levels = {name: level(reference, program.run(*inputs)) for name, program in made.items()}
        calls = {name: partial(program, *inputs) for name, program in programs.items()}
        seconds = interleaved(calls, rounds=ROUNDS, warmup=WARMUP)
    finally:
        subject.close()
    batch = len(inputs[0])
    rows = {name: row(case_of(model, name), program, batch, name, seconds) for name, program in made.items()}
    return Timed(model, seconds, rows, levels)


def case_of(model: str, name: str) -> Case:
    return Case(model, SIZE, WEIGHTS, *FLOWS[name])


def level(reference: torch.Tensor, outputs: object) -> float:
    found = sqnr_db(reference=reference, actual=flatten(outputs)[0])
    return float("nan") if found is None else found


def row(case: Case, program: Program, batch: int, name: str, seconds: dict[str, list[float]]) -> SpeedRow:
    middle = {key: statistics.median(values) for key, values in seconds.items()}
    speedup, eager_speedup = (ratio(before=seconds[key], after=seconds[name]) for key in (COMPILED, EAGER))
    return SpeedRow(
        **asdict(case),
        batch=batch,
        threads=threads(),
        isa=isa(),
        rounds=ROUNDS,
        eager_s=middle[EAGER],
        compiled_s=middle[COMPILED],
        lowered_s=middle[name],
        **named("speedup", speedup),
        **named("eager_speedup", eager_speedup),
        int8_convs=program.counts["int8_convs"],
        int8_linears=program.counts["int8_linears"],
        published=PUBLISHED[case.model],
        published_on=PUBLISHED_ON,
    )


def named(name: str, found: Ratio) -> dict[str, float]:
    return {name: found.value, f"{name}_lo": found.lower, f"{name}_hi": found.upper}


def recorded() -> float:
    """The clock that pytest-benchmark reads before and after each round: it stands but for what was measured."""
    return next(_clock)


@pytest.mark.parametrize("program", [EAGER, COMPILED, *FLOWS])
@pytest.mark.benchmark(timer=recorded, disable_gc=False, warmup=False)
def test_time(benchmark: BenchmarkFixture, timed: Timed, program: str) -> None:
    global _clock
    benchmark.group = f"{timed.model}/{SIZE}/{WEIGHTS}, batch {BATCH}"
    benchmark.extra_info["environment"] = fingerprint()
    if program in timed.rows:
        benchmark.extra_info["speed"] = asdict(timed.rows[program])
    seconds = timed.seconds[program]
    _clock = chain.from_iterable((0.0, second) for second in seconds)
    benchmark.pedantic(lambda: None, rounds=len(seconds))


def test_weights_per_tensor_are_lowered_as_those_per_channel_are_and_both_gain_more_than_published(
    timed: Timed,
) -> None:
    for name, each in timed.rows.items():
        interval = f"[{each.speedup_lo:.3f}, {each.speedup_hi:.3f}]"
        print(f"{timed.model} {name}: {each.speedup:.3f} {interval}, {timed.levels_db[name]:.2f} dB: {each}")
    per_tensor, per_channel = timed.rows[PER_TENSOR], timed.rows[PER_CHANNEL]
    assert per_tensor.batch == BATCH
    assert all(timed.levels_db[name] >= FLOOR_DB for name in (PER_TENSOR, PER_CHANNEL))
    assert per_channel.int8_convs + per_channel.int8_linears > 0
    assert per_tensor.int8_convs >= per_channel.int8_convs
    assert per_tensor.int8_linears >= per_channel.int8_linears
    # In the same rounds, which is the quotient of the two speedups with less of the machine's noise in it.
    share = ratio(before=timed.seconds[PER_CHANNEL], after=timed.seconds[PER_TENSOR])
    assert share.value >= LEAST_OF_PER_CHANNEL
    assert min(per_tensor.speedup, per_channel.speedup) > PUBLISHED[timed.model]
