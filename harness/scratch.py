"""Folders for temporary files, and what is left of those whose process was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR

_YOUNG = 3600.0
"""Seconds. A folder is made before it is locked, so a young one without a lock may be in use."""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder, gone afterwards; before, old ones of that prefix are removed that SIGKILL left behind.

    Whoever uses one holds a lock on it, which the system lets go of with the process, in whichever container it ran:
    a process number would say less.
    """
    _sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as name, held_folder(Path(name)):
        yield Path(name)


@contextmanager
def held_folder(folder: Path) -> Iterator[bool]:
    """Hold a lock on a folder; whether this process has it, which on a file system without locks it has.

    The system lets go of it with the process.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        mine = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mine = False
        except OSError:
            pass
        yield mine
    finally:
        os.close(handle)


def _sweep(prefix: str) -> None:
    """Remove the folders of this user that nobody holds; what cannot be removed is somebody else's trouble."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _remove(entry.path)


def _remove(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        old = time.time() - found.st_mtime > _YOUNG
        if S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and old:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(handle)
