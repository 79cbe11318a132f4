"""What every test gets: no network, examples that fail again tomorrow, and workspaces of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
REPOSITORY = Path(__file__).parents[1]

# A busy machine is no failure, and what fails today fails again tomorrow.
settings.register_profile("harness", deadline=None, derandomize=True, database=None)
settings.load_profile("harness")


@pytest.fixture
def workspace_folder(tmp_path: Path) -> Path:
    """An empty workspace: settings, and a models folder with nothing in it."""
    (tmp_path / "models").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.sqnr]\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def repository_copy(tmp_path: Path) -> Path:
    """A copy of this repository's own workspace: models with their weights, baselines, settings."""
    for folder in ("models", "baselines"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path
