"""Rows as CSV: sorted, exact, and read back bit for bit."""

from __future__ import annotations

import struct
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import table
from harness.records import OutputRow, QuantizerRow
from tests.rows import output_row, quantizer_row

HEADER = ",".join(field.name for field in fields(OutputRow))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "resnet.outputs.csv"


def read(file: Path, text: str) -> list[OutputRow]:
    file.write_bytes(text.encode())
    return table.parse(file, OutputRow)


def test_a_table_is_a_header_and_a_line_for_each_row_sorted_by_key(file: Path) -> None:
    text = table.render([output_row(output=name) for name in ("b", "c", "a")], OutputRow)
    header, *lines = text.splitlines()
    assert header == HEADER
    assert [line.split(",")[6] for line in lines] == ["a", "b", "c"]


def test_the_quantizers_of_one_point_stand_together(file: Path) -> None:
    """The point comes before the name in the key, so a lowered graph's rows follow the converted graph's."""
    rows = [quantizer_row(point=point, quantizer=name) for name in "ab" for point in ("lowered", "converted")]
    lines = table.render(rows, QuantizerRow).splitlines()[1:]
    assert [line.split(",")[5:7] for line in lines] == [
        ["converted", "a"], ["converted", "b"], ["lowered", "a"], ["lowered", "b"]
    ]  # fmt: skip


def test_the_order_in_which_rows_were_measured_leaves_no_trace() -> None:
    rows = [output_row(flow=flow, output=name) for flow in "fg" for name in "ab"]
    assert table.render(rows, OutputRow) == table.render(reversed(rows), OutputRow)


def test_floats_are_written_in_full_and_none_as_an_empty_cell() -> None:
    text = table.render([output_row(sqnr_db=0.1 + 0.2, noise_db=None)], OutputRow)
    assert ",0.30000000000000004," in text
    # numel, no noise nor interval, top-1, nodes, the eight columns of a program, texts
    assert text.splitlines()[1].endswith(",100,,,,0.9,2,3,0,10" + 8 * "," + ",,,")


def test_lines_end_in_lf_only() -> None:
    text = table.render([output_row(), output_row(output="b")], OutputRow)
    assert "\r" not in text
    assert text.count("\n") == 3


def test_a_table_without_rows_comes_back_empty(file: Path) -> None:
    assert read(file, table.render([], OutputRow)) == []


def test_a_quantizer_row_comes_back_as_it_was(file: Path) -> None:
    weight = quantizer_row(
        point="lowered", role="weight", granularity="per_channel", axis=0, zero_point=-3, share_group="a", cause="axis"
    )
    file.write_text(table.render([weight], QuantizerRow))
    assert table.parse(file, QuantizerRow) == [weight]


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.none() | FINITE, st.none() | FINITE)
@example(-0.0, 5e-324)
@example(1.7976931348623157e308, 1e22)
def test_every_finite_float64_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, first: float | None, second: float | None
) -> None:
    file = tmp_path_factory.getbasetemp() / "floats.csv"
    (row,) = read(file, table.render([output_row(sqnr_min_db=first, cosine=second)], OutputRow))
    for given_, got in ((first, row.sqnr_min_db), (second, row.cosine)):
        assert got is None if given_ is None else got is not None
        assert given_ is None or struct.pack("<d", got) == struct.pack("<d", given_)


ODD_NAMES = ["a,b", 'say "x"', "two\nlines", "=1+1", "\u05d0\u05d1\u202e", " padded ", "", "'", "\t", "nan"]
# Git's conflict markers at the start of a line and CR before LF are refused on purpose; surrogates are no text.
NAMES = st.sampled_from(ODD_NAMES) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="<=>|\r"), max_size=30
)


@given(NAMES, NAMES)
def test_odd_names_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, output: str, message: str) -> None:
    file = tmp_path_factory.getbasetemp() / "names.csv"
    row = output_row(output=output, error=message)
    assert read(file, table.render([row], OutputRow)) == [row]


def test_a_name_with_a_lone_carriage_return_comes_back_as_it_was(file: Path) -> None:
    row = output_row(output="a\rb")
    assert read(file, table.render([row], OutputRow)) == [row]
