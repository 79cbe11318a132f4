"""Measuring with another instruction set: what the libraries take, and what the processor lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import environment
from harness.environment import ISAS, PINS, check_isa, chosen_isas, isa_of, pin
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
INT8_LINEAR = """
import torch
x = torch.randint(0, 255, (16, 64), dtype=torch.uint8)
weight = torch.ops.onednn.qlinear_prepack(torch.randint(-128, 127, (16, 64), dtype=torch.int8), [16, 64])
per_channel = torch.ones(16), torch.zeros(16, dtype=torch.int32)
torch.ops.onednn.qlinear_pointwise(x, 1.0, 0, weight, *per_channel, None, 1.0, 0, torch.float32, "none", [], "")
"""
FLAGS = {
    "avx512-vnni": "avx512f avx512bw avx512dq avx512vl avx512_vnni",
    "avx2-vnni": "avx_vnni",
    "avx512": "avx512f avx512bw avx512dq avx512vl",
    "avx2": "sse4_1 avx2 fma",
}
"""As /proc/cpuinfo has them."""


def machine(monkeypatch: pytest.MonkeyPatch, *has: str) -> None:
    """An x86 processor with the flags of these instruction sets."""
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environment, "_cpu_flags", lambda: frozenset(" ".join(FLAGS[isa] for isa in has).split()))
    monkeypatch.setattr(environment, "cpu_name", lambda: "a cpu")


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


@pytest.mark.slow
@X86
@pytest.mark.parametrize(
    ("isa", "kernel"),
    each_isa(
        **{"avx512-vnni": "avx512_core_vnni", "avx2-vnni": "avx2_vnni", "avx512": "avx512_core"},
    ),
)
def test_onednn_takes_it_for_an_int8_linear(isa: str, kernel: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", INT8_LINEAR],
        env={**os.environ, **ISAS[isa], "ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (linear,) = (line for line in said.splitlines() if ",exec,cpu,matmul," in line)
    assert f"brg_matmul:{kernel}," in linear


@pytest.mark.parametrize("isa", ISAS)
def test_pins_tell_which_one_they_are(isa: str) -> None:
    assert isa_of(PINS | ISAS[isa]) == isa


def test_pins_that_are_a_mixture_are_none_of_them() -> None:
    assert isa_of(ISAS["avx2"] | {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}) == "avx2-vnni"
    assert isa_of(ISAS["avx512"] | {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}) == ""
    assert isa_of({}) == ""


def test_one_that_the_processor_lacks_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "avx2")
    environ: dict[str, str] = {}
    with pytest.raises(UsageError) as caught:
        pin(environ, isa="avx512-vnni")
    assert str(caught.value) == (
        "--isa avx512-vnni: this processor (a cpu) lacks avx512f, avx512bw, avx512dq, avx512vl, avx512_vnni; "
        "it has avx2, sse4"
    )
    assert environ == {}


@pytest.mark.parametrize(
    ("has", "every"),
    [
        (("avx2",), ("avx2",)),
        (("avx2", "avx512"), ("avx512", "avx2")),
        (("avx2", "avx2-vnni"), ("avx2-vnni", "avx2")),
        (("avx2", "avx512-vnni"), ("avx512-vnni", "avx512", "avx2")),
        (("avx2", "avx512-vnni", "avx2-vnni"), ("avx512-vnni", "avx2-vnni", "avx512", "avx2")),
    ],
)
def test_all_are_those_of_the_processor_best_first_without_sse4(
    monkeypatch: pytest.MonkeyPatch, has: tuple[str, ...], every: tuple[str, ...]
) -> None:
    machine(monkeypatch, *has)
    assert chosen_isas(["all"]) == every
    assert chosen_isas(["sse4", "all", "avx2"]) == (*every, "sse4")


def test_those_named_are_taken_once_and_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "avx2", "avx2-vnni")
    assert chosen_isas(["sse4", "avx2", "avx2-vnni", "avx2"]) == ("avx2-vnni", "avx2", "sse4")
    assert chosen_isas([]) == ()


def test_one_of_several_that_the_processor_lacks_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, "avx2")
    with pytest.raises(UsageError, match=r"--isa avx2-vnni: .* \(a cpu\) lacks avx_vnni; it has avx2, sse4"):
        chosen_isas(["avx2", "avx2-vnni"])


def test_all_of_a_processor_of_which_nothing_is_known_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    with pytest.raises(UsageError, match=r"--isa all: .* \(a cpu\) does not say that it has avx2 or better"):
        chosen_isas(["all"])


@pytest.mark.parametrize("isa", ["avx2", "all"])
def test_another_kind_of_processor_has_none_of_them(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match=f"--isa {isa}: the instruction sets are those of x86, and this is aarch64"):
        chosen_isas([isa])


def test_a_machine_that_does_not_say_what_it_can_do_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    check_isa("avx512")


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (("run", "--isa", "sse4", "--no-pin"), "--isa sse4 pins an instruction set and --no-pin none"),
        (
            ("run", "--isa", "all", "--isa", "avx2", "--no-pin"),
            "--isa all --isa avx2 pins an instruction set",
        ),
        (("gate", "--isa", "sse4", "--isa", "avx2"), "--isa sse4 --isa avx2: only `sqnr run` measures with several"),
        (("gate", "--isa", "all"), "--isa all: only `sqnr run` measures with several"),
        (("run", "--isa", "mmx"), "'mmx' is not one of 'avx512-vnni', 'avx2-vnni', 'avx512', 'avx2', 'sse4', 'all'"),
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
