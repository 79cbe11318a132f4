"""What a verb loads, and what a measuring process is pinned to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from harness import environment
from tests.program import TINY, latest, make_workspace, sqnr

_LOADED = """
import sys
from harness.cli import cli
try:
    cli({args!r}, standalone_mode=False)
except SystemExit:
    pass
print(sorted(name for name in ("torch", "pandas", "transformers", "rich", "pydantic") if name in sys.modules))
"""


def _loaded(folder, *args: str) -> list[str]:
    script = _LOADED.format(args=list(args))
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return names


def test_help_loads_nothing_heavy(tmp_path):
    assert _loaded(tmp_path, "--help") == []


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    folder = make_workspace(tmp_path_factory.mktemp("accepted"), tiny=TINY)
    assert sqnr(folder, "run", "-j", "1").returncode == 0
    assert sqnr(folder, "accept", "--because", "x", "--noise-runs", "0").returncode == 0
    return folder


@pytest.mark.parametrize("verb", ["check", "report", "compare"])
def test_verbs_on_stored_rows_do_not_load_torch(accepted, verb):
    runs = [latest(accepted).name] * 2 if verb == "compare" else []
    assert "torch" not in _loaded(accepted, verb, *runs)


def test_accepting_without_noise_does_not_load_torch(accepted):
    assert "torch" not in _loaded(accepted, "accept", "--because", "again", "--noise-runs", "0", "--dry-run")


PROBE = TINY.replace(
    "def build(size, weights, seed):",
    "def build(size, weights, seed):\n"
    "    import json, os\n"
    "    seen = {'capability': torch.backends.cpu.get_cpu_capability(), 'threads': torch.get_num_threads(),\n"
    "            'isa': os.environ.get('ONEDNN_MAX_CPU_ISA'), 'mkl': os.environ.get('MKL_CBWR')}\n"
    "    open('seen.json', 'w').write(json.dumps(seen))",
)


@pytest.mark.skipif(environment.platform_name() != "linux-x86_64", reason="the pins name x86 instruction sets")
def test_the_pins_hold_in_the_process_that_measures(tmp_path):
    """As torch itself reports them, not only as the variables say."""
    folder = make_workspace(tmp_path, probe=PROBE)
    assert sqnr(folder, "run", "-j", "1", ATEN_CPU_CAPABILITY="default").returncode == 0
    seen = json.loads((folder / "seen.json").read_text())
    assert seen == {"capability": "AVX2", "threads": 1, "isa": "AVX2", "mkl": "COMPATIBLE"}


def test_no_pin_leaves_the_instruction_set_alone_but_not_the_threads(tmp_path):
    folder = make_workspace(tmp_path, probe=PROBE)
    assert sqnr(folder, "run", "-j", "1", "--no-pin").returncode == 0
    seen = json.loads((folder / "seen.json").read_text())
    assert (seen["threads"], seen["isa"], seen["mkl"]) == (1, None, None)
