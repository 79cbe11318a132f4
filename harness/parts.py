"""Part files: what a measuring process appends as it measures, the only channel to its parent.

A record is a line of JSON. Results are on the disk before the next case begins, so what was measured outlives the
process, its parent and a power failure; a line that is not whole yet, or never became so, is left alone. A line that is
no record breaks its group: nothing that its process says from there on is believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import TypeAdapter

from harness.errors import in_a_line
from harness.files import storable
from harness.records import Case, OutputRow, QuantizerRow, Stage
from harness.samples import decoded
from harness.worker import GroupJob

if TYPE_CHECKING:
    from harness.measure.bootstrap import Array

_TYPES = {kind: TypeAdapter(kind) for kind in (OutputRow, QuantizerRow)}
_SHOWN = 60
T = TypeVar("T", OutputRow, QuantizerRow)


@dataclass(slots=True)
class Progress:
    """One thing a worker reported: a stage it began, or a case it finished."""

    job: GroupJob
    case: Case
    stage: Stage | None = None
    seconds: float = 0.0


@dataclass(slots=True)
class GroupResult:
    """What a group's part file holds, and how its process ended."""

    job: GroupJob
    outputs: list[OutputRow] = field(default_factory=list)
    quantizers: list[QuantizerRow] = field(default_factory=list)
    samples: dict[tuple[str, ...], Array] = field(default_factory=dict)
    """Sums of signal and noise of each sample, by the key of the output row."""
    weights: str = ""
    inputs: dict[str, list[str]] = field(default_factory=dict)
    adapter: dict[str, str] = field(default_factory=dict)
    finished: set[Case] = field(default_factory=set)
    last: tuple[Case, Stage] | None = None
    errors: dict[Case, str] = field(default_factory=dict)
    broken: str = ""


class PartReader:
    """Reads a part file as it grows into its group's result."""

    def __init__(self, result: GroupResult) -> None:
        self.result = result
        self._offset = 0
        self._rubbish = False

    def read(self, on_progress: Callable[[Progress], None] = lambda _progress: None) -> bool:
        """Take the lines that are new; whether all were records."""
        path = self.result.job.part
        if self._rubbish or not path.exists():
            return not self._rubbish
        with path.open("rb") as part:
            part.seek(self._offset)
            text = part.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.split(b"\n")[:-1]:
            try:
                told = self._take(json.loads(line, parse_constant=_refuse))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                shown = line[:_SHOWN].decode(errors="replace")
                self.result.broken = f"the measuring process wrote what is no record ({in_a_line(error)}): {shown!r}"
                self._rubbish = True
                break
            if told is not None:
                on_progress(told)
        return not self._rubbish

    def _take(self, record: dict[str, Any]) -> Progress | None:
        result = self.result
        if "stage" in record:
            result.last = self._case(record["case"]), Stage(record["stage"])
            return Progress(result.job, *result.last)
        if "adapter" in record:
            result.adapter = record["adapter"]
            result.weights, result.inputs = record.get("weights", ""), record.get("inputs", {})
            return None
        if "broken" in record:
            result.broken = str(record["broken"])
            return None
        case = self._case(record["result"])
        if case in result.finished:
            raise ValueError(f"a second result of {case}")
        if "error" in record:
            result.errors[case] = str(record["error"])
            result.finished.add(case)
            return Progress(result.job, case)
        outputs = [_row(OutputRow, cells, case) for cells in record["outputs"]]
        quantizers = [_row(QuantizerRow, cells, case) for cells in record["quantizers"]]
        seconds = float(record["seconds"]["total"])
        samples = {row.key: decoded(text) for row, text in zip(outputs, record["samples"], strict=False) if text}
        result.outputs += outputs
        result.quantizers += quantizers
        result.samples |= samples
        result.finished.add(case)
        return Progress(result.job, case, seconds=seconds)

    def _case(self, cells: dict[str, str]) -> Case:
        case = Case(**cells)
        if case not in self.result.job.cases:
            raise ValueError(f"{case} is none of this process's cases")
        return case


def _row(kind: type[T], cells: dict[str, Any], case: Case) -> T:
    """A row as its file will hold it: a lone surrogate in a name or an error is written as an escape."""
    stored: dict[str, Any] = {
        name: storable(value) if isinstance(value, str) else value for name, value in cells.items()
    }
    row = kind(**stored)
    if row.case != case or _TYPES[kind].validate_python(stored) != row:
        raise ValueError(f"no row of {case}")
    return row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
