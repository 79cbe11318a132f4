"""Inductor's lowering: what its generated code calls is counted, and a lowering that silently stops fails the gate."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from harness import flows
from harness.flows import Program, compiled
from harness.measure.metrics import sqnr_db
from harness.records import OutputRow
from harness.table import parse
from tests.program import TINY, latest, make_workspace, sqnr, verdict

CODE = """
from torch._inductor.async_compile import AsyncCompile
cpp_fused_quantize = async_compile.cpp_pybinding(['const float*'], r'''extern_kernels.mm(not, a, call)''')
def call(args):
    cpp_fused_quantize(arg0_1, buf0)
    packed = torch.ops.onednn.qconv_prepack.default(weight)
    buf1 = torch.ops.onednn.qconv_pointwise.tensor(buf0, scale)
    buf2 = torch.ops.onednn.qconv2d_pointwise.binary_tensor(buf1, scale)
    buf3 = torch.ops.onednn.qlinear_pointwise.default(buf2, scale)
    buf4 = extern_kernels.convolution(buf3, weight)
    extern_kernels.addmm(bias, buf4, weight, out=buf5)
    buf6 = torch.ops.mkl._mkl_linear.default(buf5, weight)
    extern_kernels.bmm(buf6, buf6, out=buf7)
    return (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(buf7),)
"""


def test_kernels_are_counted_in_what_is_called():
    """Two int8 convolutions, one int8 linear, one float convolution; addmm, MKL, bmm and attention are float."""
    assert compiled.kernels(CODE) == {"int8_convs": 2, "int8_linears": 1, "float_convs": 1, "float_linears": 4}


def test_programs_are_told_apart_by_their_code_and_not_by_addresses_in_its_comments():
    digest = compiled._digest
    assert digest("a = None  # 7f7174afc9b0") == digest("# AOT ID: 1\na = None  # 7f7174afcb40")
    assert digest("a = None") != digest("a = 1")


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.linear = nn.Conv2d(4, 8, 3, bias=False), nn.Linear(128, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.conv(x).flatten(1))


@pytest.fixture(scope="module")
def static() -> tuple[nn.Module, Program]:
    """The converted graph of x86-static and what is compiled from it, for two inputs of 4 x 6 x 6 in -1 to 1."""
    flow = flows.load("x86-static")
    seen = 2 * torch.rand((2, 4, 6, 6), generator=torch.Generator().manual_seed(0)) - 1
    with torch.no_grad():
        prepared = flow.prepare(flow.export(Layers().eval(), (seen,)))
        flow.calibrate(prepared, [(seen,)])
        converted = flow.convert(prepared)
        return converted, flow.lower(flow.edge(converted, (seen,)))


def test_a_convolution_and_a_linear_without_bias_become_int8_kernels(static):
    _, program = static
    kinds = ("int8_convs", "int8_linears", "float_convs", "float_linears", "dequantize_nodes")
    assert [program.counts[kind] for kind in kinds] == [1, 1, 0, 0, 0]


def test_kernels_agree_with_the_converted_graph_where_no_sum_saturates(static):
    """Values below -0.5 of -1 to 1 have codes below 64: with weights of 127, a pair of products is below 2^15."""
    converted, program = static
    x = torch.rand((2, 4, 6, 6), generator=torch.Generator().manual_seed(1)) / 2 - 1
    assert sqnr_db(reference=converted(x).detach(), actual=program.run(x)) > 40


def test_a_program_is_never_compiled_again(static):
    """Without frozen weights torch would compile float kernels, which agree far better than int8 ones do."""
    _, program = static
    with pytest.raises(RuntimeError, match="recompil"):
        program.run(torch.zeros(3, 4, 6, 6))


def test_a_program_made_beside_another_leaves_that_one_running(static):
    _, program = static
    model, x = Layers().eval(), torch.ones(2, 4, 6, 6)
    before = program.run(x)
    with torch.no_grad():
        beside = compiled.lower_beside((model, (x,)))
    assert (beside.counts["float_convs"], beside.counts["int8_convs"]) == (1, 0)
    assert sqnr_db(reference=model(x).detach(), actual=beside.run(x)) > 100
    assert torch.equal(program.run(x), before)


def test_what_the_environment_says_of_inductor_changes_no_count(static):
    """With its C++ wrapper, kernels are called in C++ where none is counted."""
    from torch._inductor import config

    converted, program = static
    with config.patch({"cpp_wrapper": True, "max_autotune": True}):
        again = compiled.lower_beside((copy.deepcopy(converted), (torch.zeros(2, 4, 6, 6),)))
    assert (again.counts, again.digest) == (program.counts, program.digest)


def test_where_nothing_is_compiled_that_is_said(static):
    converted, _ = static
    with torch._dynamo.config.patch(disable=True), pytest.raises(RuntimeError, match="Inductor compiled nothing"):
        compiled.lower_beside((converted, (torch.zeros(2, 4, 6, 6),)))


STOPS = """

if Path(__file__).with_name("stops").exists():
    from torchao.quantization.pt2e.inductor_passes import x86
    x86._register_quantization_weight_pack_pass = lambda: None
"""


def outputs(folder: Path) -> list[OutputRow]:
    return [row for row in parse(latest(folder) / "outputs.csv", OutputRow) if row.point == "lowered"]


def test_a_lowering_that_silently_stops_fails_the_gate(tmp_path):
    """Missing, accepted, ok; without torchao's patterns both linears stay float, and dB cannot tell; accepted, ok."""
    settings = '[tool.sqnr.suites.gate]\nsize = "small"\nflows = ["x86-static"]\nlowered = ["*"]\n'
    folder = make_workspace(tmp_path, settings, tiny="from pathlib import Path\n" + TINY + STOPS)
    gate, accept = ("gate", "-j", "1"), ("accept", "--noise-runs", "0", "--because")
    assert sqnr(folder, *gate).returncode == 4
    [before] = outputs(folder)
    assert (before.int8_linears, before.float_linears) == (2, 0)
    assert sqnr(folder, *accept, "the first").returncode == 0

    (folder / "models" / "stops").touch()
    broken = sqnr(folder, *gate)
    assert broken.returncode == 1, broken.stderr
    [after] = outputs(folder)
    assert (after.int8_linears, after.float_linears) == (0, 2)
    assert after.sqnr_db > before.sqnr_db - 0.5
    [row] = verdict(folder)["verdicts"]
    assert (row["outcome"], row["point"]) == ("changed", "lowered")
    assert {"field": "int8_linears", "old": 2, "new": 0} in [
        {key: item[key] for key in ("field", "old", "new")} for item in row["findings"]
    ]

    assert sqnr(folder, *accept, "float kernels are wanted").returncode == 0
    assert sqnr(folder, *gate).returncode == 0
