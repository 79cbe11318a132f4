"""The program as a list of sessions. `nox -l` shows them; everything after `--` goes to the command.

All of them work in one environment, `.nox/stack`, kept between calls: the stack is several gigabytes.
"""

from __future__ import annotations

import os
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"  # sessions that require others
nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "venv"  # uv does not read pip's constraints or local wheels

HERE = Path(__file__).parent
BIN = HERE / ".nox" / "stack" / ("Scripts" if os.name == "nt" else "bin")


def _run(session: nox.Session, program: str, *args: str) -> None:
    """Run a program of the shared environment, offline unless the caller's environment says otherwise."""
    env = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")}
    session.run(str(BIN / program), *args, env=env, external=True)


@nox.session(reuse_venv=True, default=False)
def stack(session: nox.Session) -> None:
    """Install the harness and the pinned stack; every other session needs this one."""
    wanted = (HERE / "pyproject.toml").read_text() + (HERE / "constraints.txt").read_text()
    stamp = Path(session.virtualenv.location) / "installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        session.install("-c", "constraints.txt", "-e", ".[lint,test,report,upstream]")
        stamp.write_text(wanted)


@nox.session(requires=["stack"], venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style and types, the latter against the installed stack."""
    _run(session, "ruff", "check", ".")
    _run(session, "ruff", "format", "--check", ".")
    _run(session, "mypy")


@nox.session(requires=["stack"], venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the test suite, without the benchmarks."""
    _run(session, "pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def gate(session: nox.Session) -> None:
    """Measure the five small models through every flow and judge them: the check of a pull request."""
    _run(session, "sqnr", "gate", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def nightly(session: nox.Session) -> None:
    """Measure the five full models and judge them."""
    _run(session, "sqnr", "gate", "--suite", "nightly", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def report(session: nox.Session) -> None:
    """Rebuild the report of the latest run from its stored rows."""
    _run(session, "sqnr", "report", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def train(session: nox.Session) -> None:
    """Retrain the small models: rewrites models/weights/*.safetensors."""
    _run(session, "sqnr", "train", *session.posargs)


@nox.session(requires=["stack"], venv_backend="none")
def bench(session: nox.Session) -> None:
    """Run the benchmarks: SQNR side by side with torchao's."""
    _run(session, "pytest", "-m", "bench", "--benchmark-enable", "tests/bench", *session.posargs)
