"""The markdown report: every cell stays in its place, whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from harness.judge import Judgement
from harness.report import markdown
from harness.store import Run
from tests.judgements import EVERY, HOSTILE, ODD, all_failed, hostile, hostile_fixes, judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row, repaired_row

MANY = 103
Made = tuple[Run, Judgement]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table, split at the `|` that are not escaped."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            yield [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in lines]


@pytest.mark.parametrize("make", EVERY)
def test_every_row_of_every_table_has_as_many_cells_as_its_header(make: Callable[[], Made]) -> None:
    found = list(tables(markdown.render(*make())))
    assert found
    for table in found:
        assert len({len(cells) for cells in table}) == 1


def test_an_output_called_script_stays_inside_its_cell_and_is_no_html() -> None:
    text = markdown.render(*hostile())
    assert "<script" not in text
    assert "&lt;script&gt;\\|" in text


def test_a_name_is_neither_a_link_nor_bold_nor_code() -> None:
    text = markdown.render(*hostile())
    for raw in ("[link](", "*bold*", "`code`"):
        assert not re.search(r"(?<!\\)" + re.escape(raw), text)


def test_a_name_that_looks_like_a_number_is_not_rounded() -> None:
    run, judgement = judged([], [output_row(output="1e3", sqnr_db=30.0)])
    text = markdown.render(run, judgement)
    assert "1e3" in text
    assert re.search(r"\| +30\.0 +\|", text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_is_one_line_without_an_open_pipe_or_tag(text: str) -> None:
    cell = markdown.cell(text)
    assert "\n" not in cell
    assert "<" not in cell
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", cell)


def test_the_worst_rows_are_listed_and_ok_ones_only_counted() -> None:
    text = markdown.render(*one_of_each())
    signs = [cells[0].strip() for cells in next(tables(text))[2:]]
    assert signs == ["✗ regressed", "✗ regressed", "≠ changed", "! failed", "− missing", "▲ improved", "+ new"]
    assert "1 ok, 1 improved, 2 regressed, 1 changed, 1 new, 1 missing, 1 failed" in text


def test_a_run_as_accepted_says_so_and_asks_for_nothing() -> None:
    text = markdown.render(*judged([output_row()], [output_row()]))
    assert "✅ Numerical accuracy: every row is as accepted" in text
    assert "sqnr accept" not in text


def test_without_rows_it_says_that_nothing_was_measured() -> None:
    text = markdown.render(*nothing())
    assert "nothing was measured" in text
    assert "no rows" in text


def test_when_all_failed_the_matrix_shows_the_stage() -> None:
    text = markdown.render(*all_failed())
    assert text.count("failed:export") >= 4  # two rows listed, two cells of the matrix
    assert "some rows failed or are missing" in text


def test_a_long_list_is_cut_and_says_how_much_is_left() -> None:
    run, judgement = judged([], [no_number("mismatch", output=f"{number:03}") for number in range(MANY)])
    text = markdown.render(run, judgement)
    assert f"{MANY - markdown.MOST_ROWS} more are in `verdict.json`" in text


def test_notes_are_shown_as_text() -> None:
    run, judgement = nothing()
    text = markdown.render(run, replace(judgement, notes=(f"waiver expired: {ODD}", "torchao 0.17 -> 0.18")))
    assert "- waiver expired: &lt;script&gt;\\|" in text
    assert "- torchao 0.17 -&gt; 0.18" in text


# Fixes


def section(text: str, heading: str) -> str:
    """What stands below a heading or a summary, up to the next."""
    return re.split(r"\n## |<summary>", text.split(heading, 1)[1])[0]


def test_a_fix_has_its_section_with_both_levels_and_the_bounds_it_moved() -> None:
    rows = [output_row(sqnr_db=-4.25), repaired_row(sqnr_db=23.5)]
    rows += [quantizer_row(hi=1.0), quantizer_row(variant="+fix", hi=2.0)]
    text = markdown.render(*judged(rows, rows))
    ((_, _, line),) = tables(section(text, "## With and without each fix"))
    assert [cell.strip() for cell in line] == [
        "resnet/small", "x86-static", "+fix", "logits", "-4.25", "23.50", "+27.75"
    ]  # fmt: skip
    ((_, _, line),) = tables(section(text, "Range bounds that a fix moved"))
    assert [cell.strip() for cell in line[3:8]] == [
        "converted",
        "conv1:conv2d:0:input",
        "2.5",
        r"\[0, 1\]",
        r"\[0, 2\]",
    ]


def test_without_variants_the_report_says_nothing_of_fixes() -> None:
    text = markdown.render(*judged([], [output_row(), quantizer_row()]))
    assert "each fix" not in text
    assert "Range bounds" not in text


def test_where_fixes_only_idle_it_says_so_and_names_them() -> None:
    text = markdown.render(*judged([], [output_row(), repaired_row(fix_state="upstreamed")]))
    shown = section(text, "## With and without each fix")
    assert "No fix changed anything." in shown
    assert "- x86-static +fix: upstreamed on resnet/small" in shown
    assert not list(tables(shown))


def test_names_of_outputs_fixes_and_quantizers_stay_inside_their_cells() -> None:
    text = markdown.render(*hostile_fixes())
    fixes = section(text, "## With and without each fix")
    (table,) = tables(fixes)
    assert len(table) == 2 + 2 * len(HOSTILE)  # heading, rule, and for each name a fix that works and one that fails
    ((_, _, *moved),) = tables(section(text, "Range bounds that a fix moved"))
    assert len(moved) == len(HOSTILE)
    idle = [line for line in fixes.splitlines() if line.startswith("- ")]
    assert len(idle) == len(HOSTILE)
    for raw in ("<script", "[link](", "*bold*", "`code`"):
        assert not re.search(r"(?<!\\)" + re.escape(raw), text)
