"""The markdown report: what changed and no more, in its place whatever it is called, and never too long to post."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from markdown_it import MarkdownIt

from harness.errors import ExitCode
from harness.judge import Before, Judgement
from harness.records import Row
from harness.report import markdown
from harness.store import Run
from tests.judgements import EVERY, HOSTILE, ODD, all_failed, hostile, hostile_fixes, judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row, repaired_row
from tests.waivers import waived

Made = tuple[Run, Judgement]
LONG = "<|@#1`" * 50
"""A name of 300 characters, each of which takes several when it is escaped."""
TAGS = {
    "h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "br", "details", "summary"
}  # fmt: skip


def split(line: str) -> list[str]:
    """The cells of a line, split at the `|` that are not escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            yield [split(line) for line in lines]


def folded(text: str, title: str) -> str:
    """What stands in the folded section whose title holds these words."""
    (body,) = re.findall(r"<details><summary>[^<]*" + re.escape(title) + r"[^<]*</summary>(.*?)</details>", text, re.S)
    return str(body)


def changes(text: str) -> list[list[str]]:
    """The cells of the table of changes, without its two lines of heading."""
    above = text.split("<details>")[0]
    return next(tables(above))[2:] if "| likely cause |" in above else []


# Every cell stays in its place


@pytest.mark.parametrize("make", EVERY)
def test_every_row_of_every_table_has_as_many_cells_as_its_header(make: Callable[[], Made]) -> None:
    found = list(tables(markdown.render(*make())))
    assert found
    for table in found:
        assert len({len(cells) for cells in table}) == 1


@pytest.mark.parametrize("make", EVERY)
def test_names_make_no_tags_links_or_emphasis(make: Callable[[], Made]) -> None:
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown.render(*make()))
    assert set(re.findall(r"<([a-z][\w-]*)", html)) <= TAGS


@pytest.mark.parametrize("text", [*HOSTILE, LONG, "a\\|b", "trailing\\", "$x$", "~~gone~~"])
def test_a_cell_is_one_line_and_shows_the_text(text: str) -> None:
    cell = markdown.cell(text)
    assert len(split(f"| {cell} | next |")) == 2
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(f"| {cell} | b |\n|---|---|\n")
    shown = re.findall("<th>(.*?)</th>", html)[0].replace("\u200b", "").replace("&quot;", '"')
    plain = text.replace("\n", " ").replace("\u202e", "\\u202e")
    assert shown == plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@pytest.mark.parametrize("text", ["@everyone", "a@b.example", "#123", "o/r#7", "GH-5", "http://x", "www.x.example"])
def test_a_name_pings_nobody_and_refers_to_nothing(text: str) -> None:
    cell = markdown.cell(text)
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.", cell.replace("&#8203;", "\u200b"))


def test_the_hundredth_occurrence_of_an_operator_is_no_picture() -> None:
    assert ":100:" not in markdown.cell("conv:conv2d:100:input")
    assert markdown.cell("conv:conv2d:99:input") == "conv:conv2d:99:input"


def test_characters_that_are_not_seen_stand_as_escapes_and_half_a_pair_can_be_written() -> None:
    text = markdown.render(*judged([output_row()], [no_number("failed:lower", error="a\u202eb\ud800\x1b")]))
    assert r"a\\u202eb\\ud800\\x1b" in text
    assert not {"\u202e", "\x1b"} & set(text.encode("utf-8").decode("utf-8"))


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "1. a", "12) a", "=== a", "> a"])
def test_a_note_begins_no_heading_and_no_list_of_its_own(text: str) -> None:
    run, judgement = nothing()
    html = MarkdownIt("commonmark").render(
        markdown.render(run, replace(judgement, notes=(text,))).split("<details>")[0]
    )
    assert f"<li>{text.replace('>', '&gt;')}</li>" in html


def test_a_name_that_looks_like_a_number_is_not_rounded() -> None:
    text = markdown.render(*judged([], [output_row(output="1e3")]))
    assert "1e3 30.00 dB, new" in text


