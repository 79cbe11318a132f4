"""Variants and lowered graphs of real upstream stages, judged by the real verb: what each mishap comes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch.fx import GraphModule

from harness import baseline as baselines
from harness import flows
from harness.accept import Request, check_acceptable, propose, write
from harness.baseline import Baseline
from harness.errors import AcceptRefusedError, ExitCode
from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError
from harness.flows import Flow
from harness.judge import judge
from harness.pipeline import CaseResult
from harness.records import Stage
from harness.verdicts import Finding, Outcome
from harness.workspace import Workspace, find_workspace
from tests.lab import changed, fix, gain_of, lab, lowering, nothing, stored_run
from tests.rows import by_key

FLOW = "x86-static"
RELEASED = flows.load(FLOW)


@contextmanager
def _moved() -> Iterator[None]:
    raise SeamMovedError("upstream has no kernel")
    yield


def _right() -> Reading:
    return Reading(2.0, 2.0, right=True)


LOWERING = lowering(gain=1.1)
"""The defect: the lowered graph multiplies its first output by 1.1, and a tenth of the signal as noise is 20 dB."""
MENDED = fix("gain", Stage.LOWER, gain_of(1.0))


def both(flow: Flow, one: Fix) -> list[CaseResult]:
    """Released and repaired."""
    bench = lab()
    return [bench.measure(flow), bench.measure(flow, (one,))]


@pytest.fixture
def workspace(workspace_folder: Path) -> Workspace:
    return find_workspace(workspace_folder)


@pytest.fixture(scope="module")
def lowered() -> list[CaseResult]:
    return both(LOWERING, MENDED)


@pytest.fixture
def accepted(workspace: Workspace, lowered: list[CaseResult]) -> Workspace:
    """A workspace whose baseline is the lowering as released and as repaired."""
    run = stored_run(workspace.reports, lowered)
    request = Request(because="a test says so")
    check_acceptable(run, request, Baseline())
    write(workspace, run, request, propose(run, request, Baseline(), None))
    return workspace


def verdict_on(workspace: Workspace, results: list[CaseResult]) -> ExitCode:
    return judge(workspace, stored_run(workspace.reports, results)).exit_code


def head(result: CaseResult) -> float | None:
    """SQNR of the first output of the lowered graph, dB."""
    return next(row.sqnr_db for row in result.outputs if (row.point, row.output) == ("lowered", "head"))


def test_the_repair_brings_the_lowered_output_back_to_what_it_was_converted(accepted, lowered):
    released, repaired = lowered
    converted = next(row.sqnr_db for row in repaired.outputs if (row.point, row.output) == ("converted", "head"))
    assert head(released) == pytest.approx(20, abs=1)
    assert head(repaired) == converted > 25
    assert verdict_on(accepted, both(LOWERING, MENDED)) is ExitCode.OK


def test_a_lowering_that_gets_worse_fails_though_the_converted_graph_is_as_accepted(accepted):
    released, repaired = both(lowering(gain=1.2), MENDED)
    assert head(released) == pytest.approx(14, abs=1)  # a fifth of the signal
    assert verdict_on(accepted, [released, repaired]) is ExitCode.REGRESSED


def failures(workspace: Workspace, results: list[CaseResult]) -> dict[str, set[str]]:
    """Errors of the failed rows, by variant."""
    found: dict[str, set[str]] = {}
    for verdict in judge(workspace, stored_run(workspace.reports, results)).verdicts:
        if verdict.outcome is Outcome.FAILED:
            assert verdict.point == "lowered"
            found.setdefault(verdict.case.variant, set()).add(verdict.error)
    return found


def test_a_lowering_that_raises_fails_its_own_rows_in_both_variants(accepted):
    def lower(program: GraphModule) -> GraphModule:
        raise RuntimeError("no such kernel")

    results = both(changed(FLOW, edge=LOWERING.edge, lower=lower), MENDED)
    error = {"RuntimeError: no such kernel"}
    assert failures(accepted, results) == {"released": error, "+gain": error}
    assert verdict_on(accepted, results[:1]) is ExitCode.INCOMPLETE


def test_a_repair_whose_place_moved_fails_the_variant_and_not_released_code(accepted):
    results = both(LOWERING, fix("gain", Stage.LOWER, _moved))
    assert failures(accepted, results) == {
        "+gain": {"RepairError: fix gain is unknown: SeamMovedError: upstream has no kernel"}
    }


@pytest.mark.parametrize(
    ("then", "gain", "state"),
    [
        (fix("gain", Stage.LOWER, nothing), 1.1, "inert"),
        (fix("gain", Stage.LOWER, gain_of(1.0), _right), 1.0, "upstreamed"),
    ],
    ids=["the repair does nothing any more", "upstream has released it"],
)
def test_a_fix_that_no_longer_does_what_it_did_is_a_change_of_its_state(accepted, then, gain, state):
    results = both(lowering(gain), then)
    changes = {
        finding
        for verdict in judge(accepted, stored_run(accepted.reports, results)).verdicts
        for finding in verdict.findings
        if verdict.outcome is Outcome.CHANGED
    }
    assert changes == {Finding("fix_state", "needed", state)}
    assert verdict_on(accepted, results) is ExitCode.REGRESSED


# A repair that trades a wrong quantizer for none

HALF_WAY = {"repaired": False}


@contextmanager
def _half_way() -> Iterator[None]:
    HALF_WAY["repaired"] = True
    try:
        yield
    finally:
        HALF_WAY["repaired"] = False


def _convert(graph: GraphModule) -> GraphModule:
    """As released; under the repair without the first quantizer."""
    converted = RELEASED.convert(graph)
    if HALF_WAY["repaired"]:
        node = next(node for node in converted.graph.nodes if "quantize_per_tensor" in str(node.target))
        for user in list(node.users):
            user.replace_all_uses_with(node.args[0])
        converted.graph.eliminate_dead_code()
        converted.recompile()
    return converted


def test_a_variant_that_leaves_an_edge_without_a_quantizer_can_neither_pass_nor_be_accepted(workspace):
    results = both(changed(FLOW, convert=_convert), fix("half-way", Stage.CONVERT, _half_way))
    lost = [row for result in results for row in result.quantizers if row.cause == "unquantized"]
    assert {row.variant for row in lost} == {"+half-way"}
    run = stored_run(workspace.reports, results)
    with pytest.raises(AcceptRefusedError, match=r"is unquantized .* this fails whatever the baseline says"):
        check_acceptable(run, Request(because="it is what it is"), Baseline())
    baselines.write(workspace.platform_baselines, Baseline(by_key(run.outputs), by_key(run.quantizers)))
    verdicts = judge(workspace, run).verdicts
    failed = {(verdict.case.variant, verdict.label) for verdict in verdicts if verdict.outcome is not Outcome.OK}
    assert failed == {("+half-way", f"converted {row.quantizer}") for row in lost}
    assert verdict_on(workspace, results) is ExitCode.REGRESSED
