"""The stages on real upstream code: what is shared, what is isolated, and what becomes of a stage that fails."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from harness import flows
from harness.errors import AdapterError
from harness.graphs import copy_graph
from harness.records import Point, Stage, Status
from tests.lab import adapter, changed, fix, images, lab, lab_case, two_heads, uncompiled

ROOT = Path(__file__).parents[1]


def _by_point(result, point):
    return {row.output: row for row in result.outputs if row.point == point}


@pytest.mark.parametrize("flow", [*flows.ARM_FLOWS, "x86-static", "x86-dynamic"])
def test_every_flow_measures_every_output_at_every_point(flow):
    result = lab().measure(flow)
    assert [(row.point, row.output) for row in result.outputs] == [
        (point, output) for point in ("float", "prepared", "converted") for output in ("head", "score")
    ]
    assert all(row.sqnr_db > 100 for row in _by_point(result, Point.PREPARED).values())
    assert all(15 < row.sqnr_db < 60 for row in _by_point(result, Point.CONVERTED).values())


@pytest.mark.parametrize("name", ["x86-static", "arm-dynamic-s8s8f32-per-channel"])
def test_the_copies_do_not_change_what_upstream_computes(name):
    """The same stages by hand, on one graph and without a copy, give the same bits."""
    flow = flows.load(name)
    model, batches = two_heads(), [batch.inputs for batch in images(0)]
    with torch.no_grad():
        prepared = flow.prepare(flow.export(model, batches[0]))
        flow.calibrate(prepared, (batch.inputs for batch in images(100)))
        converted = flow.convert(prepared)
        outputs = [converted(*inputs)[0] for inputs in batches]
        signal = [model(*inputs)[0] for inputs in batches]
    largest = max(float((a - b).abs().max()) for a, b in zip(signal, outputs, strict=True))
    assert _by_point(lab().measure(name), Point.CONVERTED)["head"].max_abs_err == largest


def test_a_plain_deepcopy_would_break_dynamic_flows():
    """Why `copy_graph` exists; when this fails, upstream or torch no longer needs it."""
    flow = flows.load("arm-dynamic-s8s8f32-per-channel")
    prepared = flow.prepare(flow.export(two_heads(), next(images(0)).inputs))
    with pytest.raises(Exception, match="PortNodeMetaForQDQ"):
        flow.convert(copy.deepcopy(prepared))
    assert isinstance(flow.convert(copy_graph(prepared)), GraphModule)


def test_one_export_serves_all_flows():
    bench = lab()
    for name in ("x86-static", "x86-dynamic", "arm-static-u8s8f32-per-tensor"):
        bench.measure(name)
    assert [stage for _, stage in bench.stages].count(Stage.EXPORT) == 1


def test_a_fix_of_convert_shares_the_released_calibration():
    bench = lab()
    bench.measure("x86-static")
    bench.measure("x86-static", (fix("late", Stage.CONVERT),))
    stages = [stage for _, stage in bench.stages]
    assert (stages.count(Stage.CALIBRATE), stages.count(Stage.CONVERT)) == (1, 2 + 1)  # once while the fix is probed


def test_a_fix_of_prepare_calibrates_for_itself():
    bench = lab()
    bench.measure("x86-static")
    bench.measure("x86-static", (fix("early", Stage.PREPARE),))
    stages = [stage for _, stage in bench.stages]
    assert (stages.count(Stage.EXPORT), stages.count(Stage.CALIBRATE)) == (1, 2)


def test_a_repair_is_active_in_its_stage_only_and_undone_after_an_exception():
    active: list[bool] = []

    @contextmanager
    def repair() -> Iterator[None]:
        active.append(True)
        try:
            yield
        finally:
            active.pop()

    def explode(_graph: GraphModule) -> GraphModule:
        assert active == [True]
        raise RuntimeError("boom")

    bench = lab()
    result = bench.measure(changed("x86-static", convert=explode), (fix("mend", Stage.CONVERT, repair),))
    assert _by_point(result, Point.CONVERTED)["head"].status == "failed:convert"
    assert active == []


def test_released_rows_are_the_same_bits_after_a_repaired_variant_ran():
    @contextmanager
    def coarser() -> Iterator[None]:
        from torchao.quantization.pt2e.observer import HistogramObserver

        original = HistogramObserver.calculate_qparams
        HistogramObserver.calculate_qparams = lambda self: tuple(  # type: ignore[method-assign]
            value * 4 if value.is_floating_point() else value for value in original(self)
        )
        try:
            yield
        finally:
            HistogramObserver.calculate_qparams = original  # type: ignore[method-assign]

    before, bench = lab().measure("x86-static"), lab()
    repaired = bench.measure("x86-static", (fix("coarser", Stage.CONVERT, coarser),))
    after = bench.measure("x86-static")
    assert repaired.quantizers != after.quantizers
    assert (before.outputs, before.quantizers) == (after.outputs, after.quantizers)


@pytest.mark.parametrize("stage", [Stage.PREPARE, Stage.CALIBRATE, Stage.CONVERT])
def test_a_stage_that_raises_becomes_rows_and_the_next_flow_is_untouched(stage):
    def explode(*_: object) -> None:
        raise ValueError("upstream says no\nwith a second line")

    bench = lab()
    result = bench.measure(changed("x86-static", **{stage.value: explode}))
    failed = [row for row in result.outputs if row.status.startswith("failed")]
    assert {row.status for row in failed} == {f"failed:{stage}"}
    assert {row.point for row in failed} == ({"prepared", "converted"} if stage is Stage.PREPARE else {"converted"})
    assert failed[0].error == "ValueError: upstream says no"
    assert "with a second line" in result.log
    assert all(row.status == "measured" for row in _by_point(bench.measure("x86-dynamic"), "converted").values())


def test_a_flow_whose_package_is_missing_fails_in_prepare_and_names_it():
    result = lab().measure(changed("x86-static", package="no-such-package"))
    assert _by_point(result, Point.FLOAT)["head"].status == Status.EXACT
    row = _by_point(result, Point.PREPARED)["head"]
    assert row.status == "failed:prepare"
    assert row.error == ("flow x86-static needs no-such-package, which is not installed: pip install no-such-package")


def test_a_failed_stage_is_not_tried_again_for_the_next_point():
    calls = []

    def explode(_graph: GraphModule) -> GraphModule:
        calls.append(1)
        raise ValueError("no")

    lab().measure(changed("x86-static", prepare=explode))
    assert len(calls) == 1


def test_a_flow_that_writes_into_the_weights_it_was_handed_is_an_error_row():
    released = uncompiled("x86-static")

    def write(graph: GraphModule) -> GraphModule:
        with torch.no_grad():
            next(parameter for name, parameter in graph.named_parameters() if "head" in name).mul_(2)
        return released.prepare(graph)

    bench = lab()
    result = bench.measure(replace(released, prepare=write))
    row = _by_point(result, Point.PREPARED)["head"]
    assert row.status == "failed:prepare"
    assert "wrote into the float model's weights: head." in row.error
    assert _by_point(bench.measure("x86-dynamic"), Point.FLOAT)["head"].status == Status.EXACT


def test_the_prepared_point_exposes_a_folding_mistake():
    released = uncompiled("x86-static")

    def fold_wrongly(graph: GraphModule) -> GraphModule:
        prepared = released.prepare(graph)
        for name, buffer in prepared.named_parameters():
            if name == "stem.weight_bias":
                buffer.data = buffer.data * 1.01
        return prepared

    prepared = _by_point(lab().measure(replace(released, prepare=fold_wrongly)), Point.PREPARED)
    assert prepared["head"].sqnr_db < 100


def test_outputs_of_another_shape_or_number_are_a_mismatch():
    class Wrapped(torch.nn.Module):
        def __init__(self, graph, change):
            super().__init__()
            self.graph_module, self.change = graph, change

        def forward(self, x):
            return self.change(self.graph_module(x))

    bench = lab()
    fewer, _ = bench.subject.measure(Wrapped(two_heads(), lambda out: out[:1]), lab_case(), Point.CONVERTED)
    assert {(row.status, row.error) for row in fewer} == {("mismatch", "1 outputs instead of 2")}
    narrow, _ = bench.subject.measure(
        Wrapped(two_heads(), lambda out: (out[0][:, :3], out[1])), lab_case(), Point.CONVERTED
    )
    assert [row.status for row in narrow] == ["mismatch", "exact"]
    assert "(8, 3) instead of torch.float32 (8, 4)" in narrow[0].error


MEMORY = """
import sys
from pathlib import Path
import torch
from harness.adapter import Batch
from tests.lab import adapter, lab, lab_case

