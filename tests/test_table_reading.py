"""Tables are read by columns; what is read or refused, and why, is what reading cell after cell gives."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import table
from harness.errors import TableError
from harness.records import (
    STATUSES,
    Cause,
    FixState,
    Granularity,
    Mode,
    OutputRow,
    Point,
    QuantizerRow,
    QuantizerStatus,
    Role,
    Row,
)
from tests.rows import no_number, output_row, quantizer_row

WORDS = {
    "point": {*Point},
    "fix_state": {*FixState, ""},
    "cause": {*Cause, ""},
    "role": {*Role},
    "granularity": {*Granularity, ""},
    "mode": {*Mode, ""},
}
CELLS = ("", "0", "-0", "12", "12.5", "-1e-5", "9" * 19, "9" * 25, "abc", "nan", "-Inf", "1e999", " 1", "+1", ".5",
         "measured", "exact", "zero_signal", "failed:edge", "quantized", "float", "lowered", "weight", '"', 'a"b', '""',
         "a,b", '"a,b"')  # fmt: skip
HINTS = {row_type: get_type_hints(row_type) for row_type in (OutputRow, QuantizerRow)}
LINES = {
    OutputRow: (output_row(), output_row(output="pooled", sqnr_db=25.5), no_number("failed:lower", output="other")),
    QuantizerRow: (quantizer_row(), quantizer_row(quantizer="a", axis=1), quantizer_row(quantizer="b", lo=-1.0)),
}


def value_of(cell: str, row_type: type[Row], name: str) -> float | int | str | None:
    """What a cell means; raises `ValueError` with what is wrong with it."""
    hint = HINTS[row_type][name]
    if hint is str:
        status = STATUSES if row_type is OutputRow else {*QuantizerStatus}
        allowed = status if name == "status" else WORDS.get(name, {cell})
        if cell not in allowed:
            raise ValueError(f" is not one of {', '.join(sorted(allowed))}")
        return cell
    if cell == "":
        return None
    number = get_args(hint)[0]
    if cell.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise ValueError("; a stored number is finite or empty")
    if not re.fullmatch("-?[0-9]{1,19}" if number is int else r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", cell):
        raise ValueError(f" is not {'an integer' if number is int else 'a number'}")
    value: float | int = number(cell)
    if abs(value) > (2**63 if number is int else 1.7976931348623157e308):
        raise ValueError(" is out of range; a stored number is finite or empty")
    return value


def needed(row: Row) -> tuple[str, ...]:
    if isinstance(row, OutputRow):
        return {"measured": ("sqnr_db",), "exact": ("sqnr_db",), "zero_signal": ("max_abs_err",)}.get(row.status, ())
    return ("lo", "hi") if row.status == "quantized" else ()


def read_by_cells(file: Path, row_type: type[Row]) -> list[Row] | str:
    """The rows of a table with a sound header, or what is wrong: every line is done with before the next."""
    reader = csv.reader(io.StringIO(file.read_text(), newline=""), strict=True)
    names = next(reader)
    rows: list[Row] = []
    seen: dict[tuple[str, ...], int] = {}
    try:
        for cells in reader:
            where = f"{file}:{reader.line_num}: "
            if len(cells) != len(names):
                return f"{where}{len(cells)} cells, the header has {len(names)}; is the line cut off? Restore the " \
                       "file from git, or measure again and accept"  # fmt: skip
            values = {}
            for name, cell in zip(names, cells, strict=True):
                try:
                    values[name] = value_of(cell, row_type, name)
                except ValueError as error:
                    return f"{where}column {name}: {cell!r}{error}"
            row = row_type(**values)  # type: ignore[arg-type]
            for name in needed(row):
                if values[name] is None:
                    return f"{where}column {name}: empty, but the row's status is {row.status}"
            if row.key in seen:
                return f"{where}duplicate key {'/'.join(row.key)}, first on line {seen[row.key]}"
            seen[row.key] = reader.line_num
            rows.append(row)
    except csv.Error as error:
        return f"{file}:{reader.line_num}: {error}"
    return rows


def read(file: Path, row_type: type[Row]) -> list[Row] | str:
    try:
        return list(table.parse(file, row_type))
    except TableError as error:
        return str(error)


@st.composite
def tables(draw: st.DrawFn, row_type: type[Row]) -> str:
    """One to four sound lines, columns in any order, then up to two cells changed and perhaps a line cut short."""
    names = draw(st.permutations([field.name for field in fields(row_type)]))
    rows = draw(st.lists(st.sampled_from(LINES[row_type]), min_size=1, max_size=4, unique=draw(st.booleans())))
    lines = [[_text(getattr(row, name)) for name in names] for row in rows]
    text = st.sampled_from(CELLS) | st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=4)
    for _ in range(draw(st.integers(0, 2))):
        cells = draw(st.sampled_from(lines))
        cells[draw(st.integers(0, len(names) - 1))] = draw(text)
    if draw(st.integers(0, 9)) == 9:
        del draw(st.sampled_from(lines))[-1]
    return "".join(",".join(cells) + "\n" for cells in [names, *lines])


def _text(value: object) -> str:
    return "" if value is None else str(value)


@pytest.mark.parametrize("row_type", [OutputRow, QuantizerRow])
@given(data=st.data())
def test_the_rows_or_the_error_are_those_of_reading_cell_after_cell(
    tmp_path_factory: pytest.TempPathFactory, row_type: type[Row], data: st.DataObject
) -> None:
    file = tmp_path_factory.getbasetemp() / "a.csv"
    file.write_text(data.draw(tables(row_type)))
    # As text: equal numbers can differ in their sign or type.
    assert repr(read(file, row_type)) == repr(read_by_cells(file, row_type))


@pytest.mark.parametrize("row_type", [OutputRow, QuantizerRow])
def test_an_odd_cell_means_in_each_column_what_it_means_alone(tmp_path: Path, row_type: type[Row]) -> None:
    file = tmp_path / "a.csv"
    (header, line) = (text.split(",") for text in table.render([LINES[row_type][0]], row_type).splitlines())
    for place, cell in product(range(len(header)), CELLS):
        cells = [*line[:place], cell, *line[place + 1 :]]
        file.write_text(f"{','.join(header)}\n{','.join(cells)}\n")
        assert repr(read(file, row_type)) == repr(read_by_cells(file, row_type))


BAD_CELL, CUT_OFF, BLANK, TWICE = "a bad cell", "a cut line", "a blank", "a key again"
SAID = {BAD_CELL: "is not a number", CUT_OFF: "1 cells", BLANK: "empty, but", TWICE: "duplicate key"}


@pytest.mark.parametrize("first", SAID)
@pytest.mark.parametrize("second", SAID)
def test_of_two_lines_that_are_wrong_the_first_is_told(tmp_path: Path, first: str, second: str) -> None:
    header, sound = table.render([output_row()], OutputRow).splitlines()
    wrong = {
        BAD_CELL: sound.replace("logits", "b").replace("30.0", "thirty"),
        CUT_OFF: "resnet",
        BLANK: sound.replace("logits", "c").replace("30.0", ""),
        TWICE: sound,
    }
    file = tmp_path / "a.csv"
    file.write_text("\n".join([header, sound, wrong[first], wrong[second]]) + "\n")
    with pytest.raises(TableError, match=f":3: .*{SAID[first]}"):
        table.parse(file, OutputRow)


def test_a_row_that_was_read_is_the_row_its_constructor_makes(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for made in (output_row(), quantizer_row()):
        file.write_text(table.render([made], type(made)))
        (found,) = table.parse(file, type(made))
        assert found == made
        assert hash(found) == hash(made)
        with pytest.raises(AttributeError):
            found.model = "vit"  # type: ignore[misc]
