"""The page in a browser: what a mouse and a keyboard do, and what names do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.report.html.browser import Browser
from tests.report.html.pages import CASES, CHANGES, QUANTIZERS

VERDICT, CASE, LOSS = 0, 1, 4


# Tables


def test_a_click_on_a_heading_sorts_and_says_so(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.sorting(CHANGES)
    heading = f"{CHANGES} thead tr:first-child th:nth-child({LOSS + 1})"
    for direction, first in (("ascending", "1.00"), ("descending", "30.00")):
        browser.one(heading).click()
        browser.until(f"return document.querySelector('{heading}').getAttribute('aria-sort') === '{direction}'")
        assert browser.column(CHANGES, LOSS)[0] == first
    shown = [float(cell) for cell in browser.column(CHANGES, LOSS)]
    assert shown == sorted(shown, reverse=True)


def test_words_in_the_filter_leave_the_rows_that_have_them(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.sorting(CHANGES)
    browser.one("#changes .dt-search input").send_keys("model27")
    browser.until(f"return document.querySelectorAll('{CHANGES} > tbody > tr').length === 2")
    assert all("model27" in cell for cell in browser.column(CHANGES, CASE))


def test_a_column_has_a_filter_of_its_own(browser: Browser, report: Path) -> None:
    """`30.0` is the loss of the 30th model, and stands in the outputs of another."""
    browser.open(report)
    browser.sorting(CHANGES)
    browser.one(f"{CHANGES} thead tr:nth-child(2) td:nth-child({LOSS + 1}) input").send_keys("30.00")
    browser.until(f"return document.querySelectorAll('{CHANGES} > tbody > tr').length === 2")
    assert set(browser.column(CHANGES, LOSS)) == {"30.00"}
    unnamed = (
        "return [...document.querySelectorAll('thead input, thead select')].filter((one) => !one.ariaLabel).length"
    )
    assert browser.run(unnamed) == 0


def test_the_quantizers_are_turned_over_and_filtered(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.one("#quantizers summary").click()
    browser.sorting(QUANTIZERS)
    names = [f"layer{number}:linear.input" for number in range(1, CASES + 1) for _ in ("released", "+fix")]
    assert browser.column(QUANTIZERS, 2) == names[:25]
    browser.one("#quantizers .dt-paging-button.next:not(.disabled)").click()
    browser.until(f"return document.querySelector('{QUANTIZERS} > tbody > tr').cells[2].innerText === '{names[25]}'")
    assert browser.column(QUANTIZERS, 2) == names[25:50]
    browser.one("#quantizers .dt-search input").send_keys("layer27:")
    browser.until(f"return document.querySelectorAll('{QUANTIZERS} > tbody > tr').length === 2")
    assert browser.column(QUANTIZERS, 2) == ["layer27:linear.input"] * 2


def test_the_case_of_a_quantizer_is_a_link_that_opens_it(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.one("#quantizers summary").click()
    browser.sorting(QUANTIZERS)
    browser.one(f"{QUANTIZERS} > tbody a").click()
    browser.until("return document.querySelector('#case-model1-small-trained-x86-static').open")


# Anchors


def in_view(selector: str) -> str:
    return (
        f"const box = document.querySelector('{selector}').getBoundingClientRect();"
        "return box.top >= 0 && box.top < innerHeight / 2"
    )


def test_the_link_of_a_change_opens_its_case_and_scrolls_to_it(browser: Browser, report: Path) -> None:
    browser.open(report)
    link = browser.one(f"{CHANGES} > tbody a")
    case = link.get_attribute("hash")
    assert not browser.run(f"return document.querySelector('{case}').open")
    link.click()
    browser.until(f"return document.querySelector('{case}').open")
    browser.until(in_view(case))
    browser.until(f"return document.querySelector('{case} .plot[data-drawn]') !== null")
    browser.run(f"document.querySelector('{case}').open = false; scrollTo(0, 0)")
    browser.one(f"{CHANGES} > tbody a").click()
    browser.until(f"return document.querySelector('{case}').open")


def test_an_address_with_an_anchor_opens_that_case(browser: Browser, report: Path) -> None:
    case = "#case-model7-small-trained-x86-static-with-fix"
    browser.open(report, anchor=case)
    assert browser.run(f"return document.querySelector('{case}').open")
    browser.until(in_view(case))


# Figures


def test_over_a_cell_of_the_fix_matrix_its_sentence_appears(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.one("#fixes .plot")
    browser.until("return document.querySelector('#fixes .plot[data-drawn] .nsewdrag') !== null")
    browser.run("document.querySelector('#fixes .nsewdrag').scrollIntoView({block: 'start'}); scrollBy(0, -150)")
    x, y = browser.run(
        "const box = document.querySelector('#fixes .nsewdrag').getBoundingClientRect();"
        "return [box.left + box.width * 0.75, box.top + 10]"
    )
    mouse = ActionChains(browser.driver, duration=50)
    mouse.w3c_actions.pointer_action.move_to_location(int(x), int(y))
    mouse.w3c_actions.pointer_action.move_to_location(int(x) + 3, int(y) + 2)
    mouse.perform()
    browser.until("return document.querySelector('#fixes .hoverlayer .hovertext') !== null")
    said = browser.run("return document.querySelector('#fixes .hoverlayer').textContent")
    sentence = (
        "model1/small logits through x86-static with +fix, converted: "
        "39.00 dB as released, 44.00 dB repaired, gain +5.00 dB."
    )
    assert sentence.replace(" ", "") in re.sub(r"\s", "", said), "its lines follow each other without a blank"


def test_every_figure_that_is_looked_at_is_drawn(browser: Browser, report: Path) -> None:
    browser.open(report)
    for selector in ("#fixes .plot", "#outputs .plot", "#history .plot"):
        browser.one(selector)
        browser.until(f"return document.querySelector('{selector}[data-drawn] .main-svg') !== null")
    assert browser.complaints() == []


def test_the_chooser_of_the_history_draws_another_series(browser: Browser, report: Path) -> None:
    browser.open(report)
    levels = "return document.querySelector('#history .plot').data?.[0].y.join()"
    browser.one("#history .plot")
    browser.until(f"{levels} === '40,40,38'")
    browser.one("#series").send_keys("resnet/small/trained x86-static converted digit")
    browser.until(f"{levels} === '30,30.5,30'")


# Keyboard


def test_a_keyboard_alone_reaches_everything(browser: Browser, report: Path) -> None:
    browser.open(report)
    first = browser.press(Keys.TAB)
    assert (first.text, first.is_displayed()) == ("Skip to what changed", True)
    browser.press(Keys.ENTER)
    browser.until("return location.hash === '#main'")
    browser.sorting(CHANGES)
    heading = browser.tab_to(f"{CHANGES} thead [role=button], {CHANGES} thead th[tabindex]")
    heading.send_keys(Keys.ENTER)
    browser.until(f"return document.querySelector('{CHANGES} thead [aria-sort]') !== null")
    link = browser.tab_to(f"{CHANGES} > tbody a")
    case = link.get_attribute("hash")
    link.send_keys(Keys.ENTER)
    browser.until(f"return document.querySelector('{case}').open")
    summary = browser.tab_to("details.case > summary")
    summary.send_keys(Keys.ENTER)
    browser.until("return !document.activeElement.parentElement.open")
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "who has the focus must be seen"


# What a page must not do


def test_names_run_no_script_and_nothing_is_asked_for(browser: Browser, hostile: Path) -> None:
    browser.open(hostile)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    for section in ("#fixes", "#outputs", "#cases", "#history"):
        browser.one(f"{section} .plot")
        browser.until(f"return document.querySelector('{section} .plot[data-drawn]') !== null")
    for table in (CHANGES, QUANTIZERS):
        browser.sorting(table)
    assert browser.run("return window.__pwned") is None
    assert browser.run("return document.querySelectorAll('[onmouseover], [onerror], main img, main h1').length") == 0
    assert (
        browser.run("return [...document.links].filter((link) => !link.hash || link.protocol !== 'file:').length") == 0
    )
    assert browser.complaints() == []
    asked = browser.requests()
    assert asked
    assert [address for address in asked if not address.startswith(("file:", "blob:", "data:", "about:"))] == []
