"""What is printed: worst rows first, the counts, the meaning of the exit code, the next command."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.accept import Change, Proposal
from harness.baseline import Baseline
from harness.judge import Before, Judgement
from harness.records import OutputRow
from harness.report.terminal import print_judgement, print_matrix, print_proposal
from harness.report.text import visible
from harness.store import Run
from tests.judgements import EVERY, HOSTILE, all_failed, hostile, hostile_fixes, judged, one_of_each
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row


def printed(show: Callable[[Console], None]) -> str:
    text = io.StringIO()
    show(Console(file=text, width=400))
    return text.getvalue()


def of_judgement(made: tuple[Run, Judgement]) -> str:
    return printed(lambda console: print_judgement(console, *made, named=False))


@pytest.mark.parametrize("make", EVERY)
def test_any_judgement_ends_with_its_meaning_and_exit_code(make: Callable[[], tuple[Run, Judgement]]) -> None:
    run, judgement = make()
    text = of_judgement((run, judgement))
    assert f"(exit {int(judgement.exit_code)})" in text
    assert printed(lambda console: print_matrix(console, run.outputs)).strip()


def test_the_worst_row_comes_first_and_ok_rows_are_only_counted() -> None:
    lines = of_judgement(one_of_each()).splitlines()
    assert [line.split()[1] for line in lines[:7]] == [
        "regressed", "regressed", "changed", "failed", "missing", "improved", "new"
    ]  # fmt: skip
    assert lines[7] == (
        "numerics got worse or changed: 1 ok, 1 improved, 2 regressed, 1 changed, 1 new, 1 missing, 1 failed (exit 1)"
    )
    assert lines[8] == "If intended: resnet: a row failed, so mend it, or name the rows to accept with --row"


def test_a_long_list_is_cut_and_says_how_much_is_left() -> None:
    made = judged([], [no_number("mismatch", output=f"{number:02}") for number in range(25)])
    text = of_judgement(made)
    assert text.count("✗ regressed") == 20
    assert "... and 5 more: see verdict.json" in text


def test_nothing_to_accept_gives_no_command() -> None:
    assert "sqnr accept" not in of_judgement(judged([output_row()], [output_row()]))
    assert "sqnr accept" not in of_judgement(all_failed())


def test_names_are_printed_and_not_taken_for_markup() -> None:
    text = of_judgement(hostile())
    for name in HOSTILE:
        assert visible(name) in text


def test_no_line_is_a_command_to_github_or_moves_the_terminal() -> None:
    names = ("a\n::error::pwned", "##[error]pwned", "\x1b[31mred", "\x1b]0;title\x07")
    rows = [output_row(output=name, model=name, sqnr_db=1.0) for name in names]
    run, judgement = judged([], rows, notes=names)
    text = of_judgement((run, judgement)) + printed(lambda console: print_matrix(console, run.outputs))
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]
    assert "\x1b" not in text


def test_where_there_is_nothing_to_judge_by_the_rows_are_only_counted() -> None:
    run, judgement = judged([], [output_row()])
    text = of_judgement((run, replace(judgement, before=Before())))
    assert text.splitlines()[0].startswith("there is no baseline to judge by: 1 new")


def of_matrix(*rows: OutputRow) -> str:
    return printed(lambda console: print_matrix(console, rows))


def test_what_released_code_gives_and_what_each_fix_changes_are_two_tables() -> None:
    lines = of_matrix(output_row(sqnr_db=-4.25), repaired_row(sqnr_db=23.5)).splitlines()
    titles = [lines.index(title) for title in lines if title.startswith("SQNR, dB")]
    assert len(titles) == 2
    released, fixed = "\n".join(lines[: titles[1]]), "\n".join(lines[titles[1] :])
    assert re.search(r"x86-static .*-4\.2", released)
    assert "+fix" not in released
    assert re.search(r"resnet/small .*x86-static .*\+fix .*logits .*-4\.25 .*23\.50 .*\+27\.75", fixed)


def test_without_a_variant_there_is_no_table_of_fixes() -> None:
    assert "with each fix" not in of_matrix(output_row())


def test_a_fix_that_changed_nothing_is_one_line_and_no_table() -> None:
    text = of_matrix(output_row(), repaired_row(fix_state="inert"))
    assert "with each fix" not in text
    assert text.splitlines()[-1] == "x86-static +fix: inert on resnet/small"


def test_names_in_the_tables_are_printed_and_not_taken_for_markup() -> None:
    text = printed(lambda console: print_matrix(console, hostile_fixes()[0].outputs))
    for name in map(visible, HOSTILE):
        assert f" {name} " in text.split("with each fix")[1]
        assert f"x86-static +idle {name}: inert on resnet/small" in text


def test_a_run_without_rows_still_prints_a_table() -> None:
    assert "max_abs_err" not in of_matrix()
    assert of_matrix().strip()


def test_a_proposal_shows_old_and_new_of_each_row() -> None:
    changes = (
        Change(output_row(sqnr_db=30.0), output_row(sqnr_db=40.0)),
        Change(None, output_row(output="[red]")),
        Change(quantizer_row(lo=0.0, hi=1.0), None),
        Change(quantizer_row(point="lowered", lo=0.0, hi=1.0), lost_edge(point="lowered")),
    )
    text = printed(lambda console: print_proposal(console, Proposal(Baseline(), changes, ())))
    assert "converted logits: 30.00 dB -> 40.00 dB" in text
    assert "converted [red]: - -> 30.00 dB" in text
    assert "converted conv1:conv2d:0:input: [0, 1] -> -" in text
    assert "lowered conv1:conv2d:0:input: [0, 1] -> unquantized" in text
    assert "4 rows change" in text


def test_a_long_proposal_is_cut_and_says_how_much_is_left() -> None:
    changes = tuple(Change(None, output_row(output=str(number))) for number in range(50))
    text = printed(lambda console: print_proposal(console, Proposal(Baseline(), changes, ())))
    assert "... and 10 more rows" in text
    assert "50 rows change" in text


def test_paths_in_notes_are_printed_whole() -> None:
    note = f"{Path('/a') / ('x' * 300)}: [tool.sqnr]"
    run, judgement = judged([], [], notes=(note,))
    assert f"note: {note}" in of_judgement((run, judgement))
