"""Copies of a run's tables for people who open them in a spreadsheet: what it would take for a formula is text.

The stored tables stay exact, and the harness reads nothing but those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar, get_type_hints

from harness import table
from harness.records import OutputRow, QuantizerRow

T = TypeVar("T", OutputRow, QuantizerRow)

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a cell that is taken for a formula begins with; the wide signs are taken for the narrow ones."""


def render(rows: Iterable[T], row_type: type[T]) -> str:
    """CSV text as `table.render` gives it, but for an apostrophe before words that would be taken for a formula.

    A variant is one: it begins with `+`. Numbers stay as they are, negative ones too.
    """
    hints = get_type_hints(row_type)
    words = [field.name for field in fields(row_type) if hints[field.name] is str]
    return table.render((_harmless(row, words) for row in rows), row_type)


def _harmless(row: T, words: list[str]) -> T:
    marked: dict[str, Any] = {name: f"'{word}" for name in words if (word := getattr(row, name)).startswith(_FORMULA)}
    return replace(row, **marked) if marked else row
