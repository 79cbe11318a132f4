"""The verb `locate`: which cases to look into, a process for each, and what is written and said of them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from harness import baseline, located
from harness.errors import ExitCode, NoBaselineError, NothingMeasuredError, UsageError
from harness.execute import Options, measuring_processes
from harness.files import write_atomically
from harness.judge import Judgement, judge_or_none
from harness.locate.job import Answer, LocateJob, locate
from harness.located import Located
from harness.records import FAILED, RELEASED, Case, Point
from harness.report import phrases
from harness.report.located_terminal import print_located
from harness.report.terminal import console
from harness.report.text import for_programs, spoken
from harness.store import Run, find_run
from harness.suite import Selection, make_plan, resolve_weights
from harness.verdicts import FAILING
from harness.workspace import Workspace

_QUANTIZED = (Point.CONVERTED, Point.LOWERED)
PAGE = "located.html"
Rows = dict[tuple[Case, str], tuple[str, ...]]
"""(case, point) -> outputs to look into; an empty point is the flow's last one, no output the one that lost most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How to look: the options of the verb beside those that choose cases."""

    point: str | None = None
    outputs: tuple[str, ...] = ()
    against: str | None = None
    sensitivity: bool = False
    minimise: bool = False
    folder: Path | None = None


@dataclass(slots=True)
class Outcomes:
    """Records that were written, and a line for each case that could not be looked into."""

    records: list[Located]
    errors: list[str]
    folder: Path
    notes: list[str] = field(default_factory=list)
    misused: int = 0
    """How many of the errors are the request's own."""

    @property
    def exit_code(self) -> ExitCode:
        """0; 4 where a case could not be looked into, or 2 where that is the request's fault for all of them."""
        if self.errors and self.misused == len(self.errors) and not self.records:
            return ExitCode.USAGE
        return ExitCode.INCOMPLETE if self.errors else ExitCode.OK


def look(
    workspace: Workspace,
    run: Run | None,
    judgement: Judgement | None,
    selection: Selection,
    asked: Asked,
    options: Options,
    on_record: Callable[[Located], None],
) -> Outcomes:
    """Look into the failing rows of a judged run, or of the cases of one, or into a selection without a run.

    Raises `UsageError` for a selection that names nothing, `NothingMeasuredError` if nothing is left to look into.
    """
    folder = asked.folder or (run.folder if run is not None else workspace.reports) / located.FOLDER
    _check_writable(folder)
    with (
        tempfile.TemporaryDirectory(prefix="sqnr-locate-", ignore_cleanup_errors=True) as spill,
        measuring_processes(options) as workers,
    ):
        sizes = workers.sizes(workspace)
        chosen, source = resolve_weights(selection, sizes)
        if run is None or judgement is None:
            plan = make_plan(chosen, workspace.settings, sizes)
            variants = selection.variants or (RELEASED,)
            rows: Rows = {(case, ""): () for case in plan.cases if case.variant in variants}
            failed: list[str] = []
        else:
            (rows, failed), source = _rows_of(run, judgement, selection, asked.point or ""), run.weights_source
        accepted = _accepted(workspace)
        jobs = [
            _with_baseline(
                accepted,
                LocateJob(
                    workspace.start,
                    case,
                    source or case.weights,
                    run.seed if run is not None else workspace.settings.seed,
                    folder,
                    Path(spill),
                    Point(asked.point or point) if asked.point or point else None,
                    asked.outputs or outputs,
                    asked.against,
                    excluded=run.excluded if run is not None else (),
                    sensitivity=asked.sensitivity,
                    minimise=asked.minimise,
                ),
            )
            for (case, point), outputs in sorted(rows.items())
        ]
        found = Outcomes([], failed, folder)
        for job, answer in workers.each(locate, jobs):
            _take(job, answer, found, on_record)
    if run is not None:
        found.notes += _moved_since(run, found.records)
    return found


