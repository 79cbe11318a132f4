"""What int8 programs gain over float ones, in the shape of pytorch/ao pull request 2391: a line for each model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.environment import STACK
from harness.records import RELEASED
from harness.report.names import subject_names
from harness.report.phrases import fixed
from harness.report.text import counted, visible

_PLACE = ("platform", "cpu", "isa", "threads", "batch")
"""What times have to share to stand in one table."""
_CASE = ("model", "size", "weights", "flow", "variant")


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """The latest speeds of one place as text, what they were measured on, and what they are to be held against."""

    title: str
    frame: pd.DataFrame
    note: str


def latest(speeds: pd.DataFrame) -> pd.DataFrame:
    """Of a history's speeds (`harness.history.read_both`) the last of each case on each place."""
    return speeds.drop_duplicates([*_CASE, *_PLACE], keep="last")


def speed_tables(speeds: pd.DataFrame) -> Iterator[SpeedTable]:
    """A table for each place that speeds were measured on: model, times in float, each int8 flow, published speedup.

    Float models are as they were beside the first flow. A flow's cell has its median time, the speedup to the compiled
    float model with its 95 % interval, that to the eager one, and how many int8 convolutions and linears ran.
    """
    for place, lines in latest(speeds).groupby(list(_PLACE), sort=True, dropna=False):
        yield SpeedTable(_title(dict(zip(_PLACE, place, strict=True))), _frame(lines), _note(lines))


def _frame(lines: pd.DataFrame) -> pd.DataFrame:
    names = subject_names(set(lines[["model", "size", "weights"]].itertuples(index=False, name=None)))
    table: dict[tuple[str, ...], dict[str, str]] = {}
    flows = dict.fromkeys(_flow(line) for line in lines.itertuples(index=False))
    for line in lines.itertuples(index=False):
        model = (line.model, line.size, line.weights)
        start = {
            "model": visible(names[model]),
            "fp32 eager": _milliseconds(line.eager_s),
            "fp32 compiled": _milliseconds(line.compiled_s),
            **dict.fromkeys(flows, ""),
            "published": "" if pd.isna(line.published) else f"{fixed(line.published, 2)}×",
        }
        table.setdefault(model, start)[_flow(line)] = _cell(line)
    return pd.DataFrame([table[model] for model in sorted(table)])


def _flow(line: Any) -> str:
    return visible(line.flow if line.variant == RELEASED else f"{line.flow} {line.variant}")


def _cell(line: Any) -> str:
    interval = f"{fixed(line.speedup_lo, 2)} to {fixed(line.speedup_hi, 2)}"
    kernels = f"{counted(line.int8_convs, 'conv')}, {counted(line.int8_linears, 'linear')}"
    gain = f"{fixed(line.speedup, 2)}× ({interval})"
    return f"{_milliseconds(line.lowered_s)}, {gain}; eager {fixed(line.eager_speedup, 2)}×; {kernels}"


def _milliseconds(seconds: float) -> str:
    return f"{fixed(1000 * seconds, 1)} ms"


def _title(place: dict[str, Any]) -> str:
    threads = counted(place["threads"], "thread")
    where = ", ".join(visible(place[name]) for name in ("platform", "cpu", "isa") if place[name])
    return f"Speed against compiled fp32, batch {place['batch']}, {threads}: {where}"


def _note(lines: pd.DataFrame) -> str:
    rounds, runs = sorted(set(lines["rounds"])), sorted(set(lines["run"]))
    stack = [f"{name} {version}" for name in STACK for version in sorted(set(lines[name])) if version]
    published = sorted({where for where in lines["published_on"] if where})
    parts = [
        f"medians of {', '.join(map(str, rounds))} rounds",
        f"run {', '.join(runs)}",
        *([f"published: {', '.join(published)}"] if published else []),
        ", ".join(stack),
    ]
    return visible("; ".join(part for part in parts if part))
