"""Fingerprint of the machine and the stack, and the pins that make machines agree.

The pins are read when the libraries load, so they must be in the environment before the measuring process starts:
`pin` writes them into `os.environ` of the parent, and every worker is spawned after that.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, MutableMapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.errors import UsageError

ISAS = {
    "avx512-vnni": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
        "MKL_CBWR": "AVX512",
    },
    "avx2-vnni": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "MKL_CBWR": "COMPATIBLE"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_CBWR": "AVX512"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"},
    "sse4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}
"""Instruction sets to measure with, and what holds ATen, oneDNN and MKL to each; best for int8 kernels first.

Those with VNNI sum u8 x s8 products in int32, the others in int16, which can saturate (docs/saturation.md). ATen and
MKL know no VNNI: for them `avx2-vnni` is `avx2`, and `avx512-vnni` is `avx512`. MKL's COMPATIBLE is SSE2 code, the only
one that processors of all makers agree on: `avx2` and `sse4` share it, as a machine without AVX2 would under the pins.
The AVX512 branch is that of Intel's processors; others take what MKL has for them. ATen has no SSE4 of its own: its
`default` is compiled for SSE2.
"""
VNNI = frozenset({"avx512-vnni", "avx2-vnni"})
"""Those whose int8 kernels add up in int32 alone, so that nothing saturates."""
ALL = "all"
"""In the place of an instruction set: those of this processor, but for `_LEFT_OUT`.

Its int8 kernels saturate to what those of `avx2` give (to 0.001 dB in the five small models), Inductor generates no
vector code for it, and few processors have nothing better.
"""
_LEFT_OUT = "sse4"
DEFAULT_ISA = "avx2"
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")
_NEEDED_FLAGS = {
    "avx512-vnni": (*_AVX512, "avx512_vnni"),
    "avx2-vnni": ("avx2", "fma", "avx_vnni"),
    "avx512": _AVX512,
    "avx2": ("avx2", "fma"),
    "sse4": ("sse4_1",),
}
"""As /proc/cpuinfo has them, what ATen and oneDNN ask of a processor before they take that code."""

PINS = {
    **ISAS[DEFAULT_ISA],
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""Instruction sets and threads of measuring processes on x86; elsewhere only the threads apply.

AVX-512 against AVX2 moves a quantized ResNet-18 by 0.045 dB and 1 against 2 threads a ResNet-50 by 0.031 dB.
"""

STACK = ("torch", "torchvision", "torchao", "transformers", "nncf", "executorch", "numpy")


def pin(environ: MutableMapping[str, str] = os.environ, *, pinned: bool = True, isa: str = "") -> None:
    """Put the pins into `environ`, those of another instruction set if asked; with `pinned=False` only one thread.

    Raises `UsageError` for an instruction set that was asked for and that this processor lacks.
    """
    if isa:
        check_isa(isa)
    environ.update({key: value for key, value in PINS.items() if pinned or key.endswith("THREADS")})
    if pinned:
        environ.update(ISAS.get(isa, {}))
        return
    for key in ISAS["avx2"]:
        environ.pop(key, None)


def isa_of(pins: Mapping[str, str]) -> str:
    """The instruction set that pins stand for; empty if they are none of `ISAS`."""
    return next((isa for isa, own in ISAS.items() if all(pins.get(key) == own[key] for key in own)), "")


def chosen_isas(asked: Iterable[str]) -> tuple[str, ...]:
    """The instruction sets that were asked for, `ALL` among them, each once and best first.

    Raises `UsageError` for one that this processor lacks, and for `ALL` where none can be told.
    """
    wanted = set(asked)
    for isa in sorted(wanted - {ALL}):
        check_isa(isa)
    if ALL in wanted:
        _check_x86(ALL)
        found = [isa for isa in _able(_cpu_flags()) if isa != _LEFT_OUT]
        if not found:
            raise UsageError(f"--isa {ALL}: this processor ({cpu_name()}) does not say that it has avx2 or better")
        wanted.update(found)
    return tuple(isa for isa in ISAS if isa in wanted)


def check_isa(isa: str) -> None:
    """Raise `UsageError` if this processor lacks an instruction set: libraries would take another without a word."""
    _check_x86(isa)
    flags = _cpu_flags()
    lacking = [flag for flag in _NEEDED_FLAGS[isa] if flags and flag not in flags]
    if lacking:
        raise UsageError(
            f"--isa {isa}: this processor ({cpu_name()}) lacks {', '.join(lacking)}; "
            f"it has {', '.join(_able(flags)) or 'none'}"
        )


def _check_x86(isa: str) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise UsageError(f"--isa {isa}: the instruction sets are those of x86, and this is {platform.machine()}")


def _able(flags: frozenset[str]) -> list[str]:
    return [isa for isa, needed in _NEEDED_FLAGS.items() if flags.issuperset(needed)]


def _cpu_flags() -> frozenset[str]:
    """What /proc/cpuinfo says the processor can do; nothing where there is no such file."""
    return frozenset(_cpuinfo("flags").split())


def _cpuinfo(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == field), "")


def platform_name() -> str:
    """The folder of this machine's baselines, e.g. `linux-x86_64`."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-{machine}"


def installed_version(package: str) -> str:
    """Version of an installed distribution; empty if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def stack_versions() -> dict[str, str]:
    """Installed versions of the packages whose numerics are measured; absent ones are left out."""
    return {package: found for package in STACK if (found := installed_version(package))}


def cpu_name() -> str:
    """Human name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def fingerprint() -> dict[str, object]:
    """What a run records about where it was measured; names no host, user or folder."""
    return {
        "platform": platform_name(),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "stack": dict(stack_versions()),
        "pins": {key: os.environ.get(key, "") for key in PINS if not key.startswith("HF_")},
    }
