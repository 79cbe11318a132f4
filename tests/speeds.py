"""Speeds in round numbers, as benchmarks store them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.measure.speed import SpeedRow
from tests.rows import ENVIRONMENT


def speed_row(**changes: Any) -> SpeedRow:
    """int8 takes 10 ms, compiled fp32 30 ms and eager 80 ms: 3 and 8 times as fast."""
    row = {
        "model": "resnet",
        "size": "full",
        "weights": "seeded",
        "flow": "arm-x",
        "variant": "released",
        "batch": 2,
        "threads": 2,
        "isa": "AVX-512",
        "rounds": 30,
        "eager_s": 0.08,
        "compiled_s": 0.03,
        "lowered_s": 0.01,
        "speedup": 3.0,
        "speedup_lo": 2.9,
        "speedup_hi": 3.125,
        "eager_speedup": 8.0,
        "eager_speedup_lo": 7.5,
        "eager_speedup_hi": 8.5,
        "int8_convs": 53,
        "int8_linears": 1,
        "published": 1.4156,
        "published_on": "Graviton 3E",
    }
    return SpeedRow(**{**row, **changes})


def results(*rows: SpeedRow, day: int = 1, environment: Any = ENVIRONMENT) -> dict[str, Any]:
    """What pytest-benchmark writes of these, and of one more benchmark; so much of it as is read, and the host."""
    cases = [{"extra_info": {"speed": asdict(row), "environment": environment}} for row in rows]
    return {
        "machine_info": {"node": "host"},
        "benchmarks": [{"extra_info": {}}, *cases],
        "datetime": f"2026-02-{day:02d}T13:00:00.5+01:00",
        "version": "5.2.3",
    }


def save_results(file: Path, *rows: SpeedRow, **changes: Any) -> Path:
    """The same in a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results(*rows, **changes)))
    return file
