"""The only reader and writer of baselines: `baselines/<platform>/<model>.{outputs,quantizers}.csv`, environment.json.

environment.json is the sidecar of all tables in its folder: the schema version, and one entry for each `accept` with
its reason, the cases it took over and the stack they were measured with.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from harness import table
from harness.errors import NoBaselineError, TableError, UsageError
from harness.files import replace_all
from harness.records import Case, OutputRow, QuantizerRow

SCHEMA = 4
SIDECAR = "environment.json"
T = TypeVar("T", OutputRow, QuantizerRow)
_LOCK_SECONDS = 30


@dataclass(slots=True)
class Baseline:
    """All accepted rows of one platform, by key, and the journal of accepts, oldest first."""

    outputs: dict[tuple[str, ...], OutputRow] = field(default_factory=dict)
    quantizers: dict[tuple[str, ...], QuantizerRow] = field(default_factory=dict)
    accepted: list[dict[str, Any]] = field(default_factory=list)

    def stack_of(self, case: Case) -> dict[str, str]:
        """Package versions with which a case's rows were measured; empty if not recorded."""
        stack: dict[str, str] = self._entry_of(case).get("stack", {})
        return stack

    def environments_of(self, cases: Iterable[Case]) -> list[dict[str, Any]]:
        """Processor, pins and stack with which rows of these cases were measured, each once."""
        known = ("cpu", "pins", "stack")
        entries = [{name: entry[name] for name in known if name in entry} for entry in map(self._entry_of, cases)]
        return [entry for index, entry in enumerate(entries) if entry and entry not in entries[:index]]

    def _entry_of(self, case: Case) -> dict[str, Any]:
        """The journal's last entry on a case's model; empty if there is none."""
        subject = f"{case.model}/{case.size}/{case.weights}"
        return next((entry for entry in reversed(self.accepted) if subject in entry["subjects"]), {})


def read(folder: Path) -> Baseline:
    """The baselines in a platform's folder.

    Raises `NoBaselineError` if there are none, and `TableError` naming file, line and column for a damaged one.
    """
    if not any(folder.glob("*.csv")):
        known = sorted(path.name for path in folder.parent.glob("*") if any(path.glob("*.csv")))
        raise NoBaselineError(
            f"{folder}: no baselines for this platform (there are some for: {', '.join(known) or 'none'}); "
            'those of a run become the first by: sqnr accept --because "..."'
        )
    baseline = Baseline(accepted=_read_sidecar(folder / SIDECAR))
    for path in sorted(folder.glob("*.csv")):
        model, _, kind = path.stem.rpartition(".")
        if kind == "outputs":
            baseline.outputs |= _by_key(path, model, table.parse(path, OutputRow))
        elif kind == "quantizers":
            baseline.quantizers |= _by_key(path, model, table.parse(path, QuantizerRow))
        else:
            raise TableError(f"{path}: not a baseline; expected <model>.outputs.csv or <model>.quantizers.csv")
    return baseline


def _by_key(path: Path, model: str, rows: list[T]) -> dict[tuple[str, ...], T]:
    for row in rows:
        if row.model != model:
            raise TableError(f"{path}: column model: row {'/'.join(row.key)} belongs into {row.model}.*.csv")
    return {row.key: row for row in rows}


def _read_sidecar(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise TableError(
                f"{path}: schema {content['schema']}, this version reads {SCHEMA}; remove the folder, then measure "
                'again: sqnr run, sqnr accept --because "..."'
            )
        accepted = list(content["accepted"])
        for entry in accepted:
            if not (isinstance(entry["subjects"], list) and isinstance(entry["stack"], dict)):
                raise TypeError("subjects must be a list and stack an object")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableError(f"{path}: cannot be read: {type(error).__name__}: {error}") from None
    return accepted


def write(folder: Path, baseline: Baseline) -> None:
    """Replace the files of a platform's folder; tables left without rows are removed.

    Raises `UsageError` if a file cannot be written; then all are as they were.
    """
    outputs, quantizers = _by_model(baseline.outputs.values()), _by_model(baseline.quantizers.values())
    texts = {folder / f"{model}.outputs.csv": table.render(rows, OutputRow) for model, rows in outputs.items()}
    texts |= {folder / f"{m}.quantizers.csv": table.render(rows, QuantizerRow) for m, rows in quantizers.items()}
    sidecar = json.dumps({"schema": SCHEMA, "accepted": baseline.accepted}, indent=1) + "\n"
    replace_all({**texts, folder / SIDECAR: sidecar})
    for path in folder.glob("*.csv"):
        if path not in texts:
            path.unlink()


def _by_model(rows: Iterable[T]) -> dict[str, list[T]]:
    models: dict[str, list[T]] = defaultdict(list)
    for row in rows:
        models[row.model].append(row)
    return models


def lock(folder: Path) -> FileLock:
    """Held while baselines are read, changed and written: two accepts at once come one after the other."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = FileLock(folder.parent / f".{folder.name}.lock", timeout=_LOCK_SECONDS)
        held.acquire()
    except Timeout:
        raise UsageError(f"{folder}: another accept has held the baselines for {_LOCK_SECONDS} s") from None
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    return held
