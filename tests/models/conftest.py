"""The adapters, loaded by path as the harness does, and nothing from the network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from harness.workspace import load_module

os.environ["HF_HUB_OFFLINE"] = "1"

FOLDER = Path(__file__).parents[2] / "models"

Load = Callable[[str], ModuleType]


@pytest.fixture(scope="session")
def load() -> Load:
    return lambda name: load_module(FOLDER, name)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def seeded(load):
    """Seeded models by (name, size), built once: a full one takes up to a few seconds."""
    built: dict[tuple[str, str], torch.nn.Module] = {}

    def get(name: str, size: str) -> torch.nn.Module:
        if (name, size) not in built:
            built[name, size] = load(name).build(size, "seeded", 0)
        return built[name, size]

    return get
