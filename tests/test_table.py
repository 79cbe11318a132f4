"""Rows as CSV: what is written comes back bit for bit, and anything else is an error that says where."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import table
from harness.errors import TableError
from harness.records import OutputRow, QuantizerRow
from tests.rows import output_row, quantizer_row

COLUMNS = [field.name for field in fields(OutputRow)]
HEADER = ",".join(COLUMNS)
HANDWRITTEN = f"{HEADER}\nresnet,small,trained,x86-static,released,converted,logits,measured,30.5,,,,,100,,,\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "resnet.outputs.csv"


def read(file: Path, text: str) -> list[OutputRow]:
    file.write_bytes(text.encode())
    return table.parse(file, OutputRow)


def error_of(file: Path, text: str | bytes) -> str:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TableError) as caught:
        table.parse(file, OutputRow)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_cell(column: str, value: str) -> str:
    """The handwritten table with one cell of its row replaced."""
    cells = HANDWRITTEN.splitlines()[1].split(",")
    cells[COLUMNS.index(column)] = value
    return f"{HEADER}\n{','.join(cells)}\n"


# What is written


def test_a_table_is_a_header_and_a_line_for_each_row_sorted_by_key(file: Path) -> None:
    text = table.render([output_row(output=name) for name in ("b", "c", "a")], OutputRow)
    header, *lines = text.splitlines()
    assert header == HEADER
    assert [line.split(",")[6] for line in lines] == ["a", "b", "c"]


def test_the_order_in_which_rows_were_measured_leaves_no_trace() -> None:
    rows = [output_row(flow=flow, output=name) for flow in "fg" for name in "ab"]
    assert table.render(rows, OutputRow) == table.render(reversed(rows), OutputRow)


def test_floats_are_written_in_full_and_none_as_an_empty_cell() -> None:
    text = table.render([output_row(sqnr_db=0.1 + 0.2, noise_db=None)], OutputRow)
    assert ",0.30000000000000004," in text
    assert text.splitlines()[1].endswith(",100,,0.9,")  # numel, no noise_db, task_metric, no error


def test_lines_end_in_lf_only() -> None:
    text = table.render([output_row(), output_row(output="b")], OutputRow)
    assert "\r" not in text
    assert text.count("\n") == 3


def test_a_table_without_rows_comes_back_empty(file: Path) -> None:
    assert read(file, table.render([], OutputRow)) == []


def test_a_handwritten_table_is_read_by_the_names_of_its_columns(file: Path) -> None:
    (row,) = read(file, HANDWRITTEN)
    assert (row.sqnr_db, row.sqnr_min_db, row.numel, row.error) == (30.5, None, 100, "")
    assert type(row.numel) is int
    swapped = "\n".join(",".join(reversed(line.split(","))) for line in HANDWRITTEN.splitlines()) + "\n"
    assert read(file, swapped) == [row]


def test_a_quantizer_row_comes_back_as_it_was(file: Path) -> None:
    weight = quantizer_row(role="weight", granularity="per_channel", axis=0, zero_point=-3, share_group="a")
    file.write_text(table.render([weight], QuantizerRow))
    assert table.parse(file, QuantizerRow) == [weight]


def test_a_failed_stage_is_a_status(file: Path) -> None:
    (row,) = read(file, with_cell("status", "failed:convert"))
    assert row.status == "failed:convert"


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.none() | FINITE, st.none() | FINITE)
@example(-0.0, 5e-324)
@example(1.7976931348623157e308, 1e22)
def test_every_finite_float64_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, first: float | None, second: float | None
) -> None:
    file = tmp_path_factory.getbasetemp() / "floats.csv"
    (row,) = read(file, table.render([output_row(sqnr_db=first, cosine=second)], OutputRow))
    for given_, got in ((first, row.sqnr_db), (second, row.cosine)):
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


# What is refused


def test_a_duplicate_key_names_both_lines(file: Path) -> None:
    message = error_of(file, HANDWRITTEN + HANDWRITTEN.splitlines()[1] + "\n")
    assert message.startswith(f"{file}:3: duplicate key resnet/small/trained/x86-static/released/converted/logits")
    assert "line 2" in message


def test_rows_that_differ_in_any_part_of_the_key_are_no_duplicates(file: Path) -> None:
    first = output_row()
    parts = ("model", "size", "weights", "flow", "variant", "output")
    rows = [first, replace(first, point="float"), *(replace(first, **{part: "other"}) for part in parts)]
    assert len(read(file, table.render(rows, OutputRow))) == 8


def test_an_unknown_column_is_named(file: Path) -> None:
    message = error_of(file, HANDWRITTEN.replace("sqnr_db", "snr_db", 1))
    assert message.startswith(f"{file}:1:")
    assert "unknown column 'snr_db'" in message


def test_a_missing_column_is_named(file: Path) -> None:
    assert f"{file}:1: missing column 'error'" in error_of(file, HANDWRITTEN.replace(",error\n", "\n"))


def test_a_column_that_appears_twice_is_refused(file: Path) -> None:
    message = error_of(file, HANDWRITTEN.replace(HEADER, f"{HEADER},error"))
    assert message.startswith(f"{file}:1: a column appears twice")


@pytest.mark.parametrize("value", ["abc", "1;5", "0x10", "--1", "None", "-"])
def test_what_is_not_a_number_names_file_line_and_column(file: Path, value: str) -> None:
    message = error_of(file, with_cell("sqnr_db", value))
    assert message == f"{file}:2: column sqnr_db: {value!r} is not a number"


@pytest.mark.parametrize("value", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999"])
def test_a_number_that_is_not_finite_names_file_line_and_column(file: Path, value: str) -> None:
    message = error_of(file, with_cell("sqnr_min_db", value))
    assert message.startswith(f"{file}:2: column sqnr_min_db: {value!r}")


@pytest.mark.parametrize("value", ["100.0", "1e2", "ten", pytest.param("1" + "0" * 400, id="1e400")])
def test_a_count_that_is_no_sensible_integer_names_file_line_and_column(file: Path, value: str) -> None:
    assert error_of(file, with_cell("numel", value)).startswith(f"{file}:2: column numel: ")


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", "fine"), ("status", "failed:"), ("status", "failed:cook"), ("status", ""), ("point", "quantized")],
)
def test_a_word_outside_the_vocabulary_names_the_column_and_the_choices(file: Path, column: str, value: str) -> None:
    message = error_of(file, with_cell(column, value))
    assert message.startswith(f"{file}:2: column {column}: {value!r} is not one of ")
    assert ("mismatch" if column == "status" else "converted") in message


@pytest.mark.parametrize(
    ("column", "value"), [("status", "measured"), ("role", "gradient"), ("granularity", "per_row")]
)
def test_a_quantizer_outside_the_vocabulary_names_the_column(file: Path, column: str, value: str) -> None:
    file.write_text(table.render([quantizer_row(**{column: value})], QuantizerRow))
    with pytest.raises(TableError, match=f":2: column {column}: '{value}' is not one of "):
        table.parse(file, QuantizerRow)


def test_a_line_with_cells_cut_off_is_refused(file: Path) -> None:
    message = error_of(file, f"{HEADER}\nresnet,small,trained\n")
    assert message.startswith(f"{file}:2: 3 cells, the header has 17")


def test_a_file_cut_off_inside_its_last_line_is_refused(file: Path) -> None:
    message = error_of(file, HANDWRITTEN.removesuffix("\n"))
    assert message.startswith(f"{file}:2: the last line has no end")


def test_a_number_cut_short_is_not_taken_for_a_smaller_one(file: Path) -> None:
    text = HANDWRITTEN[: HANDWRITTEN.index("30.5") + 3]  # ...,30.
    assert error_of(file, text).startswith(f"{file}:2:")


def test_an_empty_line_is_refused(file: Path) -> None:
    assert error_of(file, HANDWRITTEN + "\n").startswith(f"{file}:3: 0 cells")


def test_crlf_is_refused_with_the_setting_that_prevents_it(file: Path) -> None:
    message = error_of(file, HANDWRITTEN.replace("\n", "\r\n"))
    assert message.startswith(f"{file}:1: CRLF")
    assert "eol=lf" in message


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "=======", ">>>>>>> branch", "||||||| base"])
def test_a_merge_conflict_marker_names_its_line(file: Path, marker: str) -> None:
    message = error_of(file, f"{HANDWRITTEN}{marker}\n")
    assert message.startswith(f"{file}:3: merge conflict marker {marker[:7]}")


def test_an_empty_file_is_refused(file: Path) -> None:
    assert error_of(file, "").startswith(f"{file}: empty file")


def test_bytes_that_are_no_text_name_file_and_line(file: Path) -> None:
    assert error_of(file, HANDWRITTEN.encode() + b"resnet,\xff\n").startswith(f"{file}:3: ")


@pytest.mark.parametrize(("line", "sound", "stray"), [(1, "model", '"mod"el'), (2, "resnet", '"res"net')])
def test_stray_quotes_are_refused_in_the_header_as_in_a_row(file: Path, line: int, sound: str, stray: str) -> None:
    assert error_of(file, HANDWRITTEN.replace(sound, stray, 1)).startswith(f"{file}:{line}: ")


def test_a_quote_that_is_never_closed_is_refused(file: Path) -> None:
    assert error_of(file, with_cell("output", '"logits')).startswith(f"{file}:2: ")


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None])
def test_a_folder_or_nothing_in_place_of_the_file_is_an_error(file: Path, make: Callable[[Path], None]) -> None:
    make(file)
    with pytest.raises(TableError, match=r"resnet\.outputs\.csv: cannot be read"):
        table.parse(file, OutputRow)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_no_row_can_hold_a_number_that_is_not_finite(value: float) -> None:
    with pytest.raises(ValueError, match="sqnr_db"):
        output_row(sqnr_db=value)
    with pytest.raises(ValueError, match="hi"):
        quantizer_row(hi=value)
