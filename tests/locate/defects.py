"""Defects put into a real upstream's graphs, and what `locate` says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from harness import flows
from harness.flows import Flow
from harness.locate.against import Accepted, Against
from harness.locate.find import Finder
from harness.locate.scene import Place, Scene
from harness.located import Located
from harness.measure.qdq import is_dequantize, is_quantize
from harness.measure.sites import Sites, is_observer
from harness.pipeline import Pipeline
from harness.records import Case
from harness.subject import Subject
from harness.workspace import load_module

torch.set_num_threads(1)
MODELS = Path(__file__).parents[2] / "models"
FLOW = "x86-static"
Change = Callable[[GraphModule], None]


class CatHead(nn.Module):
    """A linear over a cat of features (N, width), squashed, and their negative: values that use all of their range."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores (N, classes)."""
        squashed = torch.tanh(x)
        scores: torch.Tensor = self.head(torch.cat((squashed, -squashed), 1))
        return scores


class UnlikeHead(nn.Module):
    """Two branches of features (N, width): one in [-1, 1], and one that is fifty times as large."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.small = nn.Linear(width, classes)
        self.large = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores (N, classes)."""
        scores: torch.Tensor = self.small(torch.tanh(x)) + self.large(50 * torch.relu(x)) / 50
        return scores


def with_head(model: str, head: Callable[[int, int], nn.Module]) -> Any:
    """An adapter like a built-in one, with another classifier."""
    built_in = load_module(MODELS, model)

    def build(size: str, weights: str, seed: int) -> nn.Module:
        made: nn.Module = built_in.build(size, weights, seed)
        name = {"resnet": "fc", "bert": "classifier"}[model]
        old = getattr(made, name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            setattr(made, name, head(old.in_features, old.out_features).eval().requires_grad_(False))
        return made

    return SimpleNamespace(**{**vars(built_in), "build": build})


def injected(*, prepare: Change | None = None, convert: Change | None = None) -> Flow:
    """The static x86 flow with a change behind its prepare or convert stage."""
    flow = flows.load(FLOW)

    def behind(stage: Callable[[GraphModule], GraphModule], change: Change | None) -> Callable[..., GraphModule]:
        def run(graph: GraphModule) -> GraphModule:
            made = stage(graph)
            if change is not None:
                change(made)
            return made

        return run

    return replace(flow, prepare=behind(flow.prepare, prepare), convert=behind(flow.convert, convert))


def requantized(name: str, *, scale: float = 1.0, zero_point: int = 0) -> Change:
    """Multiplies the scale, and shifts the zero point, of one quantizer: its quantize op and all that undo it."""

    def change(graph: GraphModule) -> None:
        sites = Sites(graph)
        [quantize] = [node for node in graph.graph.nodes if is_quantize(node) and sites.quantizer(node)[0] == name]
        for node in (quantize, *(user for user in quantize.users if is_dequantize(user))):
            value, old_scale, old_zero_point, *rest = node.args
            node.args = (value, old_scale * scale, old_zero_point + zero_point, *rest)
        graph.recompile()

    return change


def shared(first: str, second: str) -> Change:
    """Lets two quantizers share one observer."""

    def change(graph: GraphModule) -> None:
        sites = Sites(graph)
        nodes: dict[str, Node] = {sites.quantizer(node)[0]: node for node in graph.graph.nodes if is_observer(node)}
        observer = graph.get_submodule(str(nodes[first].target))
        parent, _, leaf = str(nodes[second].target).rpartition(".")
        setattr(graph.get_submodule(parent), leaf, observer)

    return change


def located(
    adapter: Any,
    size: str,
    flow: Flow,
    against: str | None,
    accepted: Accepted | None = None,
    variant: str = "released",
) -> Located:
    """What explains the loss of the worst output of a model at the flow's last point."""
    scene, pipeline, subject = staged(adapter, size, flow, variant)
    finder = Finder(scene, Against(pipeline, subject, scene, accepted).find(against))
    return finder.find(finder.worst())


def staged(adapter: Any, size: str, flow: Flow, variant: str = "released") -> tuple[Scene, Pipeline, Subject]:
    """A measured point of a model."""
    from harness import fixes

    weights = adapter.SIZES[size].weights[0]
    with torch.no_grad():
        subject = Subject(adapter, size, weights, 0)
    pipeline = Pipeline(subject, lambda _case, _stage: None)
    case = Case(adapter.__name__.rsplit(".", 1)[-1], size, weights, flow.name, variant)
    place = Place(case, flow, fixes.of_variant(variant, fixes.installed()), flow.points[-1])
    return Scene(pipeline, subject, place), pipeline, subject


def baseline_of(adapter: Any, size: str) -> Accepted:
    """What a baseline holds of the flow without a defect: rows, no graph."""
    scene, _, _ = staged(adapter, size, flows.load(FLOW))
    return Accepted(scene.quantized.rows, scene.outputs)
