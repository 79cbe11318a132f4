"""Tables for a spreadsheet: no cell is a formula, and every number is spelt as in the stored table."""

from __future__ import annotations

import csv
import io

import pytest

from harness import table
from harness.records import OutputRow, QuantizerRow
from harness.report import sheets
from tests.rows import output_row, quantizer_row, repaired_row


def cells(text: str) -> list[dict[str, str]]:
    """What a reader of CSV makes of a text."""
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


@pytest.mark.parametrize("name", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "\n=x", "＝1", "＠x"])
def test_words_that_begin_like_a_formula_get_an_apostrophe_and_nothing_else_does(name: str) -> None:
    row = output_row(output=name, error=name, sqnr_db=-4.5)
    (shown,) = cells(sheets.render([row], OutputRow))
    (stored,) = cells(table.render([row], OutputRow))
    assert (shown["output"], shown["error"]) == (f"'{name}", f"'{name}")
    assert {key: value for key, value in shown.items() if key not in ("output", "error")} == {
        key: value for key, value in stored.items() if key not in ("output", "error")
    }


def test_a_variant_is_such_a_word_and_a_negative_number_is_not() -> None:
    (shown,) = cells(sheets.render([repaired_row(sqnr_db=-4.25, sqnr_min_db=-1e-07)], OutputRow))
    assert (shown["variant"], shown["sqnr_db"], shown["sqnr_min_db"]) == ("'+fix", "-4.25", "-1e-07")


def test_ranges_of_quantizers_keep_their_signs_and_digits() -> None:
    row = quantizer_row(quantizer="-x", lo=-0.30000000000000004, quant_min=-128, zero_point=-3, share_group="+g")
    (shown,) = cells(sheets.render([row], QuantizerRow))
    assert [shown[name] for name in ("quantizer", "lo", "quant_min", "zero_point", "share_group")] == [
        "'-x", "-0.30000000000000004", "-128", "-3", "'+g"
    ]  # fmt: skip


def test_a_table_without_such_words_is_the_stored_one() -> None:
    rows = [output_row(output=name) for name in ("a", "b-c", "it's", 'quo"te', "com,ma", "two\nlines")]
    assert sheets.render(rows, OutputRow) == table.render(rows, OutputRow)


def test_the_header_and_the_number_of_rows_stay() -> None:
    rows = [output_row(), repaired_row()]
    shown, stored = sheets.render(rows, OutputRow), table.render(rows, OutputRow)
    assert shown.splitlines()[0] == stored.splitlines()[0]
    assert len(cells(shown)) == len(cells(stored)) == 2
    assert sheets.render([], OutputRow) == table.render([], OutputRow)
