"""A small real model, taken through the real pipeline in this process, and stored as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from harness import flows
from harness.adapter import Batch, Size
from harness.fixes import Fix, Reading, Repair
from harness.flows import Flow, Program
from harness.pipeline import CaseResult, Pipeline
from harness.records import Case, Stage
from harness.store import COMPLETE, Run, create_run
from harness.subject import Subject
from harness.suite import Plan

torch.set_num_threads(1)

BATCH, BATCHES = 8, 3


class TwoHeads(nn.Module):
    """A conv with BatchNorm, then two heads: enough for folding, residuals, shared observers and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)
        self.score = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.body(x) + x).mean((2, 3))
        return self.head(x), self.score(x)


def two_heads(seed: int = 0) -> nn.Module:
    """The model in eval mode, its BatchNorm far from the identity so that a folding mistake shows."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TwoHeads().eval()
        nn.init.uniform_(model.norm.running_var, 0.5, 2.0)
        nn.init.normal_(model.norm.running_mean)
        nn.init.uniform_(model.norm.weight, 0.5, 2.0)
    return model.requires_grad_(False)


def images(seed: int) -> Iterator[Batch]:
    """Batches of (8, 3, 8, 8)."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(BATCHES):
        yield Batch((torch.randn(BATCH, 3, 8, 8, generator=generator),))


def adapter(
    build: Callable[[], nn.Module] = two_heads,
    outputs: tuple[str, ...] = ("head", "score"),
    batches: Callable[[int], Iterable[Batch]] = images,
) -> Any:
    """An adapter module around a model."""
    return SimpleNamespace(
        __name__="lab",
        SIZES={"small": Size(("seeded",), outputs)},
        build=lambda _size, _weights, _seed: build(),
        calibration=lambda _size, seed: batches(seed + 100),
        evaluation=lambda _size, seed: batches(seed),
    )


def lab_case(flow: str = "x86-static", variant: str = "released") -> Case:
    return Case("lab", "small", "seeded", flow, variant)


@contextmanager
def nothing() -> Iterator[None]:
    """A repair that changes nothing."""
    yield


def fix(name: str, stage: Stage, repair: Repair = nothing, probe: Callable[[], Reading] | None = None) -> Fix:
    """A fix of every flow, for a package that is always installed; its probe is right while the repair is entered."""
    entered: list[str] = []

    @contextmanager
    def watched() -> Iterator[None]:
        with repair():
            entered.append(name)
            try:
                yield
            finally:
                entered.pop()

    return Fix(
        name=name,
        link="https://example.invalid/1",
        package="torch",
        known=("2.14.1",),
        flows=("*",),
        stage=stage,
        measures="a number",
        probe=probe or (lambda: Reading(1.0 + len(entered), 2.0, right=bool(entered))),
        repair=watched,
    )


_REPAIRED_GAIN: list[float] = []


def _kernel(x: torch.Tensor, gain: float) -> torch.Tensor:
    return x * (_REPAIRED_GAIN[-1] if _REPAIRED_GAIN else gain)


def lowering(gain: float = 1.0) -> Flow:
    """x86-static, then a lowering that sends the first output through a kernel which multiplies by `gain`."""

    def lower(program: GraphModule) -> GraphModule:
        output = next(node for node in program.graph.nodes if node.op == "output")
        first, *rest = output.args[0]
        with program.graph.inserting_before(output):
            call = program.graph.call_function(_kernel, (first, gain))
        output.args = ((call, *rest),)
        program.recompile()
        return program

    return changed("x86-static", edge=lambda graph, _inputs: graph, lower=lower)


def program(
    run: Callable[..., Any] = lambda graph, *inputs: graph(*inputs),
    counts: Mapping[str, int] | None = None,
    digest: Callable[[], str] = lambda: "",
) -> Flow:
    """x86-static, then a program that does `run` with the converted graph and the inputs: by default what that does."""

    def lower(graph: GraphModule) -> Program:
        return Program(partial(run, graph), counts or {}, digest())

    return changed("x86-static", edge=lambda graph, _inputs: graph, lower=lower, programs=True)


def gain_of(value: float) -> Repair:
    """A repair of that kernel, which runs with the graph: it multiplies by `value` meanwhile."""

    @contextmanager
    def repair() -> Iterator[None]:
        _REPAIRED_GAIN.append(value)
        try:
            yield
        finally:
            _REPAIRED_GAIN.pop()

    return repair


@dataclass
class Lab:
    """One subject and its pipeline; `stages` lists every stage as it began."""

    pipeline: Pipeline
    subject: Subject
    stages: list[tuple[Case, Stage]]

    def measure(self, flow: str | Flow = "x86-static", fixes: tuple[Fix, ...] = ()) -> CaseResult:
        loaded = uncompiled(flow) if isinstance(flow, str) else flow
        variant = "".join(f"+{fix.name}" for fix in fixes) or "released"
        return self.pipeline.measure(lab_case(loaded.name, variant), loaded, fixes)


def lab(module: Any = None, jitter: int | None = None, weights: str = "seeded") -> Lab:
    stages: list[tuple[Case, Stage]] = []
    with torch.no_grad():
        subject = Subject(module or adapter(), "small", weights, 0, jitter)
    return Lab(Pipeline(subject, lambda case, stage: stages.append((case, stage))), subject, stages)


def changed(name: str, **stages: Any) -> Flow:
    """The flow called `name` with some of its fields replaced: how a defect of an upstream is injected."""
    return replace(uncompiled(name), **stages)


def stored_run(reports: Path, results: Iterable[CaseResult], *, filtered: bool = False) -> Run:
    """A complete run of a gate that planned just these cases."""
    results = list(results)
    cases = tuple(sorted(result.case for result in results))
    run = create_run(reports, Plan("gate", filtered, cases, cases), 0, {"stack": {"torchao": "0.18.0"}})
    run.outputs = [row for result in results for row in result.outputs]
    run.quantizers = [row for result in results for row in result.quantizers]
    run.status = COMPLETE
    run.save()
    return run


def uncompiled(name: str) -> Flow:
    """A flow as far as its graphs: compilers and runtimes take seconds, and have tests of their own."""
    flow = flows.load(name)
    return flow.unlowered() if flow.programs else flow
