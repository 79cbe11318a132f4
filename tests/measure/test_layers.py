"""Layers measured in lockstep: by hand on graphs of three nodes, and on what must not disturb the figures."""

from __future__ import annotations

import copy
import math
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from harness.measure.layers import measure_layers
from harness.records import Status
from tests.layer_graphs import Branches, Chain, exported, inputs, layer, scaled, twins


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        z = self.second(x)
        y.relu_()
        y.add_(z)
        return y.mul_(2.0)


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, _ = x.sort(1)
        return values * 2.0


def test_noise_a_tenth_of_the_signal_is_20_db_where_it_arises_and_none_in_the_next_layer_alone() -> None:
    report = twins(Chain(), scaled("first.weight", 1.1))
    first, relu, second = report.layers
    for one in (first, relu, second):
        assert one.sqnr_db == pytest.approx(20.0, abs=1e-4)
        assert one.worst_channel_db == pytest.approx(20.0, abs=1e-4)
        assert (one.status, one.numel, one.samples) == (Status.MEASURED, 2 * 4 * 3, 8)
    assert first.local_db == pytest.approx(20.0, abs=1e-4)
    assert (relu.local_db, second.local_db) == (160.0, 160.0)
    assert (report.only_reference, report.only_actual, report.batches) == ((), (), 2)


def test_names_are_those_of_sites_and_sources_are_lines_of_the_model() -> None:
    first, relu, second = twins(Chain(), lambda graph: None).layers
    assert (first.name, relu.name, second.name) == ("first:linear", "relu", "second:linear")
    line = Chain.forward.__code__.co_firstlineno + 1
    assert [one.source for one in (first, relu, second)] == [f"tests/layer_graphs.py:{line}"] * 3


def test_two_equal_graphs_are_exact_everywhere() -> None:
    for one in twins(Chain(), lambda graph: None).layers:
        assert (one.status, one.sqnr_db, one.local_db) == (Status.EXACT, 160.0, 160.0)


def test_the_worst_channel_is_told_from_the_whole() -> None:
    def change(graph: GraphModule) -> None:
        graph.get_parameter("first.weight").data[1] *= 2.0

    model = Chain()
    nn.init.eye_(model.first.weight)
    first = twins(model, change).layers[0]
    assert first.worst_channel_db == pytest.approx(0.0, abs=1e-6)  # channel 1 is off by itself
    power = torch.cat([batch[0] for batch in inputs()]).double().square().sum(0)
    assert first.sqnr_db == pytest.approx(10 * math.log10(power.sum() / power[1]), abs=1e-6)


@pytest.mark.parametrize("every", [1, 3, 100])
def test_local_damage_is_measured_on_every_so_many_samples_and_always_on_the_first(every: int) -> None:
    reference = exported(Chain(), inputs(1)[0][0])
    actual = copy.deepcopy(reference)
    scaled("first.weight", 1.1)(actual)
    report = measure_layers(reference=reference, actual=actual, batches=inputs(3), local_every=every)
    assert report.layers[0].local_numel == len(range(0, 12, every)) * 3
    assert report.layers[0].local_db == pytest.approx(20.0, abs=1e-4)


def test_in_place_ops_overwrite_nothing_that_is_measured() -> None:
    model = InPlace()
    report = twins(model, scaled("first.weight", 1.1))
    ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
    theirs.first.weight.data.mul_(1.1)
    ours, theirs = ([fn(one) for one in (x[0] for x in inputs())] for fn in (ours.first, theirs.first))
    signal = sum(float(one.detach().double().square().sum()) for one in ours)
    noise = sum(float((one.double() - two).detach().square().sum()) for one, two in zip(ours, theirs, strict=True))
    first = layer(report, "first:linear")
    assert first.sqnr_db == pytest.approx(10 * math.log10(signal / noise), abs=1e-4)
    assert first.local_db == pytest.approx(first.sqnr_db, abs=1e-4)
    assert layer(report, "second:linear").sqnr_db == 160.0
    for name in ("relu", "add", "mul"):
        assert layer(report, name).sqnr_db < 60.0
        assert layer(report, name).local_db == 160.0


def test_an_in_place_op_that_does_harm_is_run_on_values_of_its_own() -> None:
    def change(graph: GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.name.startswith("mul_"):
                node.args = (node.args[0], 2.2)

    report = twins(InPlace(), change)
    assert layer(report, "add").sqnr_db == 160.0
    assert layer(report, "mul").sqnr_db == pytest.approx(20.0, abs=1e-4)
    assert layer(report, "mul").local_db == pytest.approx(20.0, abs=1e-4)


def test_graphs_that_write_into_their_inputs_do_not_disturb_each_other_or_the_batches() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1.0) * 2.0

    graph = exported(Writes(), inputs(1)[0][0])
    batches = inputs()
    report = measure_layers(reference=graph, actual=copy.deepcopy(graph), batches=batches, local_every=1)
    assert {one.sqnr_db for one in report.layers} == {160.0}
    assert torch.equal(batches[0][0], inputs()[0][0])


def test_a_branch_that_is_damaged_leaves_the_other_exact_and_the_cat_between() -> None:
    report = twins(Branches(), scaled("left.weight", 1.1))
    assert layer(report, "left:linear").local_db == pytest.approx(20.0, abs=1e-4)
    assert layer(report, "right:linear").sqnr_db == 160.0
    assert layer(report, "cat").local_db == 160.0
    assert 20.0 < layer(report, "cat").sqnr_db < 160.0  # half of its channels are exact
    assert layer(report, "cat").worst_channel_db == pytest.approx(20.0, abs=1e-4)


def test_an_op_of_two_results_is_a_layer_and_so_is_the_result_that_is_picked() -> None:
    report = twins(Split(), lambda graph: None)
    assert {one.op for one in report.layers} == {"sort", "getitem", "mul"}
    assert {one.status for one in report.layers} == {Status.EXACT}
    assert layer(report, "sort").numel == 2 * layer(report, "mul").numel  # values and indices


def test_values_are_dropped_after_their_last_reader() -> None:
    class Deep(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                x = torch.tanh(x) * 1.01
            return x

    graph = exported(Deep(), torch.zeros(64, 64))

    class Alive(TorchDispatchMode):
        """Counts results that are as large as a layer's."""

        def __init__(self) -> None:
            super().__init__()
            self.now = self.most = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.numel() == 64 * 64:
                self.now += 1
                self.most = max(self.most, self.now)
                weakref.finalize(result, self.drop)
            return result

        def drop(self) -> None:
            self.now -= 1

    batches = [(torch.randn(64, 64),) for _ in range(3)]
    most = []
    for count in (1, 3):
        with Alive() as alive:
            measure_layers(reference=graph, actual=copy.deepcopy(graph), batches=batches[:count])
        most.append(alive.most)
    assert most[0] == most[1] <= 12  # of 40 values in each graph
