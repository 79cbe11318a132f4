"""Runs in folders and archives, and what the history finds in them."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.history_lines import StoredRun
from harness.history_sources import collect
from harness.records import OutputRow
from tests.rows import ENVIRONMENT, output_row, quantizer_row, run_of

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def stored(number: int, *rows: OutputRow, name: str = "", **changes: object) -> StoredRun:
    """Run `number`, started so many hours after the first; 30 dB logits unless told otherwise."""
    environment = {**ENVIRONMENT, **changes.pop("environment", {})}  # type: ignore[dict-item]
    run = run_of(Path(name or f"run{number:02d}"), *(rows or (output_row(),)), environment=environment, **changes)
    return StoredRun(f"{number:016x}", START + timedelta(hours=number), run)


def save(folder: Path, **changes: Any) -> Path:
    """A stored run in `folder`; of 30 dB, complete, unless told otherwise."""
    row = output_row(**changes.pop("row", {}))
    run_of(folder, row, quantizer_row(), **changes).save()
    return folder


def edit(folder: Path, **changes: Any) -> None:
    """Change the header of a stored run."""
    file = folder / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def pack(archive: Path, folder: Path, inside: str) -> Path:
    """A zip archive with what lies in `folder`, as if that were called `inside`."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.iterdir()):
            packed.writestr(f"{inside}{file.name}", file.read_bytes())  # `write` would mend the name
    return archive


def names(*sources: Path) -> list[str]:
    """Names of the runs in sources without any note."""
    runs, notes = collect(sources)
    assert notes == []
    return [stored.run.name for stored in runs]


def only_note(*sources: Path) -> str:
    """The one note of sources without any run."""
    runs, notes = collect(sources)
    assert runs == []
    [note] = notes
    assert "\n" not in note
    return note
