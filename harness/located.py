"""Where a case's damage comes from: the record that `sqnr locate` writes and reports read.

Files are `<stem>.json` in a folder `located/`; `read` gives those of a folder. Nothing here measures.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from harness.errors import TableError
from harness.files import write_atomically
from harness.records import Case, Cause, Point, Status

FOLDER = "located"
"""Folder of located cases: of a run, in its own folder; else among the reports."""

Finite = Annotated[float, Field(allow_inf_nan=False)] | None
_strict = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, config=_strict)
class LayerLevel:
    """One layer, in the order of the float graph; the fields are those of `harness.measure.layers.Layer`."""

    name: str
    op: str
    actual_op: str
    source: str
    status: Status
    sqnr_db: Finite
    worst_channel_db: Finite
    local_db: Finite
    samples: int


@dataclass(frozen=True, slots=True, config=_strict)
class Culprit:
    """Quantizers that share their qparams, or a layer, and what putting it right changes at the output.

    `names` are quantizer names, or the name of one layer. `old` and `new` are the ranges (lo, hi) before and after;
    `new` is None where it was left in float, both are where there is no range. `local_db` is its own SQNR. `alone_db`
    is what the output's SQNR gains when nothing else is put right; None where that was not measured. `readers` are the
    layers that take its value; without them they are told by its name, which says only the first of several.
    """

    kind: Literal["quantizer", "layer"]
    names: tuple[str, ...]
    cause: Cause | Literal[""]
    old: tuple[float, float] | None
    new: tuple[float, float] | None
    local_db: Finite
    alone_db: Finite
    source: str = ""
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, config=_strict)
class Sensitivity:
    """One share-group: the output's SQNR with it alone in float, and with it alone quantized."""

    names: tuple[str, ...]
    float_db: Finite
    alone_db: Finite


@dataclass(frozen=True, slots=True, config=_strict)
class Located:
    """What was found for one output of a case at one point.

    `against` says where right values were taken from: another variant (`+fix`, `released`), `baseline`, `converted`
    (the graph before lowering) or `fitted` (ranges of the float graph's own values). `sqnr_db` is the output as it is,
    `other_db` with everything put right, and `explained_db` with the culprits alone put right; `explained` is their
    share of the difference, at most 1; None where an output has no SQNR, or nothing was lost. `minimal` says that each
    culprit was seen to be needed. `passes` counts passes of one graph over the evaluation set, all that were made
    beyond measuring the case. Layers are in order, and every layer that only one graph has is listed.
    """

    model: str
    size: str
    weights: str
    flow: str
    variant: str
    point: Point
    output: str
    against: str
    sqnr_db: Finite
    other_db: Finite
    explained_db: Finite
    explained: Finite
    minimal: bool
    passes: float
    culprits: tuple[Culprit, ...]
    layers: tuple[LayerLevel, ...]
    only_float: tuple[str, ...]
    only_quantized: tuple[str, ...]
    sensitivity: tuple[Sensitivity, ...] = ()
    remark: str = ""
    schema: Literal[1] = 1

    @property
    def case(self) -> Case:
        """The case it is about."""
        return Case(self.model, self.size, self.weights, self.flow, self.variant)

    @property
    def stem(self) -> str:
        """Name of its files."""
        return file_stem(self.case, self.point, self.output)


_RECORD = TypeAdapter(Located)


def file_stem(case: Case, point: str, output: str) -> str:
    """A file name for an output of a case. What file systems do not take becomes `_`, and a hash tells such names."""
    parts = (case.model, case.size, case.weights, case.flow, case.variant, point, output)
    plain = "-".join(filter(None, parts))
    name = re.sub(r"[^\w.+-]", "_", plain, flags=re.ASCII)[:180]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
    return name if name == plain else f"{name}-{digest[:12]}"


def write(folder: Path, located: Located) -> Path:
    """Write a record into a folder, replacing the last one of that output; returns its path."""
    path = folder / f"{located.stem}.json"
    write_atomically(path, _RECORD.dump_json(_RECORD.validate_python(asdict(located)), indent=1).decode() + "\n")
    return path


def as_json(records: list[Located]) -> str:
    """Records as one JSON array."""
    return TypeAdapter(list[Located]).dump_json(records, indent=1).decode()


def read(folder: Path) -> list[Located]:
    """All records of a folder, by case, point and output; raises `TableError` naming a file that is none."""
    found, damaged = read_sound(folder)
    if damaged:
        raise damaged[0]
    return found


def read_sound(folder: Path) -> tuple[list[Located], list[TableError]]:
    """The records of a folder as `read` orders them, and an error for each file that is none."""
    found: list[Located] = []
    damaged: list[TableError] = []
    for file in sorted(folder.glob("*.json")):
        try:
            found.append(read_one(file))
        except TableError as error:
            damaged.append(error)
    return sorted(found, key=lambda one: (one.case, one.point, one.output)), damaged


def read_one(file: Path) -> Located:
    """The record of a file; raises `TableError` if it is none."""
    try:
        return _RECORD.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        line = str(error).splitlines()[0]
        raise TableError(f"{file}: no located case: {line}; remove it, or locate again") from None
