"""Values with several readers and quantizers that share: what one name stands for, and what the others keep."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from harness.flows import pt2e
from harness.flows.exclude import UnknownQuantizerError, leave_in_float
from harness.flows.specs import excluding, quantizers, take_off
from harness.graphs import ANNOTATION, copy_graph
from harness.measure.qdq import op_name
from harness.measure.sites import Sites, is_observer
from harness.records import Cause
from tests.flows.excluding import fours, measured, qparams, quantized
from tests.lab import adapter, changed

ao = pytest.importorskip("torchao.quantization.pt2e.quantizer")
observers = pytest.importorskip("torchao.quantization.pt2e.observer")

AFFINE = torch.per_tensor_affine
SIGNED = ao.QuantizationSpec(torch.int8, observers.MinMaxObserver, -128, 127, AFFINE)
UNSIGNED = ao.QuantizationSpec(torch.uint8, observers.MinMaxObserver, 0, 255, AFFINE)


class Forks(nn.Module):
    """One value read by two linears, whose outputs (of ranges that differ by a factor of ten) are added."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.right.weight.data *= 10

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        return self.left(x) + self.right(x)


MODULE = adapter(lambda: Forks().eval().requires_grad_(False), ("sum",), fours)


class Annotates(ao.Quantizer):
    """Annotates with a function of the nodes relu, left, right and add."""

    def __init__(self, how) -> None:
        self._how = how

    def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        nodes = [node for node in model.graph.nodes if op_name(node) in ("relu", "linear", "add")]
        self._how(*nodes)
        return model

    def validate(self, model: torch.fx.GraphModule) -> None:
        """Nothing to check."""


def flow(how):
    return changed("x86-static", prepare=partial(pt2e.prepare, lambda: Annotates(how)))


def put(node, inputs=None, output=None) -> None:
    node.meta[ANNOTATION] = ao.QuantizationAnnotation(inputs or {}, output, _annotated=True)


def one_each(relu, left, right, _add) -> None:
    """Two quantizers of one value: signed for the one reader, unsigned for the other."""
    put(left, {relu: SIGNED})
    put(right, {relu: UNSIGNED})


def one_for_both(relu, left, right, _add) -> None:
    put(left, {relu: SIGNED})
    put(right, {relu: SIGNED})


def one_behind_another(relu, left, _right, _add) -> None:
    """What leaves the ReLU is quantized for all readers, and again for the one on the left."""
    put(relu, output=UNSIGNED)
    put(left, {relu: SIGNED})


def shared(_relu, left, right, add) -> None:
    """The second operand of add takes its qparams from the first, and the output from the second."""
    put(add, {left: SIGNED, right: ao.SharedQuantizationSpec((left, add))}, ao.SharedQuantizationSpec((right, add)))


def test_of_two_quantizers_of_one_value_the_other_stays():
    whole = quantized(measured(flow(one_each), module=MODULE))
    assert set(whole) == {"left:linear.input", "right:linear.input"}
    without = quantized(measured(flow(one_each), "left:linear.input", module=MODULE))
    assert {name: qparams(row) for name, row in without.items()} == {
        "right:linear.input": qparams(whole["right:linear.input"])
    }


def test_one_quantizer_of_two_readers_is_gone_for_both():
    """It has the name of the first; another reader's is refused, and told whose it is."""
    assert set(quantized(measured(flow(one_for_both), module=MODULE))) == {"left:linear.input"}
    assert not quantized(measured(flow(one_for_both), "left:linear.input", module=MODULE))
    [row] = {row.error for row in measured(flow(one_for_both), "right:linear.input", module=MODULE).outputs} - {""}
    assert row.startswith("no quantizer named 'right:linear.input' among 1; what it reads has one quantizer for all")


def test_a_value_quantized_twice_is_float_at_the_reader_that_is_named():
    """The quantizer before it stays for the other reader, under its own name."""
    whole = quantized(measured(flow(one_behind_another), module=MODULE))
    assert set(whole) == {"left:linear.input", "right:linear.input"}
    without = measured(flow(one_behind_another), "left:linear.input", module=MODULE)
    assert set(quantized(without)) == {"right:linear.input"}
    assert Cause.UNQUANTIZED not in {row.cause for row in without.quantizers}


