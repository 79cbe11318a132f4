"""A graph run under overrides: what is replaced, what follows from it, and what is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import GraphModule, Node

from harness.locate.hybrid import Hybrid, Override
from tests.layer_graphs import Branches, Chain, exported

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])


def named(graph: GraphModule, name: str) -> Node:
    return next(node for node in graph.graph.nodes if node.name == name)


def value(outputs: object) -> torch.Tensor:
    """The only output."""
    [found] = outputs  # type: ignore[misc]
    assert isinstance(found, torch.Tensor)
    return found


def test_without_overrides_the_outputs_are_the_graphs_own_to_the_last_bit() -> None:
    graph = exported(Branches(), X)
    assert torch.equal(value(Hybrid(graph).under({})(X)), graph(X))


def test_an_override_takes_the_place_of_a_node_for_all_that_read_it() -> None:
    graph = exported(Chain(), X)
    hybrid, relu = Hybrid(graph), named(graph, "relu")
    run = hybrid.under({relu: Override((named(graph, "linear"),), lambda value: value * 0 + 1)})
    assert torch.equal(value(run(X)), graph.second.weight.sum(1).expand(2, 3))
    assert torch.equal(value(hybrid.under({})(X)), graph(X))


def test_a_constant_that_is_overridden_moves_what_is_computed_from_it_and_is_itself_again_afterwards() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (self.gain + 1)

    graph = exported(Scaled(), X)
    hybrid = Hybrid(graph)
    gain = next(node for node in graph.graph.nodes if node.op == "get_attr")
    assert torch.equal(value(hybrid.under({})(X)), X * torch.tensor([3.0, 4.0, 5.0]))
    assert torch.equal(value(hybrid.under({gain: Override((), lambda: torch.zeros(3))})(X)), X)
    assert torch.equal(value(hybrid.under({})(X)), X * torch.tensor([3.0, 4.0, 5.0]))


def test_what_no_output_needs_any_more_is_not_run() -> None:
    """A quantizer that raises is no matter once its value is taken from elsewhere."""
    graph = exported(Chain(), X)

    def raises(*_: object) -> torch.Tensor:
        raise AssertionError("was run")

    relu, linear = named(graph, "relu"), named(graph, "linear")
    linear.target = raises
    placeholder = next(node for node in graph.graph.nodes if node.op == "placeholder")
    run = Hybrid(graph).under({relu: Override((placeholder,), torch.relu)})
    assert torch.equal(value(run(X)), torch.relu(X) @ graph.second.weight.T)


def test_in_place_ops_and_the_models_inputs_are_left_as_they_were() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x + 1
            z = torch.relu(y)
            return z, y.mul_(2)

    graph = exported(InPlace(), X)
    hybrid = Hybrid(graph)
    assert hybrid.writes
    given = X.clone()
    for mine, theirs in zip(hybrid.under({})(given), graph(X.clone()), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(given, X)


def test_a_buffer_that_the_graph_writes_into_begins_every_batch_with_the_same_bits() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)
            return x + self.seen

    graph = exported(Counting(), X)
    run = Hybrid(graph).under({})
    assert torch.equal(value(run(X)), X + 1)
    assert torch.equal(value(run(X)), X + 1)


@pytest.mark.parametrize("name", ["linear", "relu", "linear_1"])
def test_an_override_that_computes_the_same_changes_no_bit(name: str) -> None:
    graph = exported(Chain(), X)
    node = named(graph, name)
    sources = tuple(node.all_input_nodes)
    run = Hybrid(graph).under({node: Override(sources, node.target)})  # type: ignore[arg-type]
    assert torch.equal(value(run(X)), graph(X))
