"""What `init` does: a folder becomes a workspace, with nothing in it replaced."""

from __future__ import annotations

import tomllib
from pathlib import Path

from harness.errors import UsageError
from harness.files import replace_all

_SETTINGS = """\
[tool.sqnr]
seed = 0

[tool.sqnr.suites.gate]
size = "small"
flows = ["x86-*"] # `sqnr list` shows all of them; "*" takes every one
"""
_TEMPLATE = Path(__file__).parents[1] / "templates" / "adapter.py"
_IGNORED = "# Runs; baselines are what is kept.\n*\n!.gitignore\n"


def start_workspace(folder: Path, model: str) -> list[Path]:
    """Add what `folder` lacks of a workspace, and give the files that were written.

    A `[tool.sqnr]` table at the end of `pyproject.toml`, an adapter `models/<model>.py` unless there is one already,
    and `reports/.gitignore`. Raises `UsageError`, before anything is written, for a folder that is a workspace, a
    `pyproject.toml` that is no TOML, a name that no adapter can have, and what cannot be written.
    """
    if not (model.isidentifier() and model.isascii()) or model.startswith("_"):
        raise UsageError(f"--model {model!r}: an adapter is a Python module: letters, digits and _, a letter first")
    project = folder / "pyproject.toml"
    before = _settings_of(project)
    wanted = {project: f"{before.rstrip()}\n\n{_SETTINGS}" if before.strip() else _SETTINGS}
    if not any(path.stem.isidentifier() for path in (folder / "models").glob("[!_]*.py")):
        wanted[folder / "models" / f"{model}.py"] = _TEMPLATE.read_text(encoding="utf-8")
    if not (folder / "reports" / ".gitignore").exists():
        wanted[folder / "reports" / ".gitignore"] = _IGNORED
    replace_all(wanted)
    return list(wanted)


def _settings_of(project: Path) -> str:
    """The text of a `pyproject.toml` that has no `[tool.sqnr]` yet; nothing where there is no file."""
    if not project.exists():
        return ""
    try:
        text = project.read_text(encoding="utf-8")
        tool = tomllib.loads(text).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{project}: cannot be read: {error}") from None
    if not isinstance(tool, dict):
        raise UsageError(f"{project}: tool is no table, so that none can be added to it")
    if "sqnr" in tool:
        raise UsageError(f"{project}: has a [tool.sqnr] already, so that {project.parent} is a workspace: sqnr list")
    return text
