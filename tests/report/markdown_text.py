"""The parts of a markdown report, and a long name to put into one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.judge import Judgement
from harness.store import Run

Made = tuple[Run, Judgement]
LONG = "<|@#1`" * 50
"""A name of 300 characters, each of which takes several when it is escaped."""
TAGS = {
    "h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "br", "details", "summary"
}  # fmt: skip


def split(line: str) -> list[str]:
    """The cells of a line, split at the `|` that are not escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            yield [split(line) for line in lines]


def folded(text: str, title: str) -> str:
    """What stands in the folded section whose title holds these words."""
    (body,) = re.findall(r"<details><summary>[^<]*" + re.escape(title) + r"[^<]*</summary>(.*?)</details>", text, re.S)
    return str(body)


def changes(text: str) -> list[list[str]]:
    """The cells of the table of changes, without its two lines of heading."""
    above = text.split("<details>")[0]
    return next(tables(above))[2:] if "| likely cause |" in above else []
