"""How much memory measuring processes may take together, and what holds one of them to its share."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil

GIB = 2.0**30
_CGROUP = Path("/sys/fs/cgroup")


def free_memory(cgroup: Path = _CGROUP) -> float:
    """GiB that can be had without swapping: the machine's, or what the container's limit leaves of it."""
    free = float(psutil.virtual_memory().available)
    try:
        limit, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
        free = free if limit == "max" else min(free, float(limit) - float(used))
    except (OSError, ValueError):
        pass  # no container, or one of another kind
    return free / GIB


def limit_memory(gib: float) -> None:
    """Let this process and its children have so much data of their own, each: what asks for more raises or aborts."""
    most = int(gib * GIB)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
