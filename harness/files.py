"""Writing files so that a reader sees the old content or the new, never half of it; reading those of strangers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from errno import EISDIR
from os import strerror
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE, S_ISREG

from harness.errors import TableError, UsageError


def storable(text: str) -> str:
    """Text as files hold it, a lone surrogate as an escape; pandas' strings take no other."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` with `text`; raises `UsageError` naming the path if that cannot be done."""
    replace_all({path: text})


def replace_all(contents: Mapping[Path, str | bytes]) -> None:
    """Replace several files, in order, once all their new contents are safely on disk.

    Raises `UsageError` naming the path that cannot be written. While contents are still being put on disk, no file has
    been replaced yet, only devices and pipes have been written to. Should the system then refuse to put one in its
    place (somebody made a folder of that name meanwhile), those before it are new, and it and the rest as they were.

    A file keeps its permissions; a new one has those that the umask leaves. Text is UTF-8; what UTF-8 cannot say (a
    lone surrogate in somebody's error message) is written as an escape.
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
            temporary = target.with_name(f".sqnr-{token_hex(8)}")
            with temporary.open("xb") as file:
                written.append((temporary, target))
                file.write(encoded)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                temporary.chmod(S_IMODE(target.stat().st_mode))
        for temporary, path in written:
            temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def read_inside(folder: Path, name: str, most: int) -> bytes:
    """Content of a file in a folder that a stranger may have filled.

    Raises `TableError` in a line if it is no regular file (a pipe would be waited on for ever, a device never ends),
    lies outside by way of a link, or has over `most` bytes.
    """
    path = folder / name
    try:
        inside = Path(os.path.realpath(path, strict=True))
        if not inside.is_relative_to(os.path.realpath(folder)):
            raise TableError(f"{path}: is a link that leads out of {folder}; only files inside are read")
        # A pipe that nobody writes to is opened at once, and what has been put in the place meanwhile is no way out.
        handle = os.open(inside, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        if not S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise TableError(f"{path}: is no regular file")
        with os.fdopen(handle, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > most:
        raise TableError(f"{path}: has over {most} bytes, no more are read")
    return content
