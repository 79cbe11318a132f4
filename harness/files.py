"""Writing files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from errno import EISDIR
from os import strerror
from pathlib import Path

from harness.errors import UsageError


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` with `text`; raises `UsageError` naming the path if that cannot be done."""
    replace_all({path: text})


def replace_all(contents: Mapping[Path, str | bytes]) -> None:
    """Replace several files, in order, once all their new contents are safely on disk.

    Raises `UsageError` naming the path that cannot be written; then every file is as it was. Text is UTF-8; what
    UTF-8 cannot say (a lone surrogate in somebody's error message) is written as an escape.
    """
    written: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, content in contents.items():
            target = path.resolve()
            encoded = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                raise IsADirectoryError(EISDIR, strerror(EISDIR))
            if target.exists() and not target.is_file():
                target.write_bytes(encoded)  # a device or a pipe is written to, never replaced
                continue
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            written.append((Path(temporary), target))
            with os.fdopen(handle, "wb") as file:
                file.write(encoded)
                file.flush()
                os.fsync(file.fileno())
        for temporary_path, path in written:
            temporary_path.chmod(0o644)
            temporary_path.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        for temporary_path, _ in written:
            temporary_path.unlink(missing_ok=True)
