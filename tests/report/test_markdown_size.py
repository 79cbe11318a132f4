"""The markdown report is never too long to post: lists are cut, and say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from harness.report import markdown
from tests.judgements import EVERY, HOSTILE, hostile, judged
from tests.report.markdown_text import LONG, Made, changes, folded, tables
from tests.rows import output_row, quantizer_row, repaired_row


@cache
def many_groups() -> Made:
    """10,000 groups of one changed output each, every name 300 characters long."""
    cases = [{"flow": LONG, "model": f"{number:05}{LONG}", "output": LONG} for number in range(10_000)]
    return judged([output_row(**case) for case in cases], [output_row(**case, sqnr_db=1.0) for case in cases])


@cache
def many_rows() -> Made:
    """One group of 10,000 changed outputs and as many moved quantizers."""
    names = [f"{number:05}{LONG}" for number in range(10_000)]
    old = [*(output_row(output=name) for name in names), *(quantizer_row(quantizer=name) for name in names)]
    new = [output_row(output=name, sqnr_db=1.0) for name in names]
    return judged(old, [*new, *(quantizer_row(quantizer=name, hi=9.0) for name in names)])


@cache
def many_fixes() -> Made:
    """4,000 variants: half of them idle, half move a bound and leave a weight in float."""
    rows: list[Any] = [output_row(), quantizer_row()]
    for number in range(2_000):
        variant = f"+{number:05}{LONG}"
        rows += [repaired_row(variant=variant), quantizer_row(variant=variant, hi=9.0)]
        rows += [repaired_row(variant=f"{variant}+idle", fix_state="inert")]
        rows += [quantizer_row(variant=variant, role="weight", status="unquantized", quantizer=f"{number}{LONG}")]
    return judged(rows, rows)


@pytest.mark.parametrize("make", [*EVERY, many_groups, many_rows, many_fixes])
def test_it_fits_into_a_comment_whatever_was_measured(make: Callable[[], Made]) -> None:
    run, judgement = make()
    stack = {f"{number}{LONG}": LONG for number in range(1_000)}
    run = replace(run, environment={"stack": stack}, folder=run.folder / ("x" * 250))
    text = markdown.render(run, replace(judgement, notes=(LONG,) * 1_000))
    assert len(text.encode("utf-8")) < markdown.MOST_BYTES == 60_000
    assert re.search(r"\d+ more notes: see `verdict.json`", text)
    assert re.search(r"\d+ more facts: see `run.json`", folded(text, "Environment"))


def test_a_list_that_is_cut_says_how_many_more_there_are_and_where() -> None:
    text = markdown.render(*many_groups())
    shown = len(changes(text))
    assert shown >= 3
    assert f"{10_000 - shown} more row groups: see `verdict.json` in the run's folder." in text
    matrix = folded(text, "SQNR, dB, released code")
    (table,) = tables(matrix)
    assert f"{10_000 - (len(table) - 2)} more lines: see `outputs.csv` in the run's folder." in matrix


@pytest.mark.parametrize(
    ("title", "where"),
    [
        ("What each fix is worth", "outputs"),
        ("Range bounds that a fix moved", "quantizers"),
        ("Coverage", "quantizers"),
    ],
)
def test_each_folded_list_is_cut_rather_than_dropped(title: str, where: str) -> None:
    shown = folded(markdown.render(*many_fixes()), title)
    (table,) = tables(shown)
    (more,) = re.findall(rf"(\d+) more lines: see `{where}.csv` in the run's folder", shown)
    assert len(table) - 2 + int(more) == 2_000
    assert len(table) > 3


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    text = markdown.render(*judged([], [output_row(output=f"first{'x' * 300}last")]))
    (told,) = re.findall(r"first(x+)…(x+)last 30\.00 dB, new", text)
    assert len("first" + told[0] + "…" + told[1] + "last") == 96


def test_hostile_names_are_shown_where_they_belong() -> None:
    ((_, _, _, told, bounds, cause),) = changes(markdown.render(*hostile()))
    assert r"&lt;script&gt;\| 30.00 → 1.00 dB (-29.00)" in told.split("<br>")
    assert bounds == f"{len(HOSTILE)} changed"
    assert cause == rf"\*bold\* and {len(HOSTILE) - 1} more: not quantized"
