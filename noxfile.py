"""The program as a list of sessions. `nox -l` shows them; everything after `--` goes to the command.

All sessions that measure share one environment, kept between calls: the stack is several gigabytes.
"""

from __future__ import annotations

import os
from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "venv"  # uv does not read pip's constraints or local wheels

STACK = ".nox/stack"
HERE = Path(__file__).parent


def _install(session: nox.Session) -> None:
    """Install the harness with all extras but `upstream`, unless this environment holds it already."""
    wanted = (HERE / "pyproject.toml").read_text() + (HERE / "constraints.txt").read_text()
    stamp = Path(session.virtualenv.location) / "installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        session.install("-c", "constraints.txt", "-e", ".[lint,test,report]")
        stamp.write_text(wanted)
    session.env["HF_HUB_OFFLINE"] = os.environ.get("HF_HUB_OFFLINE", "1")


@nox.session(venv_location=STACK, reuse_venv=True)
def lint(session: nox.Session) -> None:
    """Ruff and mypy; types are checked against the installed stack."""
    _install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(venv_location=STACK, reuse_venv=True)
def tests(session: nox.Session) -> None:
    """The test suite, without the benchmarks."""
    _install(session)
    session.run("python", "-m", "pytest", "-n", "2", *session.posargs)


@nox.session(venv_location=STACK, reuse_venv=True)
def gate(session: nox.Session) -> None:
    """Measure the five small models through every flow and judge them: the check of a pull request."""
    _install(session)
    session.run("sqnr", "gate", *session.posargs)


@nox.session(venv_location=STACK, reuse_venv=True)
def nightly(session: nox.Session) -> None:
    """Measure the five full models and judge them."""
    _install(session)
    session.run("sqnr", "gate", "--suite", "nightly", *session.posargs)


@nox.session(venv_location=STACK, reuse_venv=True)
def report(session: nox.Session) -> None:
    """Rebuild the report of the latest run from its stored rows."""
    _install(session)
    session.run("sqnr", "report", *session.posargs)


@nox.session(venv_location=STACK, reuse_venv=True)
def train(session: nox.Session) -> None:
    """Retrain the small models: rewrites models/weights/*.safetensors."""
    _install(session)
    session.run("sqnr", "train", *session.posargs)


@nox.session(venv_location=STACK, reuse_venv=True)
def bench(session: nox.Session) -> None:
    """Benchmarks: SQNR side by side with torchao's."""
    _install(session)
    session.run("python", "-m", "pytest", "-m", "bench", "--benchmark-enable", "tests/bench", *session.posargs)
