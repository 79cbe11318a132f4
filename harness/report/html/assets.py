"""What the page needs to work offline: plotly.js and DataTables from their packages, packed into text.

Packed (gzip, base64) a page of a nightly run is under 3 MB instead of over 6; browsers unpack it with
`DecompressionStream`, which all of them have since 2023.
"""

from __future__ import annotations

import base64
import gzip
import json
from importlib.resources import files
from typing import Any


def libraries() -> dict[str, str]:
    """plotly.js and DataTables with its styles, each once, packed, by the name under which the page looks for it."""
    return {
        "plotly": pack((files("plotly") / "package_data" / "plotly.min.js").read_bytes()),
        "tables": pack((files("itables") / "html" / "dt_bundle.js").read_bytes()),
        "tables-style": pack((files("itables") / "html" / "dt_bundle.css").read_bytes()),
    }


def own(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("harness.report.html") / "templates" / name).read_text(encoding="utf-8")


def pack_json(data: Any) -> str:
    """Data, packed; NaN and infinity, which JSON does not know, are an error."""
    return pack(json.dumps(data, allow_nan=False, separators=(",", ":")).encode("utf-8", "backslashreplace"))


def pack(content: bytes) -> str:
    """Content as text that no part of a page can be mistaken for."""
    return base64.b64encode(gzip.compress(content, 3, mtime=0)).decode("ascii")
