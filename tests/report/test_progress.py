"""What is said while a run is measured."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness.report.progress import Shown
from tests.rows import case, run_of


@pytest.mark.parametrize(("flows", "said"), [(["a"], "gate: 1 case -> run"), (["a", "b"], "gate: 2 cases -> run")])
def test_a_run_begins_with_how_many_cases_there_are_and_where_they_go(flows: list[str], said: str) -> None:
    text = io.StringIO()
    Shown(Console(file=text), None).start(run_of(Path("run"), cases=[case(flow=flow) for flow in flows]))
    assert text.getvalue().splitlines() == [said]


def test_showing_progress_brings_no_measuring_process_with_it() -> None:
    code = "import sys, harness.report.progress; print('harness.runner' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
