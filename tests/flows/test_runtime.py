"""ExecuTorch's runtime in its own process: what it gives back, and what becomes of a program that takes it down."""

from __future__ import annotations

import copy
import hashlib
import os
import select
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from harness.fixes import cadence_branch_hoist
from harness.flows import cadence, runtime, xnnpack
from harness.measure.metrics import sqnr_db
from harness.measure.qdq import is_dequantize, is_quantize
from harness.records import Point
from tests.lab import lab, program
from tests.upstream import needs

needs("executorch")

torch.set_num_threads(1)


def edge_of(model: nn.Module, *inputs: torch.Tensor):
    """A float model in the edge dialect."""
    from executorch.exir import EdgeCompileConfig, to_edge

    config = EdgeCompileConfig(_check_ir_validity=False)
    return to_edge(torch.export.export(model.eval(), inputs), compile_config=config)


class Quantize(nn.Module):
    """To int8 codes. The kernel aborts for a least code that int8 has not, which no stage before it minds."""

    def __init__(self, quant_min: int) -> None:
        super().__init__()
        self.quant_min = quant_min

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.5, 0, self.quant_min, 127, torch.int8)


X = torch.tensor([[1.0, -2.0], [0.5, 100.0]])
CODES = torch.tensor([[2, -4], [1, 127]], dtype=torch.int8)


@pytest.fixture(scope="module")
def aborting():
    return runtime.make_program(edge_of(Quantize(-300), X))


@pytest.fixture(scope="module")
def quantizing():
    return runtime.make_program(edge_of(Quantize(-128), X))


