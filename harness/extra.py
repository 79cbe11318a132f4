"""The packages of the extra `report`: what only reports and the history need, loaded when they are asked for."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from harness.errors import UsageError

REPORTS = ("itables", "jinja2", "junitparser", "plotly")
"""What the reports that are written together need."""


def absent(*modules: str) -> list[str]:
    """Those of the modules that are not installed."""
    return [name for name in modules if find_spec(name) is None]


def require(what: str, *modules: str) -> None:
    """Raise `UsageError` that says which modules `what` needs and how to get them, unless all are installed."""
    if lacking := absent(*modules):
        raise UsageError(f"{', '.join(lacking)} not installed, for {what}: pip install 'sqnr-harness[report]'")


def load(what: str, module: str) -> ModuleType:
    """A module that `what` needs; raises `UsageError` as `require` does."""
    require(what, module.partition(".")[0])
    return importlib.import_module(module)