# The first line


def test_the_first_line_is_the_marker_of_the_suite() -> None:
    assert markdown.render(*nothing()).startswith("<!-- sqnr-harness:gate -->\n# ")


def test_no_name_of_a_suite_ends_the_marker_early() -> None:
    assert markdown.marker("my.suite_2") == "<!-- sqnr-harness:my.suite_2 -->"
    assert markdown.marker("a --> <b>\nc") == "<!-- sqnr-harness:a------b--c -->"
    assert markdown.marker("a" * 300) == f"<!-- sqnr-harness:{'a' * 100} -->"


# What changed


def test_a_run_as_accepted_is_short_and_asks_for_nothing() -> None:
    text = markdown.render(*judged([output_row()], [output_row()]))
    above = text.split("<details>")[0]
    assert "✅ Numerical accuracy: every row is as accepted" in above
    assert len(above.splitlines()) <= 5
    assert "sqnr accept" not in text


def test_it_names_what_the_run_is_judged_by() -> None:
    run, judgement = nothing()
    assert r"judged by baseline linux-x86\_64: no rows" in markdown.render(run, judgement)
    assert "with nothing to judge it by: no rows" in markdown.render(run, replace(judgement, before=Before()))


def test_without_rows_it_says_that_nothing_was_measured() -> None:
    text = markdown.render(*nothing())
    assert "❌ Numerical accuracy: nothing was measured" in text
    assert changes(text) == []


def test_a_changed_group_is_a_line_with_its_outputs_its_bounds_and_the_likely_cause() -> None:
    old: list[Row] = [output_row(sqnr_db=39.17), output_row(output="ok"), quantizer_row(hi=1.0)]
    new: list[Row] = [output_row(sqnr_db=37.66), output_row(output="ok"), quantizer_row(hi=4.0)]
    old += [quantizer_row(quantizer="a", hi=1.0)]
    new += [quantizer_row(quantizer="a", hi=2.0)]
    assert changes(markdown.render(*judged(old, new))) == [
        [
            "✗ regressed",
            "resnet/small/trained x86-static",
            "converted",
            "logits 39.17 → 37.66 dB (-1.51)",
            r"2 ranges moved, most of all conv1:conv2d:0:input \[0, 1\] → \[0, 4\]",
            "the range of conv1:conv2d:0:input is 4 times as wide",
        ]
    ]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (output_row(sqnr_min_db=25.75), output_row(sqnr_min_db=12.1), "logits worst SQNR 25.75 → 12.10 dB (-13.65)"),
        (output_row(), output_row(sqnr_db=36.0), "logits 30.00 → 36.00 dB (+6.00)"),
        (output_row(), no_number("mismatch"), "logits measured → mismatch"),
        (output_row(), no_number("failed:lower", error="boom"), "logits measured → failed:lower"),
        (output_row(numel=100), output_row(numel=50), "logits numel 100 → 50"),
        (output_row(task_metric=0.9), output_row(task_metric=0.8), "logits top-1 90.00 % → 80.00 %"),
        (None, output_row(), "logits 30.00 dB, new"),
        (output_row(), None, "logits 30.00 dB → not measured"),
        (None, repaired_row(sqnr_db=4.0), "logits 4.00 dB, must be at least 10.00 dB"),
    ],
)
def test_an_output_is_told_by_what_changed(old: Row | None, new: Row | None, text: str) -> None:
    ((_, _, _, told, bounds, _),) = changes(markdown.render(*judged([old] if old else [], [new] if new else [])))
    assert (told, bounds) == (text, "")


def test_quantizers_that_did_not_move_but_went_or_came_are_counted() -> None:
    old = [output_row(), quantizer_row(quantizer="a"), quantizer_row(quantizer="b", hi=1.0)]
    new = [output_row(), quantizer_row(quantizer="c"), quantizer_row(quantizer="b", hi=2.0)]
    ((*_, bounds, _),) = changes(markdown.render(*judged(old, new)))
    assert bounds == r"1 range moved: b \[0, 1\] → \[0, 2\]; 2 more changed"