def test_without_the_first_of_two_quantizers_in_a_row_the_second_takes_the_float_value():
    whole = quantized(measured(flow(one_behind_another), module=MODULE))
    without = quantized(measured(flow(one_behind_another), "right:linear.input", module=MODULE))
    assert {name: qparams(row) for name, row in without.items()} == {
        "left:linear.input": qparams(whole["left:linear.input"])
    }


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ("add.self", {"add.other", "add.output"}),
        ("add.other", {"add.self", "add.output"}),
        ("add.output", {"add.self", "add.other"}),
    ],
)
def test_what_shared_with_an_excluded_quantizer_goes_on_sharing_with_the_rest(gone, left):
    whole = quantized(measured(flow(shared), module=MODULE))
    assert len({qparams(row) for row in whole.values()}) == 1
    without = quantized(measured(flow(shared), gone, module=MODULE))
    assert set(without) == left
    assert {row.share_group for row in without.values()} == {min(left) if "add.self" not in left else "add.self"}


def test_the_range_that_is_left_is_that_of_the_values_that_are_left():
    """MinMax: without the operand of weights ten times as large, scale x 255 is the range of the other, with zero."""
    model, [batch] = Forks().eval(), fours(100)
    with torch.no_grad():
        small = model.left(torch.relu(batch.inputs[0]))
    without = quantized(measured(flow(shared), "add.other", "add.output", module=MODULE))
    span = float(small.max().clamp(min=0) - small.min().clamp(max=0))
    assert set(without) == {"add.self"}
    assert without["add.self"].scale * 255 == pytest.approx(span, rel=1e-5)


# Annotations without observers, as NNCF reads them


def annotated(how) -> torch.fx.GraphModule:
    graph = pt2e.export_strict(Forks().eval(), fours(0)[0].inputs)
    return Annotates(how).annotate(graph)


@pytest.mark.parametrize("how", [one_each, one_for_both, shared])
def test_annotations_name_the_same_quantizers_as_observers_do(how):
    observed = pt2e.prepare(lambda: Annotates(how), pt2e.export_strict(Forks().eval(), fours(0)[0].inputs))
    sites = Sites(observed)
    assert set(quantizers(annotated(how))) == {
        sites.quantizer(node)[0] for node in observed.graph.nodes if is_observer(node)
    }


def test_the_first_that_is_left_of_a_group_takes_over_its_spec():
    graph = annotated(shared)
    assert leave_in_float(graph, ["add.self"]) == {"add.self"}
    add = next(node for node in graph.graph.nodes if op_name(node) == "add")
    left, right = add.all_input_nodes
    annotation = add.meta[ANNOTATION]
    assert annotation.input_qspec_map == {right: SIGNED}
    assert annotation.output_qspec == ao.SharedQuantizationSpec((right, add))
    assert left not in annotation.input_qspec_map


def test_an_upstream_that_annotates_again_leaves_the_same_in_float_also_from_a_copy():
    graph = annotated(shared)
    leave_in_float(graph, ["add.self"])
    again = pt2e.export_strict(Forks().eval(), fours(0)[0].inputs)
    made = excluding(Annotates(shared), copy_graph(graph)).annotate(again)
    assert set(quantizers(made)) == {"add.other", "add.output"}


def test_a_quantizer_is_itself_where_nothing_was_taken_off():
    quantizer = Annotates(shared)
    assert excluding(quantizer, annotated(shared)) is quantizer


def test_taking_nothing_off_changes_no_annotation():
    graph = annotated(shared)
    before = {node.name: repr(node.meta.get(ANNOTATION)) for node in graph.graph.nodes}
    take_off(graph, frozenset())
    assert {node.name: repr(node.meta.get(ANNOTATION)) for node in graph.graph.nodes} == before


def test_a_graph_without_quantizers_knows_no_name():
    graph = annotated(lambda *_nodes: None)
    with pytest.raises(UnknownQuantizerError, match=r"no quantizer named 'add.self' among 0; quantizers.csv"):
        leave_in_float(graph, ["add.self"])
