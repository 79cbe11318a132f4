"""Further torchao defects: each is repaired at its seam, and shown by a generic measure that does not know it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from harness.adapter import Batch
from harness.fixes.ao_bn_eps_reset import FIX as EPS
from harness.fixes.ao_float8_zero_row import FIX as FLOAT8
from harness.fixes.ao_shared_conv_bn import FIX as SHARED
from harness.fixes.seams import SeamMovedError, replaced
from harness.records import Cause, Point, Status
from tests.lab import adapter, changed, lab, uncompiled

ROOT = Path(__file__).parents[2]
RELEASED = uncompiled("x86-static")
FILES = (
    *("ao_shared_conv_bn", "ao_bn_eps_reset", "ao_float8_zero_row"),
    *("arm_weight_granularity", "pre_grad_pass_chain"),
)


def by_output(result, point: Point):
    return {row.output: row for row in result.outputs if row.point == point}


# Literals lost on the way to train and back.


class Normed(nn.Module):
    def __init__(self, variance: float) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8, eps=0.1)
        nn.init.constant_(self.norm.running_var, variance)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


def train_and_back(graph: GraphModule) -> GraphModule:
    from torchao.quantization.pt2e import move_exported_model_to_eval, move_exported_model_to_train

    return RELEASED.prepare(move_exported_model_to_eval(move_exported_model_to_train(graph)))


def test_the_prepared_point_shows_a_lost_eps():
    """At a variance of 0.0229, eps 1e-5 for 0.1 makes outputs 2.317 times as large: noise of 1.317 x the signal."""
    factor = math.sqrt((0.0229 + 0.1) / (0.0229 + 1e-5))
    bench = lab(adapter(lambda: Normed(0.0229).eval().requires_grad_(False), ("y",)))
    flow = changed("x86-static", prepare=train_and_back)
    released = by_output(bench.measure(flow), Point.PREPARED)["y"]
    repaired = by_output(bench.measure(flow, (EPS,)), Point.PREPARED)["y"]
    assert released.sqnr_db == pytest.approx(-20 * math.log10(factor - 1), abs=0.01) == pytest.approx(-2.4, abs=0.05)
    assert released.cause == Cause.FOLDING
    assert repaired.sqnr_db > 130
    assert not repaired.cause


class ManyLiterals(nn.Module):
    """Two BatchNorms and two dropouts, used in another order than they are computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.BatchNorm2d(3, eps=0.1, momentum=0.03), nn.BatchNorm2d(3, eps=0.01, momentum=0.3)
        self.drop, self.drop_in_place = nn.Dropout(0.2), nn.Dropout(0.7, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a(x), self.b(x)
        return self.drop_in_place(b * 2) + self.drop(a)


def literals(graph: GraphModule) -> dict[str, tuple[object, ...]]:
    """Train flag, momentum, eps and p by the parameters or the op that a node reads."""
    ops = torch.ops.aten
    found: dict[str, tuple[object, ...]] = {}
    for node in graph.graph.nodes:
        if node.target is ops.batch_norm.default:
            found[str(node.args[1])] = node.args[5:8]
        elif node.target in (ops.dropout.default, ops.dropout_.default):
            found[str(node.target)] = (node.args[2], node.args[1])
    return found


def test_train_and_eval_change_the_flag_and_keep_every_literal():
    from torchao.quantization.pt2e import allow_exported_model_train_eval

    def moved() -> list[dict[str, tuple[object, ...]]]:
        graph = torch.export.export(ManyLiterals().eval(), (torch.ones(2, 3, 4, 4),)).module()
        allow_exported_model_train_eval(graph)
        seen = [literals(graph)]
        for mode in (graph.train, graph.eval):
            mode()
            seen.append(literals(graph))
        return seen

    with EPS.repair():
        before, train, back = moved()
    wanted = {
        "a_weight": (0.03, 0.1),
        "b_weight": (0.3, 0.01),
        "aten.dropout.default": (0.2,),
        "aten.dropout_.default": (0.7,),
    }
    assert before == back == {name: (False, *values) for name, values in wanted.items()}
    assert train == {name: (True, *values) for name, values in wanted.items()}
    _, _, lost = moved()
    assert lost == {name: (False, *((0.1, 1e-5) if len(values) == 2 else (0.5,))) for name, values in wanted.items()}


# A row of zeros in float8.


def pruned() -> nn.Module:
    """A linear layer with four outputs, the third one's weights all zero."""
    linear = nn.Linear(16, 4)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(4, 16, generator=torch.Generator().manual_seed(0)))
        linear.weight[2] = 0
    return linear.eval().requires_grad_(False)


def vectors(seed: int) -> Iterator[Batch]:
    # Another stream than the weights': inputs that equal a row would make its output too large.
    yield Batch((torch.randn(64, 16, generator=torch.Generator().manual_seed(seed + 1)),))


