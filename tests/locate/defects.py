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
from harness.locate.against import Accepted, Against, Aim
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


class OfFirstToken(nn.Module):
    """A head on the first token's hidden state, in the place of BERT's pooler."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(N, tokens, width) to (N, classes)."""
        scores: torch.Tensor = self.head(hidden[:, 0])
        return scores


def with_head(model: str, head: Callable[[int, int], nn.Module]) -> Any:
    """An adapter like a built-in one, with another head in the place of the model's last linear."""
    built_in = load_module(MODELS, model)

    def build(size: str, weights: str, seed: int) -> nn.Module:
        made: Any = built_in.build(size, weights, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if hasattr(made, "pooler") and not hasattr(made, "classifier"):
                made.pooler = OfFirstToken(head(768, 768))
            else:
                name = "fc" if hasattr(made, "fc") else "classifier"
                old = getattr(made, name)
                setattr(made, name, head(old.in_features, old.out_features))
        found: nn.Module = made.eval().requires_grad_(False)
        return found

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


def located(adapter: Any, size: str, flow: Flow, against: str | None = None) -> Located:
    """What explains the loss of the worst output of a model at the flow's last point."""
    scene, pipeline, subject = staged(adapter, size, flow)
    return _found(scene, Against(pipeline, subject, scene, None).find(against))


def _found(scene: Scene, aim: Aim) -> Located:
    finder = Finder(scene, aim)
    return finder.find(finder.worst())


def found_in(adapter: Any, size: str, broken: Flow) -> dict[str, Located]:
    """What explains a defect, by where right values come from.

    `fitted`: the damaged graph alone; `baseline`: the rows of the sound graph, as a baseline holds them.
    """
    sound, _, _ = staged(adapter, size, flows.load(FLOW))
    scene, pipeline, subject = staged(adapter, size, broken)
    accepted = Accepted(sound.quantized.rows, sound.outputs)
    against = Against(pipeline, subject, scene, accepted)
    found = {}
    for name in ("fitted", "baseline"):
        scene.passes = 0.0
        found[name] = _found(scene, against.find(name))
    return found


def staged(adapter: Any, size: str, flow: Flow) -> tuple[Scene, Pipeline, Subject]:
    """A measured point of a model."""
    weights = adapter.SIZES[size].weights[0]
    with torch.no_grad():
        subject = Subject(adapter, size, weights, 0)
    pipeline = Pipeline(subject, lambda _case, _stage: None)
    case = Case(adapter.__name__.rsplit(".", 1)[-1], size, weights, flow.name)
    place = Place(case, flow, (), flow.graph_points[-1])
    return Scene(pipeline, subject, place), pipeline, subject
