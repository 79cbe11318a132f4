"""What is packed into a page: unpacked it is what it was, and no part of a page can be mistaken for it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from importlib.resources import files
from typing import Any

import pytest

from harness.report.html import assets


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


@pytest.mark.parametrize("content", [b"", b"</script><!--", bytes(range(256)) * 100])
def test_what_is_packed_comes_back_and_is_letters_and_digits_meanwhile(content: bytes) -> None:
    packed = assets.pack(content)
    assert unpacked(packed) == content
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", packed)


def test_the_same_content_is_packed_into_the_same_text() -> None:
    assert assets.pack(b"content") == assets.pack(b"content")


@pytest.mark.parametrize("data", [{"a": [1, 2.5, None, "é</script>"]}, [], "lone\ud800"])
def test_data_come_back(data: Any) -> None:
    assert json.loads(unpacked(assets.pack_json(data))) == data


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_know_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        assets.pack_json({"deep": [{"down": number}]})


def test_the_libraries_are_those_of_their_packages() -> None:
    found = assets.libraries()
    assert set(found) == {"plotly", "tables", "tables-style"}
    assert unpacked(found["plotly"]) == (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    assert b"DataTable" in unpacked(found["tables"])
    assert b"dataTable" in unpacked(found["tables-style"])


def test_the_libraries_take_less_than_three_megabytes() -> None:
    assert sum(map(len, assets.libraries().values())) < 3e6


@pytest.mark.parametrize("name", ["report.css", "report.js"])
def test_the_pages_own_style_and_script_can_stand_inside_a_page(name: str) -> None:
    """They are put there as they are, so they must not end their own element."""
    text = assets.own(name)
    assert text.strip()
    assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE)
