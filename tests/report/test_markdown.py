"""The markdown report: what changed and no more, and what is folded away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from harness.errors import ExitCode
from harness.judge import Before
from harness.records import Row
from harness.report import markdown
from tests.judgements import HOSTILE, ODD, all_failed, hostile_fixes, judged, nothing, one_of_each
from tests.report.markdown_text import changes, folded, tables
from tests.rows import no_number, output_row, quantizer_row, repaired_row
from tests.waivers import waived

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
