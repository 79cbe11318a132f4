"""What the page shows of a run: counts, changes, cases, fixes, the environment and the history."""

from __future__ import annotations

from dataclasses import replace

from harness import __version__
from harness.errors import ExitCode
from harness.records import Row
from harness.report.html import page
from harness.report.html.timeline import timeline
from harness.steps import find_steps
from tests.histories import frame_of, series
from tests.judgements import judged, one_of_each
from tests.report.html.pages import Page, rendered, words_of
from tests.rows import output_row, quantizer_row, repaired_row


def test_a_page_says_what_made_it_and_what_it_is_about() -> None:
    found = rendered(one_of_each())
    assert found.all("//meta[@name='generator']/@content") == [f"sqnr-harness {__version__}"]
    assert found.all("//title/text()") == ["✗ Numerical accuracy: 20260131-120000-gate"]
    assert found.all("//html/@lang") == ["en"]
    assert {section.get("id") for section in found.all("//section")} == {
        "changes", "failures", "fixes", "outputs", "cases", "quantizers", "environment"
    }  # fmt: skip
    assert "suite gate , 1 case in 0 s, judged by baseline linux-x86_64. Exit code 1." in found.words


def test_counts_and_what_changed_stand_worst_first() -> None:
    found = rendered(one_of_each())
    counts = [words_of(item) for item in found.all("//ul[@class='counts']/li")]
    assert counts == ["✓ ok 1", "▲ improved 1", "✗ regressed 2", "≠ changed 1", "+ new 1", "− missing 1", "! failed 1"]
    assert "regressed 30.00 → 24.00 dB (-6.00)" in found.section("changes")
    assert "nan none → nonfinite_actual" in found.section("changes")


def test_a_waived_row_is_said_with_its_reason_and_is_no_outcome_of_its_own() -> None:
    run, judgement = judged([output_row()], [output_row(sqnr_db=20.0)])
    waived = tuple(replace(verdict, waived="waits for 0.19") for verdict in judgement.verdicts)
    found = rendered((run, replace(judgement, verdicts=waived, exit_code=ExitCode.OK)))
    assert found.all("//td/span/@class") == ["outcome regressed waived"] * 2  # in the changes, and in the case
    assert "✗ regressed, waived waits for 0.19" in found.section("changes")
    assert "1 of them waived" in found.words


def test_a_case_is_one_address_where_its_outputs_findings_and_ranges_stand() -> None:
    old: list[Row] = [output_row(noise_db=0.1), quantizer_row(hi=2.0)]
    found = rendered(judged(old, [output_row(sqnr_db=20.0), quantizer_row(hi=1.0)]))
    (case,) = found.all("//details[@id='case-resnet-small-trained-x86-static']")
    text = words_of(case)
    assert "converted logits ✗ regressed 30.00 dB 20.00 dB -10.00 0.1 20.00 dB 0.25 90.00 %" in text
    assert "≠ converted conv1:conv2d:0:input: upper bound 1, baseline 2" in text
    assert case.xpath(".//@data-figure") == ["range-case-resnet-small-trained-x86-static-converted"]
    assert found.all("//table[@id='changes-table']//a/@href") == ["#case-resnet-small-trained-x86-static"]


def test_findings_of_a_case_are_cut_and_counted() -> None:
    old = [quantizer_row(quantizer=f"layer{n}") for n in range(30)]
    found = rendered(judged(old, [replace(row, hi=1.0) for row in old]))
    assert len(found.all("//ul[@class='findings']/li")) == 26
    assert "5 more are in verdict.json" in found.section("cases")


def test_fixes_are_a_matrix_a_table_and_the_bounds_they_moved() -> None:
    rows: list[Row] = [output_row(), repaired_row(sqnr_db=42.5), output_row(variant="+idle", fix_state="inert")]
    for name in ("a", "b"):
        rows += [quantizer_row(quantizer=name, hi=1.0), quantizer_row(quantizer=name, hi=2.0, variant="+fix")]
    found = rendered(judged(rows, rows))
    text = found.section("fixes")
    assert "resnet/small x86-static +fix logits 30.00 42.50 +12.50" in text
    assert "x86-static +idle: inert on resnet/small" in text
    assert "resnet/small/trained x86-static +fix, converted: 2 range bounds moved" in text
    assert "All 2 range bounds that a fix moved" in text
    assert {"fix-matrix", "moved-0"} <= set(found.data["figures"])
    assert "= inert: the fix changed no qparam, node or output here; ↑ upstreamed" in text


def test_what_differs_in_the_environment_is_marked_in_words_too() -> None:
    run, judgement = judged([output_row()], [output_row()])
    before = replace(judgement.before, environments=({"cpu": "a cpu", "stack": {"torchao": "0.17"}},))
    found = rendered((run, replace(judgement, before=before)))
    assert found.all("//tr[@class='differs']/*/text()") == ["torchao", "0.17", "0.18", "≠ yes"]


def test_the_history_is_a_section_with_its_steps_and_a_chooser() -> None:
    frame = frame_of(series([40.0, 40.0, 38.0]), series([30.0, 30.0, 30.0], output="digit"))
    found = rendered(one_of_each(), timeline(frame, find_steps(frame)))
    text = found.section("history")
    assert "3 runs from 2026-01-01 to 2026-01-03, 2 series, 1 step." in text
    assert "run03" in text
    assert "-2.00 dB" in text
    name = "resnet/small/trained x86-static converted"
    assert found.all("//select[@id='series']/option/text()") == [f"{name} logits", f"{name} digit"]
    assert len(found.data["timeline"]["series"]) == 2


def test_a_history_alone_is_a_page_too() -> None:
    frame = frame_of(series([40.0, 40.0]))
    found = Page(page.render_history(timeline(frame, find_steps(frame))))
    assert [section.get("id") for section in found.all("//section")] == ["history"]
    assert "No step: no output moved by more than its allowance." in found.words
    assert found.all("//nav//a/@href") == ["#history"]


def test_an_empty_history_says_so() -> None:
    found = Page(page.render_history(timeline(frame_of(), [])))
    assert "The history holds no run." in found.words
    assert found.all("//select") == []
