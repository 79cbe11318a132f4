"""The program as a list of sessions. `nox -l` shows them; everything after `--` goes to the command.

All of them work in one environment, `.nox/stack`, kept between calls: the stack is several gigabytes. `SQNR_NOX_BIN`,
the folder of programs of an environment that is there already, is used in its place and nothing is installed. Sessions
about a workspace work in the folder nox was called in, so `nox -f path/to/this/noxfile.py -s gate` measures another's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"  # sessions that require others
nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "venv"  # uv does not read pip's constraints or local wheels

HERE = Path(__file__).resolve().parent
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
EXISTING = os.environ.get("SQNR_NOX_BIN", "")
EXISTING_BASE = os.environ.get("SQNR_NOX_BASE_BIN", "")


def _bin(session: nox.Session) -> Path:
    """Folder of the shared environment's programs."""
    return Path(session.invoked_from, EXISTING) if EXISTING else HERE / ".nox" / "stack" / PROGRAMS


def _run(session: nox.Session, program: str, *args: str, folder: str | Path = HERE, **env: str) -> None:
    """Run a program of the shared environment, offline unless the caller's environment says otherwise."""
    found = _bin(session) / program  # a path of its own stays as it is
    env.setdefault("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "1"))
    with session.chdir(folder):
        # Interrupted, it has the time to keep what it measured.
        session.run(str(found), *args, env=env, external=True, interrupt_timeout=10, terminate_timeout=10)


@nox.session(reuse_venv=True, default=False, venv_backend="none" if EXISTING else None)
def stack(session: nox.Session) -> None:
    """Install the harness and the pinned stack; every other session needs this one."""
    if EXISTING:
        if not shutil.which("python", path=str(_bin(session))):
            session.error(f"SQNR_NOX_BIN={EXISTING}: no python in that folder")
        return
    pins = _constraints(_root(session))
    wanted = (HERE / "pyproject.toml").read_text() + pins.read_text()
    stamp = Path(session.virtualenv.location) / "installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        session.install("-c", str(pins), "-e", ".[lint,test,report,upstream]")
        stamp.write_text(wanted)


@nox.session(requires=["stack"], venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style and types, the latter against the installed stack."""
    _run(session, "ruff", "check", ".")
    _run(session, "ruff", "format", "--check", ".")
    _run(session, "mypy")


@nox.session(requires=["stack"], venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the test suite, without the benchmarks; `-- -m slow` runs what repeats it on more models."""
    _run(session, "pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def gate(session: nox.Session) -> None:
    """Measure the gate's suite and judge it by the baselines, or with `--base REF` by that commit's own numbers."""
    parser = argparse.ArgumentParser(prog="nox -s gate --", add_help=False, allow_abbrev=False)
    parser.add_argument("--base", metavar="REF")
    known, selection = parser.parse_known_args(session.posargs)
    if known.base is None:
        _run(session, "sqnr", "gate", *selection, folder=session.invoked_from)
    else:
        _compare_with(session, known.base, selection)


@nox.session(requires=["stack"], venv_backend="none")
def nightly(session: nox.Session) -> None:
    """Measure the five full models and judge them; writes report, history and replay bundles whatever the verdict."""
    command = ("sqnr", "gate", "--suite", "nightly", "--history", "--bundle")
    _run(session, *command, *session.posargs, folder=session.invoked_from)


@nox.session(requires=["stack"], venv_backend="none")
def report(session: nox.Session) -> None:
    """Rebuild the history of all runs and the report of the latest from their stored rows."""
    try:
        _run(session, "sqnr", "history", folder=session.invoked_from)
    except nox.command.CommandFailed:  # a damaged history, say: the report does without, and the session still fails
        _run(session, "sqnr", "report", *session.posargs, folder=session.invoked_from)
        raise
    _run(session, "sqnr", "report", *session.posargs, folder=session.invoked_from)


@nox.session(requires=["stack"], venv_backend="none")
def history(session: nox.Session) -> None:
    """Collect the stored runs into one table."""
    _run(session, "sqnr", "history", *session.posargs, folder=session.invoked_from)


@nox.session(requires=["stack"], venv_backend="none")
def train(session: nox.Session) -> None:
    """Retrain the small models: rewrites models/weights/*.safetensors."""
    _run(session, "sqnr", "train", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def bench(session: nox.Session) -> None:
    """Run the benchmarks, and keep their results in reports/bench/ for the history."""
    results = HERE / "reports" / "bench" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    kept = f"--benchmark-json={results}"
    try:
        _run(session, "pytest", "-m", "bench", "--benchmark-enable", kept, "tests/bench", *session.posargs)
    finally:
        if results.exists() and not results.stat().st_size:  # pytest opens it before it knows whether anything ran
            results.unlink()


def _compare_with(session: nox.Session, ref: str, selection: list[str]) -> None:
    """Measure REF in a worktree and then the working tree, on this machine, and judge the second by the first."""
    top, here = Path(_git(session, "rev-parse", "--show-toplevel")).resolve(), Path(session.invoked_from).resolve()
    if not (commit := _git(session, "rev-parse", "-q", "--verify", f"{ref}^{{commit}}", ends=False)):
        session.error(f"--base {ref}: no such commit in {top}; fetch it first (a shallow clone has only its own)")
    if _git(session, "status", "--porcelain"):
        session.log("the working tree has uncommitted changes: they count as the head's")
    reports = _reports(session, here, top, "the working tree")
    with _worktree(session, commit) as tree:
        session.log(f"base: {ref} ({commit[:12]})")
        there = tree / here.relative_to(top)
        its_reports = _reports(session, there, tree, f"{ref} ({commit[:12]})")
        measured = _measure(session, there, tree, _base_python(session, top, tree), its_reports, *selection)
        base = reports / "base" / measured.name  # apart from the head's: it is never the latest run
        base.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(measured, base)
    session.log("head: the working tree")
    python = _bin(session) / "python"
    head = _measure(session, here, top, python, reports, *selection)
    _harness(session, here, top, python, "compare", str(base), str(head), "--output", str(head))


@contextmanager
def _worktree(session: nox.Session, commit: str) -> Iterator[Path]:
    """A checkout of a commit in .nox/base/, removed whatever happens."""
    tree = HERE / ".nox" / "base" / commit[:12]
    if tree.exists():
        remedy = f"git worktree remove --force {tree}"
        session.error(f"{tree} is there: another --base is at work, or one was killed; after the latter, `{remedy}`")

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job, too, leaves no worktree
    try:
        _git(session, "worktree", "add", "--quiet", "--force", "--detach", str(tree), commit)
        yield tree
    finally:
        _git(session, "worktree", "remove", "--force", str(tree), ends=False)
        shutil.rmtree(tree, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _measure(session: nox.Session, folder: Path, root: Path, python: Path, reports: Path, *selection: str) -> Path:
    """Run `sqnr run` in a folder; the new run's folder."""
    before = set(reports.glob("*/run.json"))
    _harness(session, folder, root, python, "run", *selection)
    return max(set(reports.glob("*/run.json")) - before).parent


def _harness(session: nox.Session, folder: Path, root: Path, python: Path, *args: str) -> None:
    """Run the harness on a folder's workspace: the repository's own if it is this project, else the installed one."""
    if _pyproject(session, root).get("project", {}).get("name") == "sqnr-harness":
        _run(session, str(python), "-m", "harness", *args, folder=folder, PYTHONPATH=str(root))
    else:  # `-m harness` would take a folder of that name for it
        _run(session, str(python.with_name("sqnr")), *args, folder=folder)


def _base_python(session: nox.Session, top: Path, tree: Path) -> Path:
    """The base's Python: the shared environment's if it declares the same stack, else one of its own."""
    if EXISTING_BASE:
        return Path(session.invoked_from, EXISTING_BASE) / "python"
    wanted = _stack_of(session, tree)
    if wanted == _stack_of(session, top):
        return _bin(session) / "python"
    if EXISTING:
        session.warn(
            "the base declares another stack but is measured in SQNR_NOX_BIN too; SQNR_NOX_BASE_BIN is its own"
        )
        return _bin(session) / "python"
    home = HERE / ".nox" / "stack-base"
    python, stamp = home / PROGRAMS / "python", home / "installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        stamp.unlink(missing_ok=True)
        session.run(sys.executable, "-m", "venv", "--clear", str(home), external=True)
        harness = tree if (tree / "harness" / "__main__.py").exists() else HERE
        pins = str(_constraints(tree))
        _run(session, str(python), "-m", "pip", "install", "-c", pins, f"{harness}[report,upstream]")
        stamp.write_text(wanted)
    return python


def _stack_of(session: nox.Session, root: Path) -> str:
    """What a repository says of its stack: its constraints, and its declared dependencies."""
    project = _pyproject(session, root).get("project", {})
    declared = [project.get(key) for key in ("requires-python", "dependencies", "optional-dependencies")]
    return _constraints(root).read_text() + repr(declared)


def _constraints(root: Path) -> Path:
    """A repository's own constraints.txt if it has one, else the one the baselines here were measured with."""
    own = root / "constraints.txt"
    return own if own.is_file() else HERE / "constraints.txt"


def _root(session: nox.Session) -> Path:
    """The repository that nox was called in: this one, or the nearest folder with a .git."""
    here = Path(session.invoked_from).resolve()
    return next((folder for folder in (here, *here.parents) if folder == HERE or (folder / ".git").exists()), here)


def _reports(session: nox.Session, folder: Path, root: Path, whose: str) -> Path:
    """The folder of a workspace's runs; ends the session if the repository has no workspace around the folder."""
    for place in (folder, *folder.parents):
        settings = _pyproject(session, place).get("tool", {}).get("sqnr")
        if settings is not None:
            return place / str(settings.get("reports", "reports"))
        if place == root:
            break
    return session.error(f"--base: {whose} has no pyproject.toml with [tool.sqnr] in {folder} or above, up to {root}")


def _pyproject(session: nox.Session, folder: Path) -> dict[str, Any]:
    """A folder's pyproject.toml; empty if there is none."""
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        session.error(f"{file}: cannot be read: {error}")


def _git(session: nox.Session, *args: str, ends: bool = True) -> str:
    """What git prints in the folder nox was called in; if it fails, the session ends with its line, or it is empty."""
    # A hook's variables would turn git to another repository than the one that was asked about.
    env = {key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}
    command = ["git", "-C", str(session.invoked_from), *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    except OSError as error:
        session.error(f"--base needs git: {error}")
    if done.returncode and ends:
        session.error(f"--base: git {args[0]} in {session.invoked_from}: {' '.join(done.stderr.split())}")
    return done.stdout.strip() if not done.returncode else ""
