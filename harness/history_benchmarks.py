"""Reads the speeds out of a file that pytest-benchmark wrote (`--benchmark-json`, `--benchmark-save`), for the history.

A case has in its `extra_info` its `speed`, the fields of `harness.measure.speed.SpeedRow`, and as `environment` what
`harness.environment.fingerprint` said. Cases without are other benchmarks. Of `machine_info`, which names the host,
nothing is taken.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from harness.errors import TableError, in_a_line
from harness.history_lines import StoredBench, identity, instant
from harness.measure.speed import SpeedRow

FOLDER = "bench"
"""Where such files are looked for, among runs; `nox -s bench` puts them into one among the reports."""
SUFFIX = ".json"

_ROW = TypeAdapter(with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))(SpeedRow))


def parse(file: Path, content: bytes) -> StoredBench:
    """The speeds in a benchmark's file. Raises `TableError` for one that is damaged, or has none."""
    try:
        found = json.loads(content)
        extras = [case["extra_info"] for case in found["benchmarks"]]
        started = instant(file, "datetime", found["datetime"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TableError(f"{file}: no results of pytest-benchmark: {in_a_line(error)}") from None
    told = [extra for extra in extras if isinstance(extra, dict) and "speed" in extra]
    if not told:
        raise TableError(f"{file}: benchmarks without speeds of int8 programs")
    rows = [_row(file, extra["speed"]) for extra in told]
    environment = told[0].get("environment")
    return StoredBench(
        identity(content), started, file.stem, rows, environment if isinstance(environment, dict) else {}
    )


def _row(file: Path, speed: Any) -> SpeedRow:
    try:
        row: SpeedRow = _ROW.validate_json(json.dumps(speed))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise TableError(f"{file}: speed: {name}: {first['msg']}; measure again: nox -s bench") from None
    return row
