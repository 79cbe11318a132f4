"""A replay bundle: a folder that makes one failing row reproducible elsewhere.

It holds `bundle.json` (what was measured, how, with what, and the row), `quantizers.csv` (the quantizers of the graph
that was run), and a README.md for people. `sqnr locate --minimise` puts the smallest graph that still shows the defect
into a subfolder `minimal/`. Only data is read back: whatever a stranger puts into a bundle, nothing in it is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from harness import __version__, table
from harness.errors import TableError
from harness.files import replace_all, storable
from harness.places import without_places
from harness.records import STATUSES, Case, OutputRow, Point, QuantizerRow
from harness.report import bundle_text
from harness.sources import file_hash
from harness.store import Run, first_of
from harness.suite import FILE

SCHEMA: Literal[1] = 1
FOLDER = "bundles"
"""Folder of bundles in a run's own folder."""
RECORD, QUANTIZERS, README, MINIMAL = "bundle.json", "quantizers.csv", "README.md", "minimal"
INPUTS: tuple[Literal["calibration", "evaluation"], ...] = ("calibration", "evaluation")
_FACTS = ("platform", "python", "cpu", "stack", "pins")


@dataclass(frozen=True, slots=True)
class Facts:
    """With what a row was measured.

    `environment` is `harness.environment.fingerprint()`. `weights_hash`, `inputs` and `adapter` are what run.json holds
    of the subject: SHA-256 over the float weights, of each batch of `calibration` and `evaluation`, and of the
    adapter's files by name; empty where the subject could not even be loaded. `weights_source` is the checkpoint, if
    the weights came from one; `excluded` are the quantizers that were left in float.
    """

    seed: int
    environment: Mapping[str, Any]
    weights_hash: str = ""
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    adapter: Mapping[str, str] = field(default_factory=dict)
    weights_source: str | None = None
    excluded: tuple[str, ...] = ()


def facts_of(run: Run, case: Case) -> Facts:
    """With what a stored run measured a case."""
    subject = f"{case.model}/{case.size}/{case.weights}"
    return Facts(
        run.seed,
        run.environment,
        run.weight_hashes.get(subject, ""),
        run.input_hashes.get(subject, {}),
        run.adapter_hashes.get(subject, {}),
        run.weights_source,
        run.excluded,
    )


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


_Pin = Annotated[str, Field(pattern=r"^[\w.,+-]{0,64}$")]
_Hash = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
"""SHA-256, or nothing where it is not known."""


class Environment(_Part):
    """Where and with what a row was measured; names no host, user or folder."""

    platform: str = ""
    python: str = ""
    cpu: str = ""
    stack: dict[str, str] = {}
    pins: dict[str, _Pin] = {}


class Checkpoint(_Part):
    """The file that weights came from; it is not part of the bundle."""

    name: str
    sha256: _Hash


class Bundle(_Part):
    """The content of a bundle.json.

    `row` has the values of an output row as they are stored, all exact; the paths in its error are shortened to names,
    as are those in `because`, which says what was wrong with the row. `weights` is SHA-256 over the float weights.
    `quantizers` is the SHA-256 of quantizers.csv.
    """

    version: Literal[1] = Field(alias="schema")
    harness: str
    row: OutputRow
    because: tuple[str, ...]
    command: str
    seed: int
    environment: Environment
    weights: _Hash
    checkpoint: Checkpoint | None
    inputs: dict[Literal["calibration", "evaluation"], tuple[_Hash, ...]]
    adapter: dict[str, _Hash]
    excluded: tuple[str, ...]
    quantizers: _Hash

    @field_validator("row", mode="before")
    @classmethod
    def _whole(cls, row: Any) -> Any:
        """A column that is not there would be None, and then differ from what is measured."""
        names = {item.name for item in fields(OutputRow)}
        if isinstance(row, dict) and (odd := sorted(names ^ row.keys())):
            raise ValueError(f"{odd[0]} is {'missing' if odd[0] in names else 'unknown'}")
        return row

    @field_validator("row")
    @classmethod
    def _known(cls, row: OutputRow) -> OutputRow:
        if row.status not in STATUSES or row.point not in set(Point):
            raise ValueError(f"no output has status {row.status!r} at point {row.point!r}")
        return row


