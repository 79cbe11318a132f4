"""The verb `accept`: checks, noise floor, old -> new, write."""

from __future__ import annotations

from harness import baseline as baselines
from harness.accept import Request, check_acceptable, propose, write
from harness.baseline import Baseline
from harness.errors import NoBaselineError, UsageError
from harness.execute import Options
from harness.noise_floor import Sources, noise_floor
from harness.report.progress import showing_progress
from harness.report.terminal import console, print_proposal
from harness.store import Run
from harness.workspace import Workspace


def accept(
    workspace: Workspace, run: Run, request: Request, options: Options, *, dry_run: bool, noise_runs: int
) -> None:
    """Accept rows of a run. Raises `AcceptRefusedError` or `UsageError` before anything is measured or written."""
    if options.isa:
        raise UsageError(f"--isa {options.isa}: noise floors are measured as baselines are, with the pins alone")
    workspace.check_writable()
    present = _present(workspace)
    check_acceptable(run, request, present)
    proposal = propose(run, request, present, None)
    out = console()
    print_proposal(out, proposal)
    if dry_run:
        return
    noise = None
    if noise_runs:
        with showing_progress() as shown:
            count = len(Sources(run).of_cases(proposal.cases)) * noise_runs
            shown.expect(count, f"noise floor: {noise_runs} jittered runs")
            noise = noise_floor(workspace, run, proposal.cases, options, shown.update, noise_runs)
    held = baselines.lock(workspace.platform_baselines)
    try:
        proposal = propose(run, request, _present(workspace), noise)
        write(workspace, run, request, proposal)
    finally:
        held.release()
    out.print(f"accepted into {workspace.platform_baselines}: {request.because}", soft_wrap=True, markup=False)


def _present(workspace: Workspace) -> Baseline:
    try:
        return baselines.read(workspace.platform_baselines)
    except NoBaselineError:
        return Baseline()