def float8_weights(graph: GraphModule) -> GraphModule:
    """Every linear weight through torchao's float8 tensor, one scale a row."""
    from torchao.quantization import PerRow
    from torchao.quantization.quantize_.workflows import Float8Tensor

    for name, weight in list(graph.named_parameters()):
        if weight.ndim == 2:
            stored = Float8Tensor.from_hp(weight.detach(), granularity=PerRow()).dequantize()
            owner, _, attribute = name.rpartition(".")
            setattr(graph.get_submodule(owner), attribute, nn.Parameter(stored, requires_grad=False))
    return graph


FLOAT8_FLOW = changed("x86-static", prepare=lambda graph: graph, calibrate=lambda *_: None, convert=float8_weights)


def test_a_non_finite_output_shows_a_zero_scale():
    bench = lab(adapter(pruned, ("y",), vectors))
    released = by_output(bench.measure(FLOAT8_FLOW), Point.CONVERTED)["y"]
    repaired = by_output(bench.measure(FLOAT8_FLOW, (FLOAT8,)), Point.CONVERTED)["y"]
    assert (released.status, released.sqnr_db) == (Status.NONFINITE_ACTUAL, None)
    assert released.cause == Cause.NONFINITE
    # Three bits of mantissa, a step of 2^-3 to 2^-4 of the value: rounding noise of 30 to 36 dB.
    assert (repaired.status, repaired.cause) == (Status.MEASURED, "")
    assert 28 < repaired.sqnr_db < 38


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_zero_row_comes_back_as_zeros_and_the_others_as_released(dtype):
    from torchao.quantization import PerRow
    from torchao.quantization.quantize_.workflows import Float8Tensor

    weight = pruned().weight.to(dtype)
    released = Float8Tensor.from_hp(weight, granularity=PerRow()).dequantize()
    with FLOAT8.repair():
        repaired = Float8Tensor.from_hp(weight, granularity=PerRow()).dequantize()
    assert released.isnan().sum() == 16
    assert torch.equal(repaired, released.nan_to_num(0))
    assert repaired.dtype == dtype


# Defects injected into a flow.


def test_an_annotated_edge_that_convert_leaves_in_float_is_a_row():
    def convert(graph: GraphModule) -> GraphModule:
        converted = RELEASED.convert(graph)
        head = next(node for node in converted.graph.nodes if "linear" in str(node.target))
        dequantize = head.args[0]
        head.replace_input_with(dequantize, dequantize.args[0].args[0])
        converted.graph.eliminate_dead_code()
        converted.recompile()
        return converted

    rows = lab().measure(changed("x86-static", convert=convert)).quantizers
    lost = [(row.quantizer, row.role, row.cause) for row in rows if row.status == "unquantized"]
    assert lost == [("head:linear.input", "activation", "unquantized")]


def test_a_flow_that_writes_into_the_weights_fails_with_its_cause():
    def write(graph: GraphModule) -> GraphModule:
        with torch.no_grad():
            next(iter(graph.parameters())).mul_(2)
        return RELEASED.prepare(graph)

    rows = by_output(lab().measure(replace(RELEASED, prepare=write)), Point.PREPARED).values()
    assert {(row.status, row.cause) for row in rows} == {("failed:prepare", Cause.MUTATED_WEIGHTS)}


# What holds for every fix of the corpus.


@pytest.mark.parametrize("fix", [SHARED, EPS, FLOAT8], ids=lambda fix: fix.name)
def test_a_repair_is_measured_right_and_undone_on_exit_and_after_an_exception(fix):
    seams = _seams(fix.name)
    before = [vars(owner)[name] for owner, name in seams]
    released = fix.probe()
    with fix.repair():
        repaired = fix.probe()
        assert all(vars(owner)[name] is not old for (owner, name), old in zip(seams, before, strict=True))
    assert (released.right, repaired.right) == (False, True)
    with pytest.raises(RuntimeError, match="boom"), fix.repair():
        raise RuntimeError("boom")
    assert all(vars(owner)[name] is old for (owner, name), old in zip(seams, before, strict=True))
    assert fix.probe() == released


def _seams(name: str) -> list[tuple[ModuleType, str]]:
    from torchao.quantization.pt2e import export_utils, utils
    from torchao.quantization.quantize_.workflows.float8 import float8_tensor

    return {
        "ao-shared-conv-bn": [(utils, f"fold_bn_weights_into_{layer}_node") for layer in ("conv", "linear")],
        "ao-bn-eps-reset": [(export_utils, f"_replace_{what}") for what in ("batchnorm", "dropout")],
        "ao-float8-zero-row": [(float8_tensor, "_choose_scale_float8")],
    }[name]


@pytest.mark.parametrize("fix", [SHARED, EPS], ids=lambda fix: fix.name)
def test_a_seam_with_other_arguments_is_refused(fix):
    owner, name = _seams(fix.name)[-1]
    with replaced(owner, name, lambda graph: graph), pytest.raises(SeamMovedError, match="takes"), fix.repair():
        pass


@pytest.mark.parametrize("module", FILES)
def test_a_fix_file_imports_no_upstream(module):
    code = f"import sys, harness.fixes.{module}; assert not {{'torch', 'torchao'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
