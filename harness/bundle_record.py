"""What a bundle.json holds, and how much of it: a stranger wrote it, so nothing in it is endless.

The bounds are far above what a bundle needs. They hold for bundles that are written as well: none is that cannot be
read.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from harness.records import STATUSES, Case, OutputRow, Point
from harness.report.deltas import shortened
from harness.suite import FILE

SCHEMA = 1
INPUTS: tuple[Literal["calibration", "evaluation"], ...] = ("calibration", "evaluation")
MOST_NAME, MOST_TEXT = 500, 2000
"""Characters of a name or version, and of an output's path or an error (which rows cut at 300)."""
MOST_REASONS = 1000
_MOST_ENTRIES, _MOST_FILES, _MOST_EXCLUDED = 100, 1000, 1000
_LOWEST_SEED, _LARGEST_SEED = -(2**63), 2**64 - 1
"""What `torch.manual_seed` takes."""

_Name = Annotated[str, Field(max_length=MOST_NAME)]
_Text = Annotated[str, Field(max_length=MOST_TEXT)]
_Pin = Annotated[str, Field(pattern=r"^[\w.,+-]{0,64}$")]
_Hash = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
"""SHA-256, or nothing where it is not known."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Environment(_Part):
    """Where and with what a row was measured; names no host, user or folder."""

    platform: _Name = ""
    python: _Name = ""
    cpu: _Name = ""
    stack: Annotated[dict[_Name, _Name], Field(max_length=_MOST_ENTRIES)] = {}
    pins: Annotated[dict[_Name, _Pin], Field(max_length=_MOST_ENTRIES)] = {}


class Checkpoint(_Part):
    """The file that weights came from; it is not part of the bundle."""

    name: _Name
    sha256: _Hash


class Bundle(_Part):
    """The content of a bundle.json.

    `row` has the values of an output row as they are stored, all exact; the paths in its error are shortened to names,
    as are those in `because`, which says what was wrong with the row. `weights` is SHA-256 over the float weights.
    `quantizers` is the SHA-256 of quantizers.csv. `command` is for whoever reads the file: what the program advises
    it makes of the row itself (`harness.report.bundle_text.command_of`).
    """

    version: Annotated[int, Field(ge=SCHEMA, le=SCHEMA)] = Field(alias="schema")
    harness: _Name
    row: OutputRow
    because: Annotated[tuple[_Text, ...], Field(max_length=MOST_REASONS)]
    command: str
    seed: Annotated[int, Field(ge=_LOWEST_SEED, le=_LARGEST_SEED)]
    environment: Environment
    weights: _Hash
    checkpoint: Checkpoint | None
    inputs: dict[Literal["calibration", "evaluation"], tuple[_Hash, ...]]
    adapter: Annotated[dict[_Name, _Hash], Field(max_length=_MOST_FILES)]
    excluded: Annotated[tuple[_Name, ...], Field(max_length=_MOST_EXCLUDED)]
    quantizers: _Hash

    @field_validator("row", mode="before")
    @classmethod
    def _whole(cls, row: Any) -> Any:
        """A column that is not there would be None, and then differ from what is measured."""
        names = {item.name for item in fields(OutputRow)}
        if isinstance(row, dict) and (odd := sorted(names ^ row.keys())):
            raise ValueError(f"{shortened(odd[0])} is {'missing' if odd[0] in names else 'unknown'}")
        return row

    @field_validator("row")
    @classmethod
    def _known(cls, row: OutputRow) -> OutputRow:
        for item in fields(OutputRow):
            value, most = getattr(row, item.name), MOST_NAME if item.name in Case.__slots__ else MOST_TEXT
            if isinstance(value, str) and len(value) > most:
                raise ValueError(f"{item.name} has {len(value)} characters, at most {most} are read")
        if row.status not in STATUSES or row.point not in set(Point):
            raise ValueError(f"no output has status {row.status!r} at point {row.point!r}")
        return row

    @field_validator("checkpoint")
    @classmethod
    def _of_the_row(cls, checkpoint: Checkpoint | None, info: ValidationInfo) -> Checkpoint | None:
        row = info.data.get("row")
        if isinstance(row, OutputRow):
            named = row.weights.removeprefix(FILE) if row.weights.startswith(FILE) else None
            if named != (checkpoint.name if checkpoint else None) or "/" in (named or ""):
                raise ValueError(f"is not the file that the row's weights {row.weights!r} name")
        return checkpoint