def _check_writable(folder: Path) -> None:
    """Before anything is measured, not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder}: cannot be written; name another folder with -o")


def _moved_since(run: Run, records: list[Located]) -> list[str]:
    """A line for each record whose output is not what the stored run measured."""
    stored = {row.key: row.sqnr_db for row in run.outputs}
    lines = []
    for one in records:
        key = (*astuple(one.case), one.point, one.output)
        if key in stored and stored[key] != one.sqnr_db:
            then, now = (phrases.number("sqnr_db", value) for value in (stored[key], one.sqnr_db))
            lines.append(
                f"{one.case} {one.point} {one.output} is {now} now, and was {then} in run {run.name}: model, weights "
                "or stack are others since, and the present ones were looked into"
            )
    return lines


def _take(job: LocateJob, answer: Answer | str, found: Outcomes, on_record: Callable[[Located], None]) -> None:
    """Note what a process left: its records are read from their files, whatever became of it later."""
    if isinstance(answer, str):
        answer = Answer(error=answer)
    for stem in answer.stems:
        record = located.read_one(job.folder / f"{stem}.json")
        found.records.append(record)
        on_record(record)
    found.notes += answer.notes
    log = job.folder / f"{located.file_stem(job.case, job.point or '', 'error')}.log"
    log.unlink(missing_ok=True)  # of an earlier call
    if answer.error:
        found.misused += answer.usage
        where = ""
        if answer.log:
            write_atomically(log, answer.log)
            where = f" (log: {log})"
        found.errors.append(f"{job.case}: {answer.error}{where}")


def _rows_of(run: Run, judgement: Judgement, selection: Selection, point: str) -> tuple[Rows, list[str]]:
    """The failing outputs of a run, those of a selection and a point, and a line for each graph that was not measured.

    Where a selection names cases and none of theirs fails, its cases.
    """
    cases = [case for case in run.plan.cases if selection.fits(case)]
    if not cases:
        raise NothingMeasuredError(f"run {run.name} has no case that fits -m, -f, --variant, --size and --weights")
    failing: dict[tuple[Case, str], set[str]] = defaultdict(set)
    for verdict in judgement.verdicts:
        bad = verdict.outcome in FAILING and not verdict.waived
        if bad and verdict.case in cases and verdict.point in ((point,) if point else _QUANTIZED):
            failing[verdict.case, verdict.point] |= {verdict.name} if verdict.kind == "output" else set()
    if not failing and not (selection.models or selection.flows or selection.variants):
        raise NothingMeasuredError(f"run {run.name}: no row fails; name the cases to look into, with -m and -f")
    if not failing:
        return {(case, ""): () for case in cases if case.variant in (selection.variants or (RELEASED,))}, []
    stages = {row.key[:6]: row.status for row in run.outputs if row.status.startswith(FAILED)}
    programs = {row.key[:6] for row in run.outputs if row.is_program}
    rows: Rows = {}
    failed = []
    for (case, where), outputs in failing.items():
        status = stages.get((*astuple(case), where))
        if (*astuple(case), where) in programs:
            failed.append(f"{case} {where}: a program has no graph to look into (--point converted has)")
        elif status is None:
            rows[case, where] = tuple(sorted(outputs))
        else:
            failed.append(f"{case} {where}: {status} in run {run.name}: there is no graph to look into (see its logs)")
    return rows, failed


def _with_baseline(accepted: baseline.Baseline | None, job: LocateJob) -> LocateJob:
    """The job with what was accepted of its point."""
    from harness import flows

    if accepted is None:
        return job
    point = job.point or flows.load(job.case.flow).graph_points[-1]
    return replace(
        job,
        quantizers=tuple(row for row in accepted.quantizers.values() if row.case == job.case and row.point == point),
        levels=tuple(row for row in accepted.outputs.values() if row.case == job.case and row.point == point),
    )


def _accepted(workspace: Workspace) -> baseline.Baseline | None:
    try:
        return baseline.read(workspace.platform_baselines)
    except NoBaselineError:
        return None


def locate_and_report(
    workspace: Workspace,
    run: str | None,
    selection: Selection,
    asked: Asked,
    options: Options,
    *,
    as_json: bool,
) -> ExitCode:
    """Look, print each record as it comes, and write the page; returns the exit code."""
    stored = find_run(workspace.reports, run) if run is not None else None
    judgement = judge_or_none(workspace, stored) if stored is not None else None
    out = console()

    def show(record: Located) -> None:
        if not as_json:
            print_located(out, record)

    found = look(workspace, stored, judgement, selection, asked, options, show)
    if as_json:
        print(for_programs(located.as_json(found.records)))
    for line in (*found.notes, *found.errors, *_pages(workspace, stored, judgement, found)):
        print(spoken(line), file=sys.stderr if as_json else sys.stdout)
    return found.exit_code


def _pages(workspace: Workspace, run: Run | None, judgement: Judgement | None, found: Outcomes) -> Iterable[str]:
    from harness.report.html import page
    from harness.verbs.reporting import known_history, write_reports

    if not found.records:
        return []
    if run is not None and judgement is not None and found.folder == run.folder / located.FOLDER:
        write_reports(run, judgement, run.folder, known_history(workspace))
        return [f"report: {run.folder / 'report.html'}"]
    write_atomically(found.folder / PAGE, page.render_located(found.records))
    return [f"report: {found.folder / PAGE}"]


def check(selection: Selection, run: str | None, asked: Asked) -> None:
    """Raises `UsageError` where nothing says what to look into."""
    if run is None and not (selection.models or selection.flows):
        raise UsageError("locate what? a RUN with failing rows, or a case: -m MODEL -f FLOW")
    if asked.point is not None and asked.point not in set(Point):
        raise UsageError(f"--point {asked.point}: one of {', '.join(Point)}")
