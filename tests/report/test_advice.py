"""What to do next: a command that accept takes as it stands, or why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.report.advice import Advice, advice
from harness.store import INTERRUPTED
from tests.judgements import judged
from tests.rows import no_number, output_row

RUN = "20260131-120000-gate"


def test_the_command_names_the_run_each_model_once_and_the_flow_if_there_is_one() -> None:
    rows = [output_row(model="vit"), output_row(), output_row(model="vit", output="boxes")]
    assert advice(*judged([], rows)).command == f'sqnr accept {RUN} -m resnet -m vit -f x86-static --because "..."'
    rows.append(output_row(flow="x86-dynamic"))
    assert advice(*judged([], rows)).command == f'sqnr accept {RUN} -m resnet -m vit --because "..."'


def test_the_latest_run_need_not_be_named() -> None:
    made = judged([], [output_row()])
    assert advice(*made, named=False).command == 'sqnr accept -m resnet -f x86-static --because "..."'


def test_where_all_is_as_accepted_or_waived_there_is_nothing_to_do() -> None:
    assert advice(*judged([output_row()], [output_row()])) == Advice()
    run, judgement = judged([output_row()], [output_row(sqnr_db=20.0)])
    waived = tuple(replace(verdict, waived="waits") for verdict in judgement.verdicts)
    assert advice(run, replace(judgement, verdicts=waived)) == Advice()


def test_a_run_judged_by_another_run_is_not_to_be_accepted() -> None:
    run, judgement = judged([output_row()], [output_row(sqnr_db=20.0)])
    assert advice(run, replace(judgement, acceptable=False)) == Advice()


def test_models_with_a_failed_row_are_left_out_as_accept_would_refuse_them() -> None:
    old = [output_row(), output_row(output="boxes"), output_row(model="vit")]
    new = [no_number("failed:lower"), output_row(output="boxes", sqnr_db=20.0), output_row(model="vit", sqnr_db=20.0)]
    told = advice(*judged(old, new))
    assert told.command == f'sqnr accept {RUN} -m vit -f x86-static --because "..."'
    assert told.note == "resnet: a row failed, so mend it, or name the rows to accept with --row"
    alone = advice(*judged(old[:2], new[:2]))
    assert (alone.command, alone.note) == ("", told.note)


def test_where_everything_failed_there_is_nothing_to_accept() -> None:
    assert advice(*judged([output_row()], [no_number("failed:lower")])) == Advice()
    assert advice(*judged([output_row()], [no_number("nonfinite_actual")])) == Advice()


def test_a_command_of_many_models_is_told_in_words() -> None:
    told = advice(*judged([], [output_row(model=f"model{number:03}") for number in range(200)]))
    assert told == Advice(note="sqnr accept, narrowed with -m and -f to the rows that are right")


def test_rows_that_a_cut_off_run_did_not_reach_are_not_to_be_accepted() -> None:
    run, judgement = judged([output_row(), output_row(output="boxes")], [output_row()])
    assert advice(run, judgement).command == f'sqnr accept {RUN} -m resnet -f x86-static --because "..."'
    run.status = INTERRUPTED
    assert advice(run, judgement) == Advice()


@pytest.mark.parametrize("name", ["two\nlines", "two  blanks", "\u202eright", "##[error]"])
def test_a_name_that_cannot_be_told_as_it_is_stands_in_no_command(name: str) -> None:
    assert advice(*judged([], [output_row(model=name)])).command == ""


def test_as_sentences_the_note_is_about_the_rest_where_there_is_a_command() -> None:
    assert Advice("sqnr accept", "more").lines == ["If intended: sqnr accept", "If the rest is intended: more"]
    assert Advice(note="more").lines == ["If intended: more"]
    assert Advice().lines == []
