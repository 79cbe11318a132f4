"""One defect at a time in real upstream stages, judged by the real verb: the right exit code for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from harness import baseline as baselines
from harness import flows
from harness.accept import Request, propose, write
from harness.baseline import Baseline
from harness.errors import ExitCode
from harness.judge import judge
from harness.pipeline import CaseResult
from harness.store import Run
from harness.workspace import Workspace, find_workspace
from tests.lab import changed, lab, stored_run

FLOW = "x86-static"
RELEASED = flows.load(FLOW)


@pytest.fixture(scope="module")
def healthy() -> CaseResult:
    return lab().measure(FLOW)


@pytest.fixture
def accepted(workspace_folder: Path, healthy: CaseResult) -> Workspace:
    """A workspace whose baseline is the healthy case."""
    workspace = find_workspace(workspace_folder)
    accept(workspace, stored_run(workspace.reports, [healthy]))
    return workspace


def accept(workspace: Workspace, run: Run) -> None:
    request = Request(because="a test says so")
    present = Baseline()
    if any(workspace.platform_baselines.glob("*.csv")):
        present = baselines.read(workspace.platform_baselines)
    write(workspace, run, request, propose(run, request, present, None))


def verdict_on(workspace: Workspace, *results: CaseResult) -> ExitCode:
    return judge(workspace, stored_run(workspace.reports, results)).exit_code


def observers(graph: GraphModule, kind: str) -> list[torch.nn.Module]:
    return [module for module in graph.modules() if type(module).__name__ == kind]


def calibrated_with(defect: Callable[[GraphModule], None]):
    """The flow with a defect put into its calibrated graph, just before upstream's convert."""

    def convert(graph: GraphModule) -> GraphModule:
        defect(graph)
        return RELEASED.convert(graph)

    return changed(FLOW, convert=convert)


def test_nothing_changed_is_ok(accepted):
    assert verdict_on(accepted, lab().measure(FLOW)) is ExitCode.OK


def test_a_scale_of_one_observer_times_1_1_fails(accepted):
    def widen(graph: GraphModule) -> None:
        observer = observers(graph, "HistogramObserver")[1]
        original = observer.calculate_qparams
        observer.calculate_qparams = lambda: (original()[0] * 1.1, original()[1])

    assert verdict_on(accepted, lab().measure(calibrated_with(widen))) is ExitCode.REGRESSED


def test_a_zero_point_moved_by_one_fails(accepted):
    def shift(graph: GraphModule) -> None:
        observer = observers(graph, "HistogramObserver")[0]
        original = observer.calculate_qparams
        observer.calculate_qparams = lambda: (original()[0], original()[1] + 1)

    assert verdict_on(accepted, lab().measure(calibrated_with(shift))) is ExitCode.REGRESSED


def test_a_weight_quantized_along_the_wrong_channel_axis_fails(accepted):
    """The 8x8x3x3 weight quantized along its input channels: every shape still fits."""

    def convert(graph: GraphModule) -> GraphModule:
        converted = RELEASED.convert(graph)
        for node in converted.graph.nodes:
            if "dequantize_per_channel" in str(node.target) and "body" in str(next(iter(node.users)).args[2]):
                codes, scales, zeros, _, *rest = node.args
                node.args = (codes, scales, zeros, 1, *rest)
        converted.recompile()
        return converted

    result = lab().measure(changed(FLOW, convert=convert))
    assert any(row.axis == 1 for row in result.quantizers), "the defect must be in"
    assert verdict_on(accepted, result) is ExitCode.REGRESSED


def test_a_quantizer_taken_out_of_the_graph_fails(accepted):
    def convert(graph: GraphModule) -> GraphModule:
        converted = RELEASED.convert(graph)
        node = next(n for n in converted.graph.nodes if "quantize_per_tensor" in str(n.target))
        for user in list(node.users):
            user.replace_all_uses_with(node.args[0])
        converted.graph.eliminate_dead_code()
        converted.recompile()
        return converted

    assert verdict_on(accepted, lab().measure(changed(FLOW, convert=convert))) is ExitCode.REGRESSED


