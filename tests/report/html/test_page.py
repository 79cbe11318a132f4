"""The page as a parser reads it: whole, plain about what is not there, and deaf to what names mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness import __version__, extra
from harness.errors import ExitCode, UsageError
from harness.judge import Judgement, judge_or_none
from harness.records import Row
from harness.report.html import page
from harness.report.html.timeline import timeline
from harness.steps import find_steps
from harness.store import Run
from tests.histories import frame_of, series
from tests.judgements import EVERY, all_failed, all_none, judged, nothing, one_of_each
from tests.report.html.pages import Page, cases_of_one_slug, hostile_names, rendered, words_of
from tests.rows import (
    no_number,
    output_row,
    quantizer_row,
    repaired_row,
    run_of,
    with_nan,
    workspace_at,
)

Found = tuple[Run, Judgement]

SECTIONS = {"changes", "failures", "fixes", "outputs", "cases", "quantizers", "history", "environment"}
DRAWN_LATER = {"timeline"}
"""Figures whose traces are chosen on the page."""


def many_quantizers() -> Found:
    rows: list[Row] = [quantizer_row(quantizer=f"layer{n}:conv2d.input") for n in range(5000)]
    return judged(rows, [output_row(), *rows])


def with_logs(tmp: Path) -> Found:
    run, judgement = all_failed()
    run = replace(run, folder=tmp)
    run.logs.mkdir()
    text = "resnet/small/trained x86-static at converted\nTraceback (most recent call last)\n<b>bold</b>\u202e\n"
    (run.logs / "000-resnet-small.log").write_text(text, encoding="utf-8")
    return run, judgement


# What holds for every page


@pytest.mark.parametrize("build", [*EVERY, hostile_names, cases_of_one_slug, many_quantizers])
def test_ids_are_unique_and_every_anchor_and_figure_has_its_target(build: Callable[[], Found]) -> None:
    found = rendered(build())
    ids = Counter(found.all("//@id"))
    assert {name for name, count in ids.items() if count > 1} == set()
    links = found.all("//a/@href")
    assert links
    assert [link for link in links if not (link.startswith("#") and link[1:] in ids)] == []
    assert set(found.all("//@aria-labelledby")) <= set(ids)
    figures = found.all("//@data-figure")
    assert len(set(figures)) == len(figures)
    assert set(figures) == set(found.data["figures"]) | (DRAWN_LATER & set(figures))
    assert set(found.all("//@data-rows")) == set(found.data["tables"]) - _empty(found)


def _empty(found: Page) -> set[str]:
    return {name for name, rows in found.data["tables"].items() if not rows}


@pytest.mark.parametrize("build", [*EVERY, hostile_names, many_quantizers])
def test_every_table_names_its_columns_and_every_figure_and_region_is_named(build: Callable[[], Found]) -> None:
    found = rendered(build())
    tables = found.all("//table")
    assert tables
    for table in tables:
        headings = table.xpath(".//thead/tr/th")
        assert headings
        assert {heading.get("scope") for heading in headings} == {"col"}
        assert {cell.get("scope") for cell in table.xpath(".//tbody//th")} <= {"row"}
        widths = {len(row.xpath("./td|./th")) for row in table.xpath(".//tbody/tr")}
        assert widths <= {len(headings)}
    for named in found.all("//*[@role='region' or @role='img' or self::nav]"):
        assert named.get("aria-label").strip()
    assert found.all("//*[@role='region'][not(@tabindex='0')]") == [], "what scrolls must be reachable by keyboard"


@pytest.mark.parametrize("build", EVERY)
def test_no_outcome_is_told_by_colour_alone(build: Callable[[], Found]) -> None:
    """Beside its class, and so its colour, stand a sign that differs from outcome to outcome, and the word."""
    signs: dict[str, set[str]] = {}
    for shown in rendered(build()).all("//span[starts-with(@class, 'outcome ')]"):
        words = words_of(shown)
        sign, word = words.split(" ", 1)
        assert shown.get("class").split()[1] == word.split(",")[0].split()[0]
        signs.setdefault(sign, set()).add(word.split()[0].rstrip(","))
    assert all(len(words) == 1 or words == {"ok", "known"} for words in signs.values())


@pytest.mark.parametrize("build", EVERY)
def test_a_page_asks_nothing_of_a_network(build: Callable[[], Found]) -> None:
    found = rendered(build())
    own = found.all("//*/@src | //link/@href | //form/@action | //*/@srcset | //object/@data")
    assert [address for address in own if not address.startswith("data:")] == []
    assert "@import" not in found.text
    assert "url(http" not in found.text


def test_a_page_says_what_made_it_and_what_it_is_about() -> None:
    found = rendered(one_of_each())
    assert found.all("//meta[@name='generator']/@content") == [f"sqnr-harness {__version__}"]
    assert found.all("//title/text()") == ["✗ Numerical accuracy: 20260131-120000-gate"]
    assert found.all("//html/@lang") == ["en"]
    assert {section.get("id") for section in found.all("//section")} == SECTIONS - {"history"}
    assert "suite gate , 1 case in 0 s, judged by baseline linux-x86_64. Exit code 1." in found.words


def test_without_its_packages_the_report_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "itables" else object())
    with pytest.raises(UsageError, match=r"the HTML report needs itables: pip install 'sqnr-harness\[report\]'"):
        page.render(*nothing())


# What is not there is said


def test_no_row_at_all() -> None:
    found = rendered(nothing())
    assert "✗ nothing was measured no rows" in found.words
    assert found.section("changes") == "What changed Nothing was measured: the run has no rows."
    assert found.section("fixes") == "With and without each fix No case of this run has a variant with a fix."
    assert found.section("outputs") == "SQNR per output There are no outputs."
    assert found.section("cases") == "Cases and their range bounds There are no cases."
    assert found.section("quantizers") == "All quantizers There are no quantizers."
    assert found.data["figures"] == {}


def test_everything_failed(tmp_path: Path) -> None:
    found = rendered(with_logs(tmp_path))
    assert "some rows failed or are missing" in found.words
    assert "! failed 2" in found.words
    failures = found.section("failures")
    assert "! failed export of resnet/small/trained x86-static (converted) : boom" in failures
    assert (
        "resnet/small/trained x86-static at converted Traceback (most recent call last) <b>bold</b>\\u202e" in failures
    )
    assert "! failed export of vit/small/trained x86-static (converted) : boom" in failures
    assert failures.endswith("There is no log of it in the run's folder.")


def test_a_known_failure_is_told_but_stays_folded() -> None:
    rows = [no_number("failed:lower", point="lowered", error="as ever"), output_row()]
    found = rendered(judged(rows, rows))
    assert found.section("changes") == "What changed Nothing: every row is as accepted."
    assert "✓ known failure lower of resnet/small/trained x86-static (lowered) : as ever" in found.section("failures")
    assert found.all("//details[@class='failure'][@open]") == []


def test_a_known_failure_of_several_variants_is_one() -> None:
    rows = [no_number("failed:lower", variant=name, error="as ever") for name in ("released", "+b", "+a")]
    found = rendered(judged(rows, rows))
    assert "lower of resnet/small/trained x86-static , +a, +b (converted) : as ever" in found.section("failures")


def test_rows_without_a_single_number() -> None:
    found = rendered(all_none())
    assert "resnet/small/trained x86-static converted logits empty, new" in found.section("changes")
    assert "unquantized" in str(found.data["tables"]["quantizers"])
    [bars] = [spec for name, spec in found.data["figures"].items() if name.startswith("bars-")]
    assert [trace["x"] for trace in bars["data"]] == [[None], [None]]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_no_number_that_is_not_finite_stops_a_page(number: float) -> None:
    """Rows refuse such numbers; whatever else should bring them, the page is there and calls the rows worse."""
    floats = [field.name for kind in (output_row(), quantizer_row()) for field in fields(kind)]
    rows: list[Row] = []
    for name in floats:
        for row in (output_row(output=name), repaired_row(output=name), quantizer_row(quantizer=name)):
            if isinstance(getattr(row, name, None), float):
                rows.append(with_nan(row, name))
                object.__setattr__(rows[-1], name, number)
    old = [output_row(output=name) for name in floats] + [quantizer_row(quantizer=name) for name in floats]
    found = rendered(judged(old, rows))
    assert len(rows) > 20
    assert "✗ regressed" in found.words


def test_a_run_without_a_baseline(tmp_path: Path) -> None:
    run = run_of(tmp_path / "reports" / "run", output_row(), quantizer_row())
    found = rendered((run, judge_or_none(workspace_at(tmp_path), run)))
    assert "judged by nothing: there is no baseline. Exit code 4." in found.words
    assert "no baselines for this platform" in found.words
    assert "+ new 2" in found.words
    assert "resnet/small/trained x86-static converted logits 30.00 dB, new" in found.section("changes")
    assert found.all("//section[@id='environment']//thead//th/text()") == ["what", "before", "this run", "differs"]


def test_five_thousand_quantizers_are_rows_of_data_rather_than_of_the_page() -> None:
    found = rendered(many_quantizers())
    assert "5,000 rows: sort and filter" in found.section("quantizers")
    assert len(found.data["tables"]["quantizers"]) == 5000
    assert [row[3] for row in found.data["tables"]["quantizers"][:11:5]] == [
        "layer0:conv2d.input",
        "layer5:conv2d.input",
        "layer10:conv2d.input",
    ]
    assert len(found.all("//tr")) < 30


# What is there


def test_counts_and_what_changed_stand_worst_first() -> None:
    found = rendered(one_of_each())
    counts = [words_of(item) for item in found.all("//ul[@class='counts']/li")]
    assert counts == ["✓ ok 1", "▲ improved 1", "✗ regressed 2", "≠ changed 1", "+ new 1", "− missing 1", "! failed 1"]
    assert "regressed 30.00 → 24.00 dB (−6.00)" in found.section("changes")
    assert "nan none → nonfinite_actual" in found.section("changes")


def test_a_waived_row_is_said_with_its_reason_and_is_no_outcome_of_its_own() -> None:
    run, judgement = judged([output_row()], [output_row(sqnr_db=20.0)])
    waived = tuple(replace(verdict, waived="waits for 0.19") for verdict in judgement.verdicts)
    found = rendered((run, replace(judgement, verdicts=waived, exit_code=ExitCode.OK)))
    assert found.all("//td/span/@class") == ["outcome regressed waived", "outcome regressed"]
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
    assert "3 runs from 2026-01-01 to 2026-01-03, 2 outputs of cases, 1 step." in text
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
