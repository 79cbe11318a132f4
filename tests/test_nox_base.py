"""`nox -s gate -- --base REF` on a tiny git repository: the real sessions, with the interpreter's own environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.program import TINY, make_workspace

NOX = shutil.which("nox")
pytestmark = pytest.mark.skipif(NOX is None, reason="needs nox: pip install nox")


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def nox(folder: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run this repository's noxfile in a folder, with the programs beside the current interpreter."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("NOX")}
    env |= {"SQNR_NOX_BIN": str(Path(sys.executable).parent), "COLUMNS": "300", **environ}
    command = [str(NOX), "-f", str(REPOSITORY / "noxfile.py"), "--nocolor", *args]
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


def commit_all(folder: Path) -> None:
    """Commit a folder; its path is the message, so that no other test's commit is the same object."""
    (folder / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", str(folder))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose only commit is a workspace with a tiny model."""
    folder = make_workspace(tmp_path / "mine", tiny=TINY)
    commit_all(folder)
    return folder


def no_worktree_is_left(folder: Path) -> bool:
    commit = git(folder, "rev-parse", "main")[:12]
    alone = len(git(folder, "worktree", "list").splitlines()) == 1
    return alone and not (REPOSITORY / ".nox" / "base" / commit).exists()


OUTLIER = TINY.replace("data *= GAIN", "data[0, 0] *= 40")
"""One weight 40 times as large: its row's step grows with it, and the rest of the row is rounded away."""


def test_a_drop_against_the_base_fails_and_is_named(repository):
    make_workspace(repository, tiny=OUTLIER)
    found = nox(repository, "-s", "gate", "--", "--base", "main", "-j", "1")
    assert found.returncode == 1, found.stdout
    assert "uncommitted changes: they count as the head's" in found.stdout
    assert "changed tiny/small/seeded x86-static converted 2:linear.weight" in found.stdout
    assert "regressed tiny/small/seeded x86-static converted logits: SQNR" in found.stdout
    assert no_worktree_is_left(repository)
    assert len(list((repository / "reports").glob("*/run.json"))) == 1, "only the head is a run of this workspace"
    assert len(list((repository / "reports" / "base").glob("*/run.json"))) == 1


def test_an_unchanged_model_passes_and_needs_no_stored_baseline(repository):
    (repository / "README").write_text("nothing that is measured\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "head")
    found = nox(repository, "-s", "gate", "--", "--base=HEAD~1", "-m", "tiny", "-j", "1")
    assert found.returncode == 0, found.stdout
    assert not (repository / "baselines").exists()
    runs = [*(repository / "reports").glob("*/outputs.csv"), *(repository / "reports").glob("base/*/outputs.csv")]
    assert len({run.read_bytes() for run in runs}) == 1
    assert len(runs) == 2


def test_the_worktree_is_removed_when_measuring_fails(repository):
    found = nox(repository, "-s", "gate", "--", "--base", "main", "-m", "nobody")
    assert (found.returncode, "no model named 'nobody'" in found.stdout) == (1, True), found.stdout
    assert no_worktree_is_left(repository)


def test_this_projects_base_is_measured_with_its_own_harness(tmp_path):
    """The base's metrics cap SQNR at 100 dB, the head's at 160: the control, which is exact, says which was used."""
    folder = make_workspace(tmp_path / "mine", tiny=TINY)
    settings = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text('[project]\nname = "sqnr-harness"\n' + settings)
    shutil.copytree(REPOSITORY / "harness", folder / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    records = folder / "harness" / "records.py"
    now = records.read_text()
    records.write_text(now.replace("SQNR_CAP_DB = 160.0", "SQNR_CAP_DB = 100.0"))
    commit_all(folder)
    records.write_text(now)
    found = nox(folder, "-s", "gate", "--", "--base", "main", "-j", "1")
    control = {}
    for name in ("base/*", "*"):
        (rows,) = (folder / "reports").glob(f"{name}/outputs.csv")
        control[name] = {row.split(",")[8] for row in rows.read_text().splitlines() if ",float,logits," in row}
    assert control == {"base/*": {"100.0"}, "*": {"160.0"}}, found.stdout


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("no-such-branch", "--base no-such-branch: no such commit in"),
        ("-rf", "--base"),
        ("main:models", "--base main:models: no such commit in"),
    ],
)
def test_an_unknown_base_is_one_line_and_measures_nothing(repository, ref, message):
    found = nox(repository, "-s", "gate", "--", f"--base={ref}")
    assert (found.returncode, message in found.stdout) == (1, True), found.stdout
    assert "Traceback" not in found.stdout
    assert not (repository / "reports").exists()


def test_a_folder_that_is_no_repository_is_one_line(tmp_path):
    found = nox(make_workspace(tmp_path, tiny=TINY), "-s", "gate", "--", "--base", "main")
    assert (found.returncode, "fatal: not a git repository" in found.stdout) == (1, True), found.stdout
    assert "Traceback" not in found.stdout


def test_a_base_from_before_there_was_a_workspace_is_one_line(tmp_path):
    """Its worktree lies inside another workspace, whose models must not be taken for it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-qm", str(folder), "--allow-empty")
    make_workspace(folder, tiny=TINY)
    found = nox(folder, "-s", "gate", "--", "--base", "main")
    assert (found.returncode, "has no pyproject.toml with [tool.sqnr]" in found.stdout) == (1, True), found.stdout
    assert no_worktree_is_left(folder)


def test_a_leftover_worktree_is_one_line_that_says_how_to_remove_it(repository):
    commit = git(repository, "rev-parse", "main")[:12]
    left = REPOSITORY / ".nox" / "base" / commit
    git(repository, "worktree", "add", "--detach", str(left), "main")
    try:
        found = nox(repository, "-s", "gate", "--", "--base", "main")
        assert (found.returncode, f"git worktree remove --force {left}" in found.stdout) == (1, True), found.stdout
        assert left.exists(), "it may be at work for somebody else"
    finally:
        git(repository, "worktree", "remove", "--force", str(left))


def test_sessions_work_in_the_folder_nox_was_called_in(repository):
    found = nox(repository, "-s", "gate", "--", "-m", "nobody")
    assert "no model named 'nobody' (known: tiny)" in found.stdout, found.stdout


def test_an_existing_environment_without_python_is_one_line(repository):
    found = nox(repository, "-s", "gate", SQNR_NOX_BIN=str(repository))
    assert (found.returncode, "no python in that folder" in found.stdout) == (1, True), found.stdout
    assert "Traceback" not in found.stdout


def test_another_stack_in_an_existing_environment_is_said_or_has_its_own(repository, tmp_path):
    """Only constraints.txt differs; the base's own environment is a program here that tells where it was called."""
    (repository / "constraints.txt").write_text("torch==1.0\n")
    shared = nox(repository, "-s", "gate", "--", "--base", "main", "-m", "nobody")
    assert "the base declares another stack" in shared.stdout
    program = tmp_path / "own" / "sqnr"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "called with $* in $PWD"\nexit 3\n')
    program.chmod(0o755)
    own = nox(repository, "-s", "gate", "--", "--base", "main", "-m", "nobody", SQNR_NOX_BASE_BIN=str(program.parent))
    tree = REPOSITORY / ".nox" / "base" / git(repository, "rev-parse", "main")[:12]
    assert f"called with run -m nobody in {tree}" in own.stdout, own.stdout
    assert "the base declares another stack" not in own.stdout
