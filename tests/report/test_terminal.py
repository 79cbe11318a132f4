"""What is printed: worst rows first, the counts, the meaning of the exit code, the next command."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from harness.accept import Change, Proposal
from harness.baseline import Baseline
from harness.judge import Judgement
from harness.report.frames import coverage_frame, sqnr_matrix
from harness.report.terminal import print_judgement, print_matrix, print_proposal
from harness.store import Run
from tests.judgements import HOSTILE, all_failed, all_none, hostile, judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row


def printed(show: Callable[[Console], None]) -> str:
    text = io.StringIO()
    show(Console(file=text, width=400))
    return text.getvalue()


def of_judgement(made: tuple[Run, Judgement]) -> str:
    return printed(lambda console: print_judgement(console, made[1]))


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
    assert lines[8].startswith("If intended: sqnr accept -m resnet -f x86-static --because")


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
        assert name in text


def test_the_matrix_holds_one_decimal_or_the_status() -> None:
    rows = [
        output_row(sqnr_db=30.04),
        output_row(variant="+fix", sqnr_db=31.0),
        no_number("failed:export", flow="x86-dynamic"),
        output_row(point="float", sqnr_db=160.0),
    ]
    matrix = sqnr_matrix(rows)
    assert sorted(matrix.to_numpy().ravel()) == ["30.0", "31.0", "failed:export"]
    assert "x86-static +fix" in {*matrix.index, *matrix.columns}


def test_a_matrix_without_rows_shows_no_columns() -> None:
    assert sqnr_matrix([]).empty
    assert "max_abs_err" not in printed(lambda console: print_matrix(console, []))


def test_coverage_has_a_line_for_each_case() -> None:
    rest = quantizer_row(quantizer="c", role="weight", status="unquantized")
    other = quantizer_row(role="weight", flow="x86-dynamic")
    lines = coverage_frame([rest, quantizer_row(role="weight"), other]).to_dict("records")
    assert [(line["flow"], line["quantized"], line["quantizable"], line["in float"]) for line in lines] == [
        ("x86-dynamic", 1, 1, ""), ("x86-static", 1, 2, "c")
    ]  # fmt: skip
    assert coverage_frame([]).empty


def test_a_proposal_shows_old_and_new_of_each_row() -> None:
    changes = (
        Change(output_row(sqnr_db=30.0), output_row(sqnr_db=40.0)),
        Change(None, output_row(output="[red]")),
        Change(quantizer_row(lo=0.0, hi=1.0), None),
    )
    text = printed(lambda console: print_proposal(console, Proposal(Baseline(), changes, ())))
    assert "converted logits: 30.00 dB -> 40.00 dB" in text
    assert "converted [red]: - -> 30.00 dB" in text
    assert "conv1:conv2d:0:input: [0, 1] -> -" in text
    assert "3 rows change" in text


def test_a_long_proposal_is_cut_and_says_how_much_is_left() -> None:
    changes = tuple(Change(None, output_row(output=str(number))) for number in range(50))
    text = printed(lambda console: print_proposal(console, Proposal(Baseline(), changes, ())))
    assert "... and 10 more rows" in text
    assert "50 rows change" in text


def test_paths_in_notes_are_printed_whole() -> None:
    note = f"{Path('/a') / ('x' * 300)}: [tool.sqnr]"
    run, judgement = judged([], [], notes=(note,))
    assert f"note: {note}" in of_judgement((run, judgement))