def batches(seed):
    for index in range(int(sys.argv[1])):
        yield Batch((torch.full((64, 16384), float(index)),))

bench = lab(adapter(lambda: torch.nn.ReLU().eval(), ("y",), batches))
bench.subject.measure(bench.subject.model, lab_case(), "float")
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_peak_memory_does_not_grow_with_the_number_of_batches():
    """4 MiB an output: 60 more batches would add 240 MiB if they were kept. Reference outputs are spilled instead.

    What the allocator holds on to differs by tens of MiB from run to run on a busy machine.
    """

    def peak(count: int) -> float:
        command = [sys.executable, "-c", MEMORY, str(count)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)

    assert peak(64) - peak(4) < 120


def test_batches_of_unequal_shape_are_refused_with_both_shapes():
    def growing(seed: int):
        for index, batch in enumerate(images(seed)):
            yield replace(batch, inputs=(batch.inputs[0][: 8 - index],))

    with pytest.raises(AdapterError, match=r"batch 1 has inputs float32 \[7, 3, 8, 8\].*\[8, 3, 8, 8\]"):
        lab(adapter(batches=growing))


def test_jitter_moves_inputs_by_a_millionth_and_is_repeatable():
    def inputs(jitter):
        return lab(jitter=jitter).subject.inputs[0]

    plain, first, again, second = inputs(None), inputs(1), inputs(1), inputs(2)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    relative = ((first - plain) / plain).double()
    assert 0.5e-6 < float(relative.std()) < 2e-6
