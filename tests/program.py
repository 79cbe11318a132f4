"""The real program in its own process, on workspaces with tiny models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TINY = """
import torch
from harness.adapter import Batch, Size
from torch import nn

SIZES = {"small": Size(("seeded",), ("logits",))}
GAIN = 1.0


def build(size, weights, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    model[2].weight.data *= GAIN
    return model.requires_grad_(False)


def calibration(size, seed):
    return _batches(seed + 1)


def evaluation(size, seed):
    return _batches(seed)


def _batches(seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        yield Batch((torch.randn(4, 8, generator=generator),))
"""
"""A model that is measured in a second; `GAIN` is what tests turn."""

SETTINGS = """
[tool.sqnr.suites.gate]
size = "small"
flows = ["x86-static"]
"""


def make_workspace(folder: Path, settings: str = SETTINGS, **adapters: str) -> Path:
    """A workspace with the given adapters (name -> source)."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text("[tool.sqnr]\n" + settings, encoding="utf-8")
    for name, source in adapters.items():
        (folder / "models" / f"{name}.py").write_text(source, encoding="utf-8")
    return folder


def sqnr(folder: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `sqnr ARGS` in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environ},
        check=False,
    )


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    """Start `sqnr ARGS` in a folder, as the head of a process group of its own."""
    command = [sys.executable, "-m", "harness", *args]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ends(group: int) -> bool:
    """Whether every process of a group is gone within ten seconds."""
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.2)
    return False


def latest(folder: Path) -> Path:
    """The newest run's folder."""
    return max((folder / "reports").glob("*/run.json")).parent


def verdict(folder: Path) -> dict[str, Any]:
    """verdict.json of the newest run."""
    content: dict[str, Any] = json.loads((latest(folder) / "verdict.json").read_text(encoding="utf-8"))
    return content
