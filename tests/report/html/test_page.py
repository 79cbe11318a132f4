"""The page as a parser reads it: whole, plain about what is not there, and deaf to what names mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness import extra
from harness.errors import UsageError
from harness.judge import Judgement, judge_or_none
from harness.records import Row
from harness.report.html import page
from harness.store import Run
from tests.judgements import EVERY, all_failed, all_none, judged, nothing
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


def test_without_its_packages_the_report_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "itables" else object())
    with pytest.raises(
        UsageError, match=r"itables not installed, for the HTML report: pip install 'sqnr-harness\[report\]'"
    ):
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
