"""Writing files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import UsageError


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` with UTF-8 `text`; see `replace_atomically`."""
    replace_atomically(path, text.encode("utf-8"))


def replace_atomically(path: Path, content: bytes) -> None:
    """Replace `path` with `content`; raises `UsageError` naming the path if that cannot be done."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
