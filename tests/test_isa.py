"""Measuring with another instruction set: what the libraries take, and what the processor lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import environment
from harness.environment import ISAS, PINS, check_isa, pin
from harness.errors import UsageError
from tests.program import TINY, latest, make_workspace, sqnr

X86 = pytest.mark.skipif(environment.platform_name() != "linux-x86_64", reason="the instruction sets are those of x86")

PROBE = TINY.replace(
    "def build(size, weights, seed):",
    "def build(size, weights, seed):\n    open('seen.txt', 'w').write(torch.backends.cpu.get_cpu_capability())",
)
CONVOLUTION = """
import torch
torch.nn.functional.conv2d(torch.randn(8, 16, 32, 32), torch.randn(32, 16, 3, 3))
torch.mm(torch.randn(128, 512), torch.randn(512, 128))
"""


def able(isa: str) -> bool:
    try:
        check_isa(isa)
    except UsageError:
        return False
    return True


def each_isa(**expected: str) -> list[object]:
    """A parameter for each instruction set; skipped where this processor lacks it."""
    return [
        pytest.param(isa, value, marks=pytest.mark.skipif(not able(isa), reason=f"this processor has no {isa}"))
        for isa, value in expected.items()
    ]


def test_without_a_choice_the_pins_are_those_of_avx2() -> None:
    environ: dict[str, str] = {}
    pin(environ)
    assert environ == PINS
    assert {key: PINS[key] for key in ISAS["avx2"]} == ISAS["avx2"]


@X86
@pytest.mark.parametrize(("isa", "capability"), each_isa(avx2="AVX2", avx512="AVX512", sse4="DEFAULT"))
def test_the_process_that_measures_has_it_and_the_run_says_so(tmp_path: Path, isa: str, capability: str) -> None:
    folder = make_workspace(tmp_path, probe=PROBE)
    assert sqnr(folder, "run", "-j", "1", "--isa", isa).returncode == 0
    assert (folder / "seen.txt").read_text() == capability
    pins = json.loads((latest(folder) / "run.json").read_text())["environment"]["pins"]
    assert {key: pins[key] for key in ISAS[isa]} == ISAS[isa]
    assert pins["OMP_NUM_THREADS"] == "1"


@pytest.mark.slow
@X86
@pytest.mark.parametrize(("isa", "kernel"), each_isa(avx2="jit:avx2,", avx512="jit:avx512_core,", sse4="jit:sse41,"))
def test_onednn_and_mkl_take_it(isa: str, kernel: str) -> None:
    """As they say themselves when asked to be verbose."""
    verbose = {"ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", CONVOLUTION],
        env={**os.environ, **ISAS[isa], **verbose},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (convolution,) = (line for line in said.splitlines() if ",exec,cpu,convolution," in line)
    assert kernel in convolution
    assert f"CNR:{ISAS[isa]['MKL_CBWR']} " in said


def test_one_that_the_processor_lacks_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environment, "_cpu_flags", lambda: frozenset({"sse4_1", "avx2", "fma", "avx512f"}))
    monkeypatch.setattr(environment, "cpu_name", lambda: "a cpu")
    environ: dict[str, str] = {}
    with pytest.raises(UsageError) as caught:
        pin(environ, isa="avx512")
    assert str(caught.value) == (
        "--isa avx512: this processor (a cpu) lacks avx512bw, avx512dq, avx512vl; it has avx2, sse4"
    )
    assert environ == {}


def test_another_kind_of_processor_has_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="--isa avx2: the instruction sets are those of x86, and this is aarch64"):
        check_isa("avx2")


def test_a_machine_that_does_not_say_what_it_can_do_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environment, "_cpu_flags", frozenset)
    check_isa("avx512")


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (("run", "--isa", "sse4", "--no-pin"), "--isa sse4 pins an instruction set and --no-pin none"),
        (("run", "--isa", "mmx"), "'mmx' is not one of 'avx2', 'avx512', 'sse4'"),
    ],
)
def test_a_choice_that_cannot_be_is_a_usage_error(tmp_path: Path, verb: tuple[str, ...], message: str) -> None:
    ended = sqnr(make_workspace(tmp_path, tiny=TINY), *verb)
    assert ended.returncode == 2
    assert message in ended.stderr


@X86
def test_a_run_with_another_one_is_judged_but_not_accepted_nor_are_floors_measured_with_it(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, tiny=TINY)
    assert sqnr(folder, "run", "-j", "1", "--isa", "sse4").returncode == 0
    refused = sqnr(folder, "accept", "--because", "x", "--noise-runs", "0")
    assert refused.returncode == 2
    assert (
        "without its pins (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA); run it without --no-pin and --isa"
        in refused.stderr
    )
    floors = sqnr(folder, "accept", "--because", "x", "--isa", "sse4")
    assert floors.returncode == 2
    assert "--isa sse4: noise floors are measured as baselines are" in floors.stderr
