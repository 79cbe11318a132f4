"""Names that mean something to HTML, a script or a reader: on a page they are text, and all of it is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lxml import etree

from harness.judge import Judgement
from harness.report.html import assets
from harness.report.html.timeline import timeline
from harness.report.text import visible
from harness.steps import find_steps
from harness.store import Run
from tests.histories import frame_of, series
from tests.judgements import hostile, nothing
from tests.report.html.pages import HOSTILE, Page, called, cases_of_one_slug, hostile_names, rendered

Found = tuple[Run, Judgement]


def hostile_history() -> Page:
    """UTF-8, and so a history, has no lone surrogate: there it is an escape already."""
    names = [name.replace("\ud800", "\\ud800") for name in HOSTILE]
    frame = frame_of(*(series([40.0, 30.0, "failed:lower"], output=name, run=name, torchao=name) for name in names))
    return rendered(nothing(), timeline(frame, find_steps(frame)))


@pytest.fixture(scope="module")
def hostile_page() -> Page:
    return rendered(hostile_names())


def _shape(found: Page) -> set[tuple[str, frozenset[str]]]:
    """Every kind of element, with the attributes it has."""
    return {
        (element.tag, frozenset(element.attrib))
        for element in found.tree.iter()
        if element.tag is not etree.Comment and not callable(element.tag)
    }


def test_no_name_becomes_an_element_a_comment_or_an_attribute(hostile_page: Page) -> None:
    tame = rendered(called(*(f"name{index}" for index in range(len(HOSTILE)))))
    assert _shape(hostile_page) == _shape(tame)
    assert hostile_page.all("//comment()") == []
    assert len(hostile_page.all("//script")) == len(tame.all("//script"))


@pytest.mark.parametrize("build", [hostile, lambda: called("<script>alert(1)</script>")])
def test_there_is_no_script_but_the_pages_own(build: Callable[[], Found]) -> None:
    scripts = rendered(build()).all("//script")
    assert [script.get("id") for script in scripts] == [
        "packed-plotly", "packed-tables", "packed-tables-style", "packed-data", None
    ]  # fmt: skip
    assert scripts[-1].text == assets.own("report.js")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_name_is_shown_as_it_is_but_for_what_is_not_seen(hostile_page: Page, name: str) -> None:
    shown = visible(name)
    for section in ("changes", "failures", "fixes", "outputs", "cases"):
        assert shown in hostile_page.section(section)
    quantizers = [row[3] for row in hostile_page.data["tables"]["quantizers"]]
    assert shown in quantizers


def test_nothing_on_a_page_is_hidden_or_turned_around(hostile_page: Page) -> None:
    for sign in "\u202e\x1b\r\ud800":
        assert sign not in hostile_page.text.replace("\r\n", "\n")


def test_a_history_of_such_names_is_text_too() -> None:
    found = hostile_history()
    assert found.all("//script[not(@id)]")[0].text == assets.own("report.js")
    assert len(found.all("//select/option")) == len(HOSTILE)
    for name in HOSTILE:
        assert visible(name) in found.section("history")


def test_cases_whose_names_differ_in_signs_alone_have_addresses_of_their_own() -> None:
    found = rendered(cases_of_one_slug())
    addresses = [details.get("id") for details in found.all("//details[@class='case']")]
    assert len(set(addresses)) == 3
    assert {row[0] for row in found.data["tables"]["quantizers"]} == set(addresses)
