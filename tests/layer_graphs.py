"""Graphs of a few layers, and what the lockstep measurement says of one against its changed copy."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.fx import GraphModule

from harness.measure.layers import Layer, LayerReport, measure_layers

torch.set_num_threads(1)


def exported(model: nn.Module, *inputs: torch.Tensor) -> GraphModule:
    return torch.export.export(model.eval(), inputs, strict=True).module()


def inputs(count: int = 2, shape: tuple[int, ...] = (4, 3)) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(shape, generator=generator),) for _ in range(count)]


def twins(model: nn.Module, change: Callable[[GraphModule], None], shape: tuple[int, ...] = (4, 3)) -> LayerReport:
    """Layers of a graph against its copy after `change`, every sample run alone as well."""
    reference = exported(model, inputs(1, shape)[0][0])
    actual = copy.deepcopy(reference)
    change(actual)
    actual.recompile()
    return measure_layers(reference=reference, actual=actual, batches=inputs(shape=shape), local_every=1)


def scaled(path: str, by: float) -> Callable[[GraphModule], None]:
    def change(graph: GraphModule) -> None:
        graph.get_parameter(path).data.mul_(by)

    return change


def layer(report: LayerReport, name: str) -> Layer:
    return next(one for one in report.layers if one.name == name)


class Chain(nn.Module):
    """Two linears with a ReLU between them; no biases, so that scaling one scales everything behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left = nn.Linear(3, 3, bias=False)
        self.right = nn.Linear(3, 3, bias=False)
        self.head = nn.Linear(6, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat((self.left(x), self.right(x)), 1))