def test_the_worst_outputs_of_a_group_come_first_and_the_rest_is_counted() -> None:
    text = markdown.render(*one_of_each())
    ((sign, _, _, told, _, _),) = changes(text)
    assert sign == "✗ regressed"
    assert [phrase.split()[0] for phrase in told.split("<br>")] == [
        "nan", "regressed", "changed", "failed", "missing", "and"
    ]  # fmt: skip
    assert told.endswith("and 2 more")
    assert "1 ok, 1 improved, 2 regressed, 1 changed, 1 new, 1 missing, 1 failed." in text


def test_groups_are_listed_worst_first_and_those_as_accepted_are_not() -> None:
    levels = {"ok": 30.0, "improved": 40.0, "regressed": 1.0}
    old = [output_row(model=name) for name in levels]
    text = markdown.render(*judged(old, [output_row(model=name, sqnr_db=db) for name, db in levels.items()]))
    assert [(sign, case.split("/")[0]) for sign, case, *_ in changes(text)] == [
        ("✗ regressed", "regressed"), ("▲ improved", "improved")
    ]  # fmt: skip


def test_a_waived_group_is_marked_with_its_reason_and_listed_last() -> None:
    old = [output_row(model=name, output=name) for name in ("a", "b")]
    new = [output_row(model=name, output=name, sqnr_db=db) for name, db in (("a", 1.0), ("b", 2.0))]
    text = markdown.render(*waived(judged(old, new), "a", reason=f"issue #7 {ODD}"))
    assert [line[0] for line in changes(text)] == ["✗ regressed", "✗ regressed, waived"]
    assert changes(text)[1][5].endswith(r"<br>waived: issue #&#8203;7 &lt;script&gt;\|")
    assert "2 regressed; 1 of them waived." in text


def test_when_all_failed_the_stage_and_the_error_are_told() -> None:
    text = markdown.render(*all_failed())
    assert [line[5] for line in changes(text)] == ["failed:export: boom"] * 2
    assert "some rows failed or are missing" in text


def test_a_stale_baseline_has_a_sign_of_its_own() -> None:
    run, judgement = judged([], [output_row()])
    assert judgement.exit_code is ExitCode.STALE
    assert "# ⚠️ Numerical accuracy: nothing is worse" in markdown.render(run, judgement)


def test_notes_are_shown_as_text() -> None:
    run, judgement = nothing()
    text = markdown.render(run, replace(judgement, notes=(f"waiver expired: {ODD}", "torchao 0.17 -> 0.18")))
    assert "- waiver expired: &lt;script&gt;\\|" in text
    assert "- torchao 0.17 -&gt; 0.18" in text


def test_a_run_that_could_not_be_judged_keeps_the_marker_and_says_why() -> None:
    text = markdown.render_error("gate", "baselines/a.csv:3: <cut> off")
    assert text.startswith("<!-- sqnr-harness:gate -->\n# ❌ ")
    assert "baselines/a.csv:3: &lt;cut&gt; off" in text


# The command


def test_below_the_changes_stands_the_command_that_would_accept_them() -> None:
    made = judged([output_row()], [output_row(sqnr_db=1.0)])
    command = 'sqnr accept 20260131-120000-gate -m resnet -f x86-static --because "..."'
    assert f"If intended: `{command}`" in markdown.render(*made)


def test_backticks_in_a_name_do_not_end_the_command() -> None:
    text = markdown.render(*judged([], [output_row(model="a``b <b>")]))
    html = MarkdownIt("commonmark", {"html": True}).render(text.split("<details>")[0])
    assert (
        "<code>sqnr accept 20260131-120000-gate -m 'a``b &lt;b&gt;' -f x86-static --because &quot;...&quot;</code>"
        in html
    )


