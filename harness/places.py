"""Error texts without what is true on one machine only: where its files lie, and where in memory its objects are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_ENDS = r"""\s'"`,;:()<>\[\]{}|"""
_PATH = re.compile(rf"(?<![\w.:/\\])(?:~?(?:/[^/{_ENDS}]+){{2,}}/?|[A-Za-z]:\\[^{_ENDS}]+)")
"""An absolute path, up to the first sign that seldom is in one; not what follows the colon of an address."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def without_places(text: str) -> str:
    """Text with the last part in the place of each absolute path, and `0x...` for addresses in memory.

    Two machines then say the same of the same error, and neither tells its users or folders to the other.
    """
    for folder in _known():  # these first: their names may hold blanks
        text = text.replace(f"{folder}/", "/-/").replace(folder, Path(folder).name)
    return _ADDRESS.sub("0x...", _PATH.sub(_last_part, text))


def _known() -> list[str]:
    folders = {str(folder) for folder in (Path.cwd(), _home(), Path(sys.prefix), Path(__file__).parents[1])}
    return sorted((folder for folder in folders if len(folder) > 1), key=len, reverse=True)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without a home
        return Path("/")


def _last_part(found: re.Match[str]) -> str:
    return re.split(r"[/\\]", found[0].rstrip("/\\"))[-1]
