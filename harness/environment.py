"""Fingerprint of the machine and the stack, and the pins that make machines agree.

The pins are read when the libraries load, so they must be in the environment before the measuring process starts:
`pin` writes them into `os.environ` of the parent, and every worker is spawned after that.
"""

from __future__ import annotations

import os
import platform
from collections.abc import MutableMapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PINS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""Instruction sets and threads of measuring processes on x86; elsewhere only the threads apply.

AVX-512 against AVX2 moves a quantized ResNet-18 by 0.045 dB and 1 against 2 threads a ResNet-50 by 0.031 dB.
"""

STACK = ("torch", "torchvision", "torchao", "transformers", "nncf", "executorch", "numpy")


def pin(environ: MutableMapping[str, str] = os.environ, *, pinned: bool = True) -> None:
    """Put the pins into `environ`; with `pinned=False` only the single thread."""
    environ.update({key: value for key, value in PINS.items() if pinned or key.endswith("THREADS")})
    if not pinned:
        for key in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"):
            environ.pop(key, None)


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
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def fingerprint() -> dict[str, object]:
    """What a run records about where it was measured; names no host, user or folder."""
    return {
        "platform": platform_name(),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "stack": dict(stack_versions()),
        "pins": {key: os.environ.get(key, "") for key in PINS if not key.startswith("HF_")},
    }
