"""Quantizers that a person leaves in float, in every family of flows, on the real packages."""

from __future__ import annotations

from functools import cache

import pytest

from harness.graphs import copy_graph
from harness.records import Cause, FixState, Point, QuantizerStatus, Stage, Status, failed
from tests.flows.excluding import levels, measured, qparams, quantized
from tests.lab import changed, fix, gain_of, lab, lowering
from tests.upstream import needs

needs("torchao", "nncf", "executorch")

STATIC = ["x86-static", "arm-static-u8s8f32-per-channel", "xnnpack", "cadence-hoist", "nncf-x86"]
FLOWS = [*STATIC, "x86-dynamic", "arm-dynamic-s8s8f32-per-tensor"]

released = cache(measured)


@pytest.mark.parametrize("flow", FLOWS)
def test_an_excluded_weight_stays_float_and_is_nobodys_defect(flow):
    name = "body:conv2d.weight"
    whole, without = released(flow), measured(flow, name)
    [row] = [row for row in without.quantizers if row.quantizer == name and row.point == Point.CONVERTED]
    assert (row.status, row.cause) == (QuantizerStatus.UNQUANTIZED, "")
    assert name in quantized(whole)


@pytest.mark.parametrize("flow", STATIC)
def test_every_other_quantizer_keeps_its_name_and_its_qparams_to_the_last_bit(flow):
    """`body:conv2d.weight` shares its observer with nothing; Cadence derives the bias from it, which goes along."""
    name = "body:conv2d.weight"
    whole, without = quantized(released(flow)), quantized(measured(flow, name))
    along = {"body:conv2d.bias"} & whole.keys()
    assert along == ({"body:conv2d.bias"} if flow == "cadence-hoist" else set())
    assert whole.keys() - without.keys() == {name} | along
    assert {key: qparams(row) for key, row in without.items()} == {
        key: qparams(row) for key, row in whole.items() if key in without
    }


@pytest.mark.parametrize("flow", FLOWS)
def test_an_excluded_activation_has_no_row_and_the_prepared_graph_is_exact(flow):
    name = "body:conv2d.input"
    without = measured(flow, name)
    assert name in quantized(released(flow))
    assert name not in {row.quantizer for row in without.quantizers}
    assert Cause.UNQUANTIZED not in {row.cause for row in without.quantizers}
    assert min(levels(without, Point.PREPARED)) > 100


@pytest.mark.parametrize("flow", [*FLOWS, "vulkan-8w"])
def test_with_all_quantizers_excluded_the_converted_graph_is_the_prepared_one(flow):
    without = measured(flow, "*")
    assert not quantized(without)
    assert levels(without, Point.CONVERTED) == levels(without, Point.PREPARED)


def test_a_weight_left_in_float_is_not_fused_when_vulkan_lowers():
    without = measured("vulkan-8w", "head:linear.weight")
    head, score = (row for row in without.outputs if row.point == Point.LOWERED)
    assert head.sqnr_db > 100 > score.sqnr_db
    assert set(quantized(without)) == {"score:linear.weight"}


def test_a_pattern_leaves_all_that_fit_it_in_float():
    whole, without = quantized(released("x86-static")), quantized(measured("x86-static", "*.weight", "head:*"))
    assert whole.keys() - without.keys() == {
        name for name in whole if name.endswith(".weight") or name.startswith("head:")
    }


@pytest.mark.parametrize("flow", ["x86-static", "nncf-x86"])
def test_a_name_that_no_quantizer_has_fails_the_case_at_prepare_and_tells_the_nearest(flow):
    result = measured(flow, "body:conv2d.wieght")
    assert {row.status for row in result.outputs if row.point == Point.FLOAT} == {Status.EXACT}
    failures = {(row.status, row.error) for row in result.outputs if row.point != Point.FLOAT}
    [(status, line)] = failures
    assert status == failed(Stage.PREPARE)
    count = len(quantized(released(flow)))
    assert line.startswith(f"no quantizer named 'body:conv2d.wieght' among {count}; did you mean body:conv2d.weight")


def test_nothing_of_an_exclusion_reaches_a_later_measurement():
    before = released("nncf-x86")
    measured("nncf-x86", "*")
    after = lab().measure("nncf-x86")
    assert (before.outputs, before.quantizers) == (after.outputs, after.quantizers)


def test_a_variants_fix_is_still_seen_at_work():
    repairs = (fix("gain", Stage.LOWER, gain_of(1.0)),)
    result = measured(lowering(gain=2.0), "body:conv2d.weight", repairs=repairs)
    assert {row.fix_state for row in result.outputs if row.point == Point.LOWERED} == {FixState.NEEDED}


def test_a_flow_that_converts_another_graph_than_it_prepared_is_found_out():
    from harness import flows

    plain = flows.load("x86-static")
    kept = []

    def prepare(graph):
        kept.append(plain.prepare(graph))
        return copy_graph(kept[-1])

    def calibrate(_graph, batches):
        plain.calibrate(kept[-1], batches)
        return kept[-1]

    result = measured(changed("x86-static", prepare=prepare, calibrate=calibrate), "head:linear.input")
    [row] = [row for row in result.outputs if row.point == Point.CONVERTED and row.output == "head"]
    assert row.status == failed(Stage.CONVERT)
    assert "head:linear.input was to stay in float and is quantized all the same" in row.error


def test_nncf_makes_the_released_call_where_nothing_is_excluded(monkeypatch):
    """Its quantizer is not even wrapped."""
    from nncf.experimental.torch.fx.quantization.quantizer import torch_ao_adapter
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    seen = []
    init = torch_ao_adapter.TorchAOQuantizerAdapter.__init__
    monkeypatch.setattr(
        torch_ao_adapter.TorchAOQuantizerAdapter,
        "__init__",
        lambda self, quantizer: (seen.append(type(quantizer)), init(self, quantizer))[1],
    )
    measured("nncf-x86")
    assert seen == [X86InductorQuantizer]
