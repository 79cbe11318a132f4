"""A case that its plan leaves unlowered is measured as far as the converted graph, and owes no row after it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from harness import flows
from harness.census import gather
from harness.fixes import installed
from harness.parts import GroupResult
from harness.records import Stage
from harness.runner import jobs_for
from harness.store import Run
from harness.suite import Plan
from harness.worker import run_group
from tests.lab import program
from tests.program import TINY, make_workspace
from tests.rows import SIZES, case

PLAIN, COMPILED = case(), case(flow="x86-dynamic")
PLAN = Plan("mine", False, (PLAIN, COMPILED), (PLAIN, COMPILED), unlowered=frozenset({PLAIN}))
TINY_CASE = case(model="tiny", weights="seeded")


def jobs(folder: Path, *groups, **options):
    return jobs_for(folder, list(groups), None, 0, folder, folder, **options)


def test_a_job_is_told_of_its_own_cases(tmp_path: Path) -> None:
    other = case(model="vit")
    unlowered = frozenset({PLAIN, other})
    assert [job.unlowered for job in jobs(tmp_path, (PLAIN, COMPILED), (other,), unlowered=unlowered)] == [
        {PLAIN},
        {other},
    ]
    assert jobs(tmp_path, (PLAIN,))[0].unlowered == frozenset()


@pytest.mark.parametrize("unlowered", [True, False])
def test_the_measuring_process_lowers_what_it_is_not_told_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unlowered: bool
) -> None:
    flow = program()
    monkeypatch.setattr(flows, "load", lambda _name: flow)
    cases = frozenset({TINY_CASE}) if unlowered else frozenset()
    [job] = jobs(make_workspace(tmp_path, tiny=TINY), (TINY_CASE,), unlowered=cases)
    try:
        run_group(job)
    finally:
        logging.disable(logging.NOTSET)
    after = [] if unlowered else ["lowered"]
    records = [json.loads(line) for line in job.part.read_text().splitlines()]
    [outputs] = [record["outputs"] for record in records if "outputs" in record]
    assert [row["point"] for row in outputs] == ["float", "prepared", "converted", *after]


def test_a_process_that_was_lost_owes_a_row_at_each_point_its_plan_measures(tmp_path: Path) -> None:
    [job] = jobs(tmp_path, PLAN.cases, unlowered=PLAN.unlowered)
    run = Run(tmp_path, PLAN, 0, {}, "2026-01-31T12:00:00+00:00")
    gather(run, [GroupResult(job, last=(PLAIN, Stage.LOAD), broken="killed by signal 9")], SIZES)
    assert {(row.status, row.error) for row in run.outputs} == {("failed:load", "killed by signal 9")}
    assert [(row.flow, row.point) for row in run.outputs] == [
        *(("x86-static", point) for point in ("float", "prepared", "converted")),
        *(("x86-dynamic", point) for point in ("float", "prepared", "converted", "lowered")),
    ]


@pytest.mark.parametrize("name", flows.names())
def test_a_flow_without_its_lowering_is_the_same_flow_with_three_points(name: str) -> None:
    flow = flows.load(name)
    short = flow.unlowered()
    assert short.points == ("float", "prepared", "converted") == short.graph_points
    assert (short.name, short.package, short.export, short.prepare) == (
        flow.name, flow.package, flow.export, flow.prepare
    )  # fmt: skip
    assert flow.unlowered() == short.unlowered()
    # A fix of the lowering needs one; and only a graph, which has nodes, can be looked into.
    late = [fix for fix in installed() if fix.applies_to(name) and fix.stage in (Stage.EDGE, Stage.LOWER)]
    assert flow.lower is not None or not late
    assert ("lowered" in flow.graph_points) == (flow.lower is not None and not flow.programs)
