"""`nox -s report` where the history cannot be rebuilt: the report is, and the session fails all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program import make_workspace
from tests.rows import output_row, run_of, workspace_at
from tests.test_nox_base import NOX, nox

pytestmark = pytest.mark.skipif(NOX is None, reason="needs nox: pip install nox")


@pytest.mark.parametrize("damaged", [False, True])
def test_the_report_is_rebuilt_whatever_the_history_is_like(tmp_path: Path, damaged: bool) -> None:
    workspace = workspace_at(make_workspace(tmp_path))
    run_of(workspace.reports / "a-run", output_row()).save()
    if damaged:
        (workspace.reports / "history.parquet").write_text("damaged")
    found = nox(tmp_path, "-s", "report")
    assert (found.returncode == 1) == damaged, found.stdout
    assert ("history.parquet: cannot be read as parquet" in found.stdout) == damaged
    page = (workspace.reports / "a-run" / "report.html").read_text(encoding="utf-8")
    assert ('id="history"' in page) == (not damaged)
