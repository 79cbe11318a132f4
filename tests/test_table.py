"""Reading tables: whatever is not a table of rows is an error that says where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness import table
from harness.errors import TableError
from harness.records import Cause, FixState, OutputRow, QuantizerRow, Row
from tests.rows import output_row, quantizer_row

COLUMNS = [field.name for field in fields(OutputRow)]
HEADER = ",".join(COLUMNS)
LINE = (
    "resnet,small,trained,x86-static,released,lowered,logits,measured,30.5,,,,,100,,,,,2,3,0,10,"
    "42.5,5,1,0,2,7,4,1024,,,"  # SQNR against the converted graph, and what the program is made of
)
HANDWRITTEN = f"{HEADER}\n{LINE}\n"


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
    cells = LINE.split(",")
    cells[COLUMNS.index(column)] = value
    return f"{HEADER}\n{','.join(cells)}\n"


def test_a_handwritten_table_is_read_by_the_names_of_its_columns(file: Path) -> None:
    (row,) = read(file, HANDWRITTEN)
    assert (row.sqnr_db, row.sqnr_min_db, row.numel) == (30.5, None, 100)
    assert (row.quantize_nodes, row.dequantize_nodes, row.slice_nodes, row.nodes) == (2, 3, 0, 10)
    assert row.kernel_db == 42.5
    assert (row.int8_convs, row.int8_linears, row.float_convs, row.float_linears) == (5, 1, 0, 2)
    assert (row.delegated_nodes, row.undelegated_nodes, row.program_bytes) == (7, 4, 1024)
    assert (row.fix_state, row.cause, row.error) == ("", "", "")
    assert {type(row.numel), type(row.nodes), type(row.int8_convs), type(row.program_bytes)} == {int}
    swapped = "\n".join(",".join(reversed(line.split(","))) for line in HANDWRITTEN.splitlines()) + "\n"
    assert read(file, swapped) == [row]


def test_a_failed_stage_is_a_status(file: Path) -> None:
    (row,) = read(file, with_cell("status", "failed:convert"))
    assert row.status == "failed:convert"


# What is refused


def test_a_duplicate_key_names_both_lines(file: Path) -> None:
    message = error_of(file, f"{HANDWRITTEN}{LINE}\n")
    assert message.startswith(f"{file}:3: duplicate key resnet/small/trained/x86-static/released/lowered/logits")
    assert "line 2" in message


@pytest.mark.parametrize("make", [output_row, quantizer_row])
def test_rows_that_differ_in_any_part_of_the_key_are_no_duplicates(file: Path, make: Callable[..., Row]) -> None:
    first = make()
    parts = ("model", "size", "weights", "flow", "variant", "output" if make is output_row else "quantizer")
    rows = [first, replace(first, point="lowered"), *(replace(first, **{part: "other"}) for part in parts)]
    file.write_text(table.render(rows, type(first)))
    assert len(table.parse(file, type(first))) == 8


def test_the_same_quantizer_twice_at_one_point_is_a_duplicate(file: Path) -> None:
    file.write_text(table.render([quantizer_row(hi=1.0), quantizer_row(hi=2.0)], QuantizerRow))
    with pytest.raises(TableError, match=r":3: duplicate key resnet/.*/converted/conv1:conv2d:0:input, first on"):
        table.parse(file, QuantizerRow)


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
    for column in ("numel", "quantize_nodes", "nodes", "int8_convs", "program_bytes"):
        assert error_of(file, with_cell(column, value)).startswith(f"{file}:2: column {column}: ")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "fine"), ("status", "failed:"), ("status", "failed:cook"), ("status", ""), ("point", "quantized"),
        ("fix_state", "fixed"), ("cause", "bad luck"),
    ],
)  # fmt: skip
def test_a_word_outside_the_vocabulary_names_the_column_and_the_choices(file: Path, column: str, value: str) -> None:
    message = error_of(file, with_cell(column, value))
    assert message.startswith(f"{file}:2: column {column}: {value!r} is not one of ")
    choice = {"status": "mismatch", "point": "converted", "fix_state": "upstreamed", "cause": "clipping"}[column]
    assert choice in message


def test_every_state_of_a_fix_and_every_cause_is_read_back_and_so_is_none(file: Path) -> None:
    outputs = [output_row(output=name, fix_state=name, cause="numerics") for name in ("", *FixState)]
    assert {row.fix_state for row in read(file, table.render(outputs, OutputRow))} == {"", *FixState}
    quantizers = [quantizer_row(quantizer=name, cause=name) for name in ("", *Cause)]
    file.write_text(table.render(quantizers, QuantizerRow))
    assert {row.cause for row in table.parse(file, QuantizerRow)} == {"", *Cause}


@pytest.mark.parametrize("stage", ["edge", "lower"])
def test_the_stages_of_lowering_can_fail(file: Path, stage: str) -> None:
    assert read(file, with_cell("status", f"failed:{stage}"))[0].status == f"failed:{stage}"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("point", "everywhere"), ("status", "measured"), ("role", "gradient"), ("mode", "lazy"),
        ("granularity", "per_row"), ("cause", "bad luck"),
    ],
)  # fmt: skip
def test_a_quantizer_outside_the_vocabulary_names_the_column(file: Path, column: str, value: str) -> None:
    file.write_text(table.render([quantizer_row(**{column: value})], QuantizerRow))
    with pytest.raises(TableError, match=f":2: column {column}: '{value}' is not one of "):
        table.parse(file, QuantizerRow)


def test_a_line_with_cells_cut_off_is_refused(file: Path) -> None:
    message = error_of(file, f"{HEADER}\nresnet,small,trained\n")
    assert message.startswith(f"{file}:2: 3 cells, the header has {len(COLUMNS)}")


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
