"""A workspace with an accepted baseline and two stored runs, and what reports leave in it."""

from __future__ import annotations

from pathlib import Path

from harness import baseline as baselines
from harness.workspace import Workspace
from tests.program import make_workspace
from tests.rows import accepted, journal_entry, output_row, quantizer_row, repaired_row, run_of, workspace_at

REPORTS = {"verdict.json", "report.html", "report.md", "junit.xml", "sheets/outputs.csv", "sheets/quantizers.csv"}
STORED = {"run.json", "outputs.csv", "quantizers.csv"}
ROWS = (output_row(sqnr_db=30.0), repaired_row(sqnr_db=40.0), quantizer_row())


def reported(folder: Path) -> Workspace:
    """30 dB is accepted, `good` has them and `bad` has 24 dB."""
    workspace = workspace_at(make_workspace(folder))
    baselines.write(workspace.platform_baselines, accepted(*ROWS, accepted=[journal_entry()]))
    save(workspace, "good", 30.0)
    save(workspace, "bad", 24.0)
    return workspace


def save(workspace: Workspace, name: str, sqnr_db: float, day: int = 31) -> None:
    rows = (output_row(sqnr_db=sqnr_db), *ROWS[1:])
    run_of(workspace.reports / name, *rows, started=f"2026-01-{day:02d}T12:00:00+00:00").save()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def text(folder: Path, name: str = "report.html") -> str:
    return (folder / name).read_text(encoding="utf-8")
