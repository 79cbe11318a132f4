"""What `sqnr replay` does."""

from __future__ import annotations

from pathlib import Path

from harness import bundle, replay
from harness.errors import ExitCode, UsageError
from harness.report import replay_text
from harness.report.deltas import shortened
from harness.report.progress import showing_progress
from harness.report.terminal import console, print_line
from harness.report.text import for_programs
from harness.runner import Workers
from harness.workspace import Workspace


def replay_bundle(
    workspace: Workspace, folder: Path, checkpoint: Path | None, timeout: float, *, minimal: bool, as_json: bool
) -> ExitCode:
    """Measure the row of a bundle again and say whether it is the same; with `minimal`, run its minimised graph too.

    That is another matter than the rest: a graph is loaded from the folder, and loading one can run code.
    """
    found = bundle.read(folder)
    if workspace.models.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"{workspace.models}: the adapters lie in the bundle itself; replay it from a workspace of yours"
        )
    held = (folder / bundle.MINIMAL).is_dir()
    if minimal and not held:
        raise UsageError(f"--minimal: {folder} holds no {bundle.MINIMAL}/; `sqnr locate --minimise` makes one")
    replay.check(workspace, found.record, checkpoint)
    with showing_progress() as shown:
        shown.expect(1, f"replay: {shortened(str(found.row.case))}")
        now = replay.measure(workspace, found.record, checkpoint, timeout, shown.update)
    replayed = replay.compare(found, now, _minimal(folder, timeout) if minimal else ())
    if as_json:
        print(for_programs(replay_text.as_json(replayed)), end="")
    else:
        for line in replay_text.lines(replayed):
            print_line(console(), line)
        if held and not minimal:
            print_line(console(), f"{bundle.MINIMAL}/ was not loaded: --minimal runs it, where you trust the bundle")
    return ExitCode.OK if replayed.reproduced else ExitCode.REGRESSED


def _minimal(folder: Path, timeout: float) -> list[str]:
    """What differs in a bundle's minimised graph, as a process pinned like the rest finds it."""
    with Workers(1, timeout) as workers:
        found = workers.call(_run_minimal, folder.resolve())
    return [found] if isinstance(found, str) else found


def _run_minimal(folder: Path) -> list[str]:
    import torch

    from harness.locate import minimal

    torch.set_num_threads(1)
    return minimal.replay(folder)