def test_a_nan_in_one_element_of_one_output_fails(accepted):
    def convert(graph: GraphModule) -> GraphModule:
        converted = RELEASED.convert(graph)
        output = next(node for node in converted.graph.nodes if node.op == "output")
        with converted.graph.inserting_before(output):
            poisoned = converted.graph.call_function(_poison, (output.args[0][0],))
        output.args = ((poisoned, *output.args[0][1:]),)
        converted.recompile()
        return converted

    result = lab().measure(changed(FLOW, convert=convert))
    statuses = {row.output: row.status for row in result.outputs if row.point == "converted"}
    assert statuses == {"head": "nonfinite_actual", "score": "measured"}
    assert verdict_on(accepted, result) is ExitCode.REGRESSED


def _poison(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value[0, 0] = float("nan")
    return value


def test_two_outputs_swapped_fail_though_every_number_is_there(accepted):
    """Both heads have their own shape here, so swapping them is a mismatch."""

    def convert(graph: GraphModule) -> GraphModule:
        converted = RELEASED.convert(graph)
        output = next(node for node in converted.graph.nodes if node.op == "output")
        output.args = (tuple(reversed(output.args[0])),)
        converted.recompile()
        return converted

    assert verdict_on(accepted, lab().measure(changed(FLOW, convert=convert))) is ExitCode.REGRESSED


def test_an_upstream_exception_is_incomplete(accepted):
    def convert(graph: GraphModule) -> GraphModule:
        raise RuntimeError("no")

    assert verdict_on(accepted, lab().measure(changed(FLOW, convert=convert))) is ExitCode.INCOMPLETE


def test_a_fp32_reference_that_moved_fails(accepted):
    """Scaling one head's weights by 1.001 leaves every SQNR as it is; the control sees it."""
    from tests.lab import adapter, two_heads

    def build() -> torch.nn.Module:
        model = two_heads()
        model.head.weight.mul_(1.001)
        return model

    assert verdict_on(accepted, lab(adapter(build)).measure(FLOW)) is ExitCode.REGRESSED


def test_a_deleted_baseline_row_is_stale(accepted, healthy):
    path = accepted.platform_baselines / "lab.outputs.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "converted,head" not in line))
    assert verdict_on(accepted, healthy) is ExitCode.STALE


def test_an_improvement_of_1_db_is_stale(accepted, healthy):
    """A baseline 1 dB lower than what is measured: better by more than the allowed 0.5."""
    path = accepted.platform_baselines / "lab.outputs.csv"
    head = next(row for row in healthy.outputs if (row.point, row.output) == ("converted", "head"))
    assert head.sqnr_db is not None
    text = path.read_text()
    assert text.count(repr(head.sqnr_db)) == 1
    path.write_text(text.replace(repr(head.sqnr_db), repr(head.sqnr_db - 1)))
    assert verdict_on(accepted, healthy) is ExitCode.STALE


def test_a_model_that_left_the_plan_is_incomplete(accepted, healthy):
    other = CaseResult(
        replace(healthy.case, model="other"),
        [replace(row, model="other") for row in healthy.outputs],
        [replace(row, model="other") for row in healthy.quantizers],
    )
    accept(accepted, stored_run(accepted.reports, [healthy, other]))
    assert verdict_on(accepted, healthy, other) is ExitCode.OK
    assert verdict_on(accepted, healthy) is ExitCode.INCOMPLETE


def test_regression_outranks_incomplete_and_stale(accepted, healthy):
    """One output gone, another worse by more than allowed: 1 before 4 before 3."""
    worse = [
        replace(row, sqnr_db=row.sqnr_db - 1) if (row.point, row.output) == ("converted", "head") else row
        for row in healthy.outputs
        if (row.point, row.output) != ("converted", "score")
    ]
    assert verdict_on(accepted, replace(healthy, outputs=worse)) is ExitCode.REGRESSED
