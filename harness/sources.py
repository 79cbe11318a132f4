"""Which source files an adapter was made of, as hashes: two places that measure one model can see where they differ."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes; of a folder, over the names and hashes of all files in it. Empty if it is not there.

    A checkpoint may be a folder, as those of `transformers` are.
    """
    try:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            listed = [(file.relative_to(path).as_posix(), file_hash(file)) for file in files]
            return hashlib.sha256(repr(listed).encode()).hexdigest()
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return ""


def source_hashes(adapter: Any) -> dict[str, str]:
    """SHA-256 of an adapter's file and of the helpers beside it that are loaded by now, by the file's name.

    Helpers of other packages are not the adapter's: the versions of those that count are in the environment.
    """
    package = adapter.__name__.rpartition(".")[0]
    hashes = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and (name == adapter.__name__ or (package and f"{name}.".startswith(f"{package}."))):
            inside = name.removeprefix(package).strip(".").split(".")
            hashes["/".join([*inside[:-1], Path(file).name])] = file_hash(Path(file))
    return hashes