def test_a_command_of_many_models_is_told_in_words() -> None:
    text = markdown.render(*judged([], [output_row(model=f"model{number:03}") for number in range(200)]))
    assert "If intended: sqnr accept, narrowed with -m and -f to the rows that are right" in text


# What is folded


def test_a_fix_is_shown_with_both_levels_and_the_bounds_it_moved() -> None:
    rows = [output_row(sqnr_db=-4.25), repaired_row(sqnr_db=23.5)]
    rows += [quantizer_row(hi=1.0), quantizer_row(variant="+fix", hi=2.0)]
    text = markdown.render(*judged(rows, rows))
    ((_, _, line),) = tables(folded(text, "What each fix is worth"))
    assert line == ["resnet/small", "x86-static", "+fix", "logits", "-4.25", "23.50", "+27.75"]
    ((_, _, line),) = tables(folded(text, "Range bounds that a fix moved"))
    assert line[3:8] == ["converted", "conv1:conv2d:0:input", "2.5", r"\[0, 1\]", r"\[0, 2\]"]


def test_without_variants_the_report_says_nothing_of_fixes() -> None:
    text = markdown.render(*judged([], [output_row(), quantizer_row()]))
    assert "fix" not in text


def test_where_fixes_only_idle_it_says_so_and_names_them() -> None:
    text = markdown.render(*judged([], [output_row(), repaired_row(fix_state="upstreamed")]))
    shown = folded(text, "What each fix is worth")
    assert "No fix changed anything." in shown
    assert "- x86-static +fix: upstreamed on resnet/small" in shown
    assert not list(tables(shown))


def test_names_of_outputs_fixes_and_quantizers_stay_inside_their_cells() -> None:
    text = markdown.render(*hostile_fixes())
    (table,) = tables(folded(text, "What each fix is worth"))
    assert len(table) == 2 + 2 * len(HOSTILE)  # heading, rule, and for each name a fix that works and one that fails
    ((_, _, *moved),) = tables(folded(text, "Range bounds that a fix moved"))
    assert len(moved) == len(HOSTILE)


def test_the_matrix_has_a_line_for_each_flow() -> None:
    rows = [output_row(), output_row(flow="x86-dynamic", sqnr_db=31.26)]
    (matrix,) = tables(folded(markdown.render(*judged(rows, rows)), "SQNR, dB, released code"))
    assert matrix[0] == ["flow", "resnet/small logits"]
    assert matrix[2:] == [["x86-dynamic", "31.3"], ["x86-static", "30.0"]]


def test_coverage_lists_the_cases_that_leave_weights_in_float_once_for_equal_variants() -> None:
    def weight(name: str, status: str, **changes: str) -> Row:
        return quantizer_row(quantizer=name, role="weight", status=status, **changes)

    rows = [weight("a", "quantized", model="vit")]
    for variant in ("released", "+fix"):
        rows += [weight("a", "quantized", variant=variant), weight("b", "unquantized", variant=variant)]
    shown = folded(markdown.render(*judged(rows, rows)), "Coverage")
    assert "1 of 3 cases quantize every weight" in shown
    ((_, _, *lines),) = tables(shown)
    assert lines == [["resnet", "small", "trained", "x86-static", "released", "1", "2", "b"]]


def test_the_environment_marks_what_differs_from_that_of_the_baseline() -> None:
    run, judgement = nothing()
    then = {"cpu": "a cpu", "stack": {"torchao": "0.17", "nncf": "3.4"}, "pins": {"OMP_NUM_THREADS": "1"}}
    before = replace(judgement.before, environments=(then,))
    (table,) = tables(folded(markdown.render(run, replace(judgement, before=before)), "Environment"))
    assert table[2:] == [
        ["", "cpu", "a cpu", "a cpu"],
        ["≠", "torchao", "0.18", "0.17"],
        ["", r"OMP\_NUM\_THREADS", "1", "1"],
        ["≠", "nncf", "not installed", "3.4"],
    ]


# Its size


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
