"""Temporary folders: gone afterwards, and those of killed processes are gone with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.scratch import scratch_folder

HOLDS = """
import sys
from harness.scratch import scratch_folder
with scratch_folder("sqnr-x-") as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""
HOURS = 3600.0


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def _age(folder: Path, hours: float) -> None:
    then = time.time() - hours * HOURS
    os.utime(folder, (then, then))


def _others() -> list[str]:
    """Names of what is there besides a new folder, while it is used."""
    with scratch_folder("sqnr-x-") as own:
        assert own.is_dir()
        found = sorted(path.name for path in own.parent.iterdir() if path != own)
    assert not own.exists()
    return found


def _holding() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_of_a_killed_process_is_swept_and_one_in_use_is_not():
    process, folder = _holding()
    (folder / "part.jsonl").write_text("{}")
    _age(folder, hours=2)
    assert _others() == [folder.name], "in use, however old"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _age(folder, hours=0.5)
    assert _others() == [folder.name], "perhaps one that is being made"
    _age(folder, hours=2)
    assert _others() == []


def test_only_folders_of_that_name_are_swept(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "sqnr-x-link").symlink_to("kept")
    (tmp_path / "sqnr-x-file").write_text("x")
    (tmp_path / "sqnr-y-1").mkdir()
    (tmp_path / "sqnr-x-1" / "inner").mkdir(parents=True)
    for path in tmp_path.iterdir():
        _age(path, hours=2)
    assert _others() == ["kept", "sqnr-x-file", "sqnr-x-link", "sqnr-y-1"]
    assert (tmp_path / "kept" / "file").read_text() == "x"


def test_a_folder_of_another_user_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "sqnr-x-1").mkdir()
    _age(tmp_path / "sqnr-x-1", hours=2)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert _others() == ["sqnr-x-1"]
