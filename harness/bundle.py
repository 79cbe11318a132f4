"""A replay bundle: a folder that makes one failing row reproducible elsewhere.

It holds `bundle.json` (what was measured, how, with what, and the row), `quantizers.csv` (the quantizers of the graph
that was run), and a README.md for people. `sqnr locate --minimise` puts the smallest graph that still shows the defect
into a subfolder `minimal/`. Only data is read back: whatever a stranger puts into a bundle, nothing in it is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness import __version__, table
from harness.bundle_record import INPUTS, MOST_REASONS, MOST_TEXT, SCHEMA, Bundle, Checkpoint, Environment
from harness.errors import TableError, UsageError
from harness.files import read_inside, replace_all, storable
from harness.places import without_places
from harness.records import Case, OutputRow, QuantizerRow
from harness.report import bundle_text
from harness.report.deltas import shortened
from harness.sources import file_hash
from harness.store import Run, first_of
from harness.suite import FILE

FOLDER = "bundles"
"""Folder of bundles in a run's own folder."""
RECORD, QUANTIZERS, README, MINIMAL = "bundle.json", "quantizers.csv", "README.md", "minimal"
MOST_BYTES = {RECORD: 16 * 2**20, QUANTIZERS: 64 * 2**20}
"""Of a file; a thousand quantizers take 0.2 MB, a thousand batches 0.1 MB."""
_MOST_ERROR = 600
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

    Of `quantizers`, those of the row's case and point are kept. Raises `UsageError` if the folder cannot be written, or
    if something is longer than what `read` takes.
    """
    own = [item for item in quantizers if item.case == row.case and item.point == row.point]
    text = table.render(own, QuantizerRow)
    try:
        record = _record(row, facts, because, hashlib.sha256(text.encode()).hexdigest())
    except ValidationError as error:
        raise UsageError(f"{folder}: no bundle is made: {first_of(error)}") from None
    content = json.dumps(record.model_dump(by_alias=True), indent=1, allow_nan=False) + "\n"
    for name, made in ((RECORD, content), (QUANTIZERS, text)):
        if len(made.encode()) > MOST_BYTES[name]:
            raise UsageError(f"{folder}: no bundle is made: {name} would have over {MOST_BYTES[name]} bytes")
    replace_all(
        {
            folder / QUANTIZERS: text,
            folder / README: bundle_text.readme(record, len(own)),
            folder / RECORD: content,
        }
    )
    return folder


def _record(row: OutputRow, facts: Facts, because: Sequence[str], quantizers: str) -> Bundle:
    reasons = [shortened(storable(without_places(line)), MOST_TEXT) for line in because[:MOST_REASONS]]
    if len(because) > MOST_REASONS:
        reasons[-1] = f"and {len(because) - MOST_REASONS + 1} more"
    return Bundle(
        schema=SCHEMA,
        harness=__version__,
        row=_stored(row),
        because=tuple(reasons),
        command=bundle_text.command(row, facts.environment.get("pins", {}), facts.excluded),
        seed=facts.seed,
        environment=Environment(**{name: facts.environment[name] for name in _FACTS if name in facts.environment}),
        weights=facts.weights_hash,
        checkpoint=_checkpoint(row.case.weights, facts.weights_source),
        inputs={kind: tuple(facts.inputs.get(kind, ())) for kind in INPUTS},
        adapter=dict(facts.adapter),
        excluded=facts.excluded,
        quantizers=quantizers,
    )


def _stored(row: OutputRow) -> OutputRow:
    texts: dict[str, Any] = {name: storable(value) for name, value in asdict(row).items() if isinstance(value, str)}
    return replace(row, **texts | {"error": storable(without_places(row.error))})


def _checkpoint(weights: str, source: str | None) -> Checkpoint | None:
    if not weights.startswith(FILE):
        return None
    return Checkpoint(name=weights.removeprefix(FILE), sha256=_known_hash(Path(source)) if source else "")


_known_hash = cache(file_hash)  # a run with many failing rows has one checkpoint


def read(folder: Path) -> Read:
    """The bundle in a folder; raises `TableError` naming the file and the field of the first thing that is wrong.

    Whatever a stranger put there: only regular files in the folder itself are opened, none larger than `MOST_BYTES`.
    """
    file = folder / RECORD
    try:
        content = read_inside(folder, RECORD, MOST_BYTES[RECORD])
    except TableError as error:
        raise TableError(f"{error}; is {folder} a replay bundle?") from None
    _check_schema(file, content)
    try:
        record = Bundle.model_validate_json(content)
    except ValidationError as error:
        raise TableError(f"{file}: damaged: {first_of(error)}") from None
    row = record.row
    text = read_inside(folder, QUANTIZERS, MOST_BYTES[QUANTIZERS])
    try:
        quantizers = table.parse(folder / QUANTIZERS, QuantizerRow, text)
    except TableError as error:  # a cell may be as long as the file
        raise TableError(shortened(str(error), _MOST_ERROR)) from None
    if hashlib.sha256(text).hexdigest() != record.quantizers:
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