@dataclass(frozen=True, slots=True)
class Read:
    """A bundle as it was read: its record, and the rows in it."""

    folder: Path
    record: Bundle
    quantizers: tuple[QuantizerRow, ...]

    @property
    def row(self) -> OutputRow:
        """The row it is about."""
        return self.record.row


def write(
    folder: Path, row: OutputRow, quantizers: Iterable[QuantizerRow], facts: Facts, because: Sequence[str] = ()
) -> Path:
    """Write the bundle of an output row into a folder, replacing one that is there; returns the folder.

    Of `quantizers`, those of the row's case and point are kept. Raises `UsageError` if the folder cannot be written.
    """
    own = [item for item in quantizers if item.case == row.case and item.point == row.point]
    text = table.render(own, QuantizerRow)
    record = Bundle(
        schema=SCHEMA,
        harness=__version__,
        row=_stored(row),
        because=tuple(storable(without_places(line)) for line in because),
        command=bundle_text.command(row.case, facts.environment, facts.excluded),
        seed=facts.seed,
        environment=Environment(**{name: facts.environment[name] for name in _FACTS if name in facts.environment}),
        weights=facts.weights_hash,
        checkpoint=_checkpoint(row.case.weights, facts.weights_source),
        inputs={kind: tuple(facts.inputs.get(kind, ())) for kind in INPUTS},
        adapter=dict(facts.adapter),
        excluded=facts.excluded,
        quantizers=hashlib.sha256(text.encode()).hexdigest(),
    )
    content = json.dumps(record.model_dump(by_alias=True), indent=1, allow_nan=False) + "\n"
    replace_all(
        {
            folder / QUANTIZERS: text,
            folder / README: bundle_text.readme(record, len(own)),
            folder / RECORD: content,
        }
    )
    return folder


def _stored(row: OutputRow) -> OutputRow:
    texts: dict[str, Any] = {name: storable(value) for name, value in asdict(row).items() if isinstance(value, str)}
    return replace(row, **texts | {"error": storable(without_places(row.error))})


def _checkpoint(weights: str, source: str | None) -> Checkpoint | None:
    if not weights.startswith(FILE):
        return None
    return Checkpoint(name=weights.removeprefix(FILE), sha256=_known_hash(Path(source)) if source else "")


_known_hash = cache(file_hash)  # a run with many failing rows has one checkpoint


def read(folder: Path) -> Read:
    """The bundle in a folder; raises `TableError` naming the file and the field of the first thing that is wrong."""
    file = folder / RECORD
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TableError(f"{file}: cannot be read: {error.strerror}; is {folder} a replay bundle?") from None
    _check_schema(file, content)
    try:
        record = Bundle.model_validate_json(content)
    except ValidationError as error:
        raise TableError(f"{file}: damaged: {first_of(error)}") from None
    row = record.row
    quantizers = table.parse(folder / QUANTIZERS, QuantizerRow)
    if file_hash(folder / QUANTIZERS) != record.quantizers:
        raise TableError(f"{folder / QUANTIZERS}: is not the file that {file} was written with")
    if any((item.case, item.point) != (row.case, row.point) for item in quantizers):
        raise TableError(f"{folder / QUANTIZERS}: holds rows of another case than {file}")
    return Read(folder, record, tuple(quantizers))


def _check_schema(file: Path, content: bytes) -> None:
    try:
        loaded = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TableError(f"{file}: damaged: {type(error).__name__}: {error}") from None
    schema = loaded.get("schema") if isinstance(loaded, dict) else None
    if type(schema) is int and schema != SCHEMA:
        raise TableError(f"{file}: schema {schema}, this version reads {SCHEMA}; it needs another sqnr-harness")
