"""Histories in round numbers, as `harness.history.read` gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from harness import history
from harness.environment import STACK
from tests.rows import output_row

START = datetime(2026, 1, 1, tzinfo=UTC)


def line(run: int, /, **changes: Any) -> dict[str, Any]:
    """30 dB logits in run number `run` (1 is the first), one run a day; pinned, with torchao 0.17.0 alone."""
    row = output_row()
    return {
        "run_id": f"{run:016x}",
        "run": f"run{run:02d}",
        "started": START + timedelta(days=run - 1),
        "suite": "gate",
        "run_status": "complete",
        "filtered": False,
        "platform": "linux-x86_64",
        "python": "3.11.7",
        "cpu": "a cpu",
        "pinned": True,
        **dict.fromkeys(STACK, ""),
        "torchao": "0.17.0",
        **{field.name: getattr(row, field.name) for field in fields(row)},
        **changes,
    }


def series(levels: Sequence[float | str | None], **changes: Any) -> list[dict[str, Any]]:
    """One row over time: its SQNR in dB in each run; a text is a status without one, None a run without the row.

    A change that is a list has a value for each run.
    """
    lines = []
    for index, level in enumerate(levels):
        if level is None:
            continue
        here = {name: value[index] if isinstance(value, list) else value for name, value in changes.items()}
        status, sqnr_db = (level, None) if isinstance(level, str) else ("measured", level)
        lines.append(line(index + 1, **{"status": status, "sqnr_db": sqnr_db, **here}))
    return lines


def frame_of(*some: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """These lines as a history."""
    empty = history.empty()
    lines = [line for lines in some for line in lines]
    return pd.DataFrame(lines, columns=empty.columns).astype(empty.dtypes.to_dict())