class Scores(nn.Module):
    """Two linears, and an op that XNNPACK leaves to the portable kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.score = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        score = self.score(torch.relu(self.hidden(x)))
        return score, score.argmax(1)


def test_xnnpack_gives_what_the_converted_graph_gives_but_for_some_codes_that_are_a_step_off():
    """A step more or less in each of 255 codes, spread evenly, would be 10 log10(127.5^2 / 3) = 37.3 dB."""
    from executorch.devtools.backend_debug import get_delegation_info
    from executorch.runtime import Runtime

    flow = xnnpack.flow("xnnpack")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        model, inputs = Scores().eval(), (torch.randn(64, 16),)
        graph = flow.prepare(flow.export(model, inputs))
        flow.calibrate(graph, [inputs])
        converted = flow.convert(graph)
        expected = converted(*inputs)
    edge = xnnpack.delegated(xnnpack.export_again(converted, inputs))
    info = get_delegation_info(edge.exported_program().graph_module)
    program = runtime.make_program(edge)
    code = program.run.__self__.code
    # Outside are argmax, and what upstream counts as well: the picking of the delegate's result.
    assert (info.num_delegated_subgraphs, info.num_non_delegated_nodes) == (1, 2)
    assert program.counts == {
        "delegated_nodes": info.num_delegated_nodes,
        "undelegated_nodes": 1,
        "quantize_nodes": 0,
        "dequantize_nodes": 0,
        "program_bytes": len(code),
    }
    assert program.digest == hashlib.sha256(code).hexdigest()

    actual = program.run(*inputs)
    assert sqnr_db(reference=expected[0], actual=actual[0]) > 37.3
    assert torch.equal(actual[1], actual[0].argmax(1))
    here = Runtime.get().load_program(code).load_method("forward").execute(inputs)
    assert all(torch.equal(one, other) for one, other in zip(here, actual, strict=True))


def test_the_portable_kernels_show_what_the_branch_hoist_does_to_a_wide_slice_and_that_its_repair_helps():
    """docs/fixes.md has the same of the graph; every op of this one is exact, so the runtime's bits are the graph's."""
    ramp = torch.linspace(0, 1, 100)
    inputs = (torch.stack((2.7 * ramp - 1, 2.7 * ramp - 1, 100 * ramp)),)
    narrow, wide = cadence_branch_hoist._NARROW, cadence_branch_hoist._WIDE
    edge = cadence.core_edge(cadence_branch_hoist._branches((narrow, narrow, wide)), inputs)
    graph = cadence.lower(copy.deepcopy(edge))
    released = cadence.lower_to_portable(copy.deepcopy(edge))
    with cadence_branch_hoist.FIX.repair():
        repaired = cadence.lower_to_portable(copy.deepcopy(edge))
    # The flow lets nodes share their provenance; without that the program is the same.
    assert runtime.make_program(cadence._hoisted(copy.deepcopy(edge))).digest == released.digest
    for expected, actual in zip(graph(*inputs), released.run(*inputs), strict=True):
        assert torch.equal(expected, actual)
    levels = [sqnr_db(reference=inputs[0][2], actual=program.run(*inputs)[2]) for program in (released, repaired)]
    assert levels[0] < 1 < 40 < levels[1]
    nodes = list(graph.graph.nodes)
    assert released.counts["delegated_nodes"] == 0
    assert released.counts["quantize_nodes"] == sum(map(is_quantize, nodes)) == 4
    assert released.counts["dequantize_nodes"] == sum(map(is_dequantize, nodes))
    assert repaired.counts["quantize_nodes"] == 3
    assert released.digest != repaired.digest


class Several(nn.Module):
    """Results of several types and shapes."""

    def forward(self, x: torch.Tensor, i: torch.Tensor):
        return x.sum(), x.argmax(1), x > 0, (x.T + 1).unsqueeze(0), i * 2


def test_shapes_types_and_order_of_results_survive_and_inputs_may_lie_across_memory():
    x = torch.arange(6.0).reshape(3, 2).T - 2
    i = torch.tensor([2**40], dtype=torch.int64)
    assert not x.is_contiguous()
    actual = runtime.make_program(edge_of(Several(), x.contiguous(), i)).run(x, i)
    expected = Several()(x, i)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one, other)


def test_programs_share_a_process_and_each_is_loaded_again_when_it_is_to_run(quantizing):
    other = runtime.make_program(edge_of(nn.ReLU(), X))
    assert torch.equal(other.run(X)[0], X.relu())
    process = runtime._process()
    assert torch.equal(quantizing.run(X)[0], CODES)
    assert torch.equal(other.run(X)[0], X.relu())
    assert runtime._process() is process


def test_a_kernel_that_aborts_is_an_error_with_its_last_words_after_a_second_try_without_the_programs_before_it(
    aborting, quantizing, monkeypatch
):
    started = []

    class Counted(runtime.RuntimeProcess):
        def __init__(self) -> None:
            started.append(self)
            super().__init__()

    quantizing.run(X)
    monkeypatch.setattr(runtime, "RuntimeProcess", Counted)
    with pytest.raises(runtime.RuntimeDiedError, match=r"ended with SIGABRT in run: .*quant_min out of bound.* -300$"):
        aborting.run(X)
    assert len(started) == 1
    assert not started[0].alive
    assert torch.equal(quantizing.run(X)[0], CODES)


def test_a_case_whose_runtime_dies_is_a_failed_row_and_the_case_after_it_is_measured(aborting, quantizing):
    bench = lab()

    def lowered(name, run):
        flow = replace(program(lambda _graph, *_inputs: run(X)), name=name)
        return next(row for row in bench.measure(flow).outputs if row.point == Point.LOWERED)

    failed = lowered("aborts", aborting.run)
    assert failed.status == "failed:measure"
    assert failed.error.startswith("RuntimeDiedError: ExecuTorch's runtime ended with SIGABRT in run: [op_quantize.cpp")
    after = lowered("runs", quantizing.run)
    assert (after.status, after.error) == ("mismatch", "1 outputs instead of 2")


def test_an_error_of_a_kernel_is_told_with_what_the_runtime_logged_first_and_the_process_lives():
    program = runtime.make_program(edge_of(nn.Embedding(4, 3), torch.tensor([1, 2])))
    process = runtime._process()
    with pytest.raises(runtime.RuntimeFailedError, match=r"^run: .*0x12: \[op_embedding.*1\] 7 >= weight.size\(0\) 4$"):
        program.run(torch.tensor([1, 7]))
    assert runtime._process() is process
    assert program.run(torch.tensor([1, 2]))[0].shape == (2, 3)


def test_an_op_without_a_kernel_is_an_error_of_lowering_that_names_it():
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    with pytest.raises(runtime.RuntimeFailedError, match=r"^load: .*aten::special_bessel_j0.out"):
        runtime.make_program(edge_of(Inverse(), X))


def test_a_runtime_that_does_not_answer_is_ended_and_the_next_program_has_another(quantizing, monkeypatch):
    quantizing.run(X)
    stopped = runtime._process()
    os.kill(stopped.pid, signal.SIGSTOP)
    monkeypatch.setattr(runtime, "ANSWER_SECONDS", 0.2)
    with pytest.raises(runtime.RuntimeFailedError, match=r"gave no answer to run within 0\.2 s"):
        quantizing.run(X)
    assert not stopped.alive
    monkeypatch.undo()
    assert torch.equal(quantizing.run(X)[0], CODES)


def test_the_process_ends_with_the_one_that_made_it():
    script = """
import os, signal
from harness.flows.runtime import RuntimeProcess
process = RuntimeProcess()
print(process.pid, flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""
    maker = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    watched = os.pidfd_open(int(maker.stdout.readline()))
    try:
        maker.communicate("\n")
        assert maker.returncode == -signal.SIGKILL
        assert select.select([watched], [], [], 60)[0]
    finally:
        os.close(watched)
