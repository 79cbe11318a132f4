"""What is said while a run is measured."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness.parts import Progress
from harness.records import Stage
from harness.report.progress import Shown, showing_progress
from harness.runner import jobs_for
from tests.rows import case, run_of


@pytest.mark.parametrize(("flows", "said"), [(["a"], "gate: 1 case -> run"), (["a", "b"], "gate: 2 cases -> run")])
def test_a_run_begins_with_how_many_cases_there_are_and_where_they_go(flows: list[str], said: str) -> None:
    text = io.StringIO()
    Shown(Console(file=text), None).start(run_of(Path("run"), cases=[case(flow=flow) for flow in flows]))
    assert text.getvalue().splitlines() == [said]


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=200, color_system=None), text


@pytest.mark.parametrize("name", ["w[/x]", "w[red]", "[link=http:x]w", "w:smile:w"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_folder_is_named_as_it_is_and_never_as_markup(name: str, terminal: bool) -> None:
    console, text = _console(terminal=terminal)
    with showing_progress(console) as shown:
        shown.start(run_of(Path(name) / "run", cases=[case()]))
    assert f"gate: 1 case -> {name}/run" in text.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("stage", [None, Stage.EXPORT])
def test_a_name_moves_no_terminal_and_is_no_command_of_github(tmp_path: Path, terminal: bool, stage: Stage) -> None:
    """`\x1b[31m` turns a terminal red; GitHub obeys `::error::` at the beginning of a line and `##[error]` anywhere."""
    console, text = _console(terminal=terminal)
    named = case(model="ti\n::error::\x1b[31mny", flow="##[error]x")
    [job] = jobs_for(tmp_path, [(named,)], None, 0, tmp_path, tmp_path)
    with showing_progress(console) as shown:
        shown.expect(1, f"replay: {named}")
        shown.update(Progress(job, named, stage))
    assert "ti ::error::\\x1b[31mny" in text.getvalue()
    for command in ("\n::error", "\x1b[31m", "##["):
        assert command not in text.getvalue()


def test_showing_progress_brings_no_measuring_process_with_it() -> None:
    code = "import sys, harness.report.progress; print('harness.runner' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
