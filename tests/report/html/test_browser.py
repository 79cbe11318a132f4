"""The page in a browser: what a mouse and a keyboard do, on wide and narrow windows, by day and by night."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from harness.records import Row
from harness.report.html import page
from harness.report.html.timeline import timeline
from harness.steps import find_steps
from tests.histories import frame_of, series
from tests.judgements import judged
from tests.report.html.browser import Browser, start
from tests.report.html.pages import HOSTILE, called
from tests.rows import output_row, quantizer_row

CHANGES, QUANTIZERS = "#changes-table", "#quantizers-table"
VERDICT, CASE, LOSS = 0, 1, 4
CASES = 30


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = start()
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 models lose 1 to 30 dB of 40 dB, a fix gains 5 dB, 60 quantizers, and two series over three runs."""
    old: list[Row] = []
    new: list[Row] = []
    for number in range(1, CASES + 1):
        model = f"model{number}"
        for variant, gain in (("released", 0.0), ("+fix", 5.0)):
            row = {"model": model, "variant": variant, "fix_state": "needed" if gain else ""}
            old.append(output_row(**row, sqnr_db=40.0 + gain, noise_db=0.1))
            new.append(output_row(**row, sqnr_db=40.0 - number + gain))
            both = quantizer_row(model=model, variant=variant, quantizer=f"layer{number}:linear.input", hi=1.0 + gain)
            old.append(both)
            new.append(both)
    frame = frame_of(series([40.0, 40.0, 38.0]), series([30.0, 30.5, 30.0], output="digit"))
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page.render(*judged(old, new), timeline(frame, find_steps(frame))), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that are scripts, markup and attributes, in the page and in a history."""
    names = [name.replace("\ud800", "") for name in HOSTILE]
    frame = frame_of(*(series([40.0, 30.0], output=name, run=name, torchao=[name, "2"]) for name in names))
    file = tmp_path_factory.mktemp("hostile") / "report.html"
    file.write_text(page.render(*called(*HOSTILE), timeline(frame, find_steps(frame))), encoding="utf-8")
    return file


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


# Windows and colours


@pytest.mark.parametrize("width", [390, 1300])
def test_the_page_itself_never_scrolls_sideways(browser: Browser, report: Path, hostile: Path, width: int) -> None:
    for file in (report, hostile):
        browser.open(file, width=width)
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        browser.one("#fixes .plot")
        browser.until("return document.querySelector('#fixes .plot[data-drawn]') !== null")
        assert browser.run("return document.documentElement.scrollWidth") == width


def luminance(colour: str) -> float:
    """As WCAG 2 has it, of `rgb(r, g, b)`."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_is_a_contrast_of_21() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)


COLOURS = """
const found = document.querySelector(arguments[0]);
let under = found;
while (getComputedStyle(under).backgroundColor === "rgba(0, 0, 0, 0)") under = under.parentElement;
return [getComputedStyle(found).color, getComputedStyle(under).backgroundColor];
"""
TEXTS = (
    "body", "h1", ".kicker", ".counts .outcome", ".facts", "nav a", "#changes td a", "#changes-table th", "summary",
    "summary .quiet", "#changes .outcome.regressed", "figcaption", "footer p", "#changes .dt-search input", "code",
)  # fmt: skip


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_by_day_and_by_night(browser: Browser, report: Path, dark: bool) -> None:
    """4.5 is what WCAG 2 asks of text for level AA."""
    browser.open(report, dark=dark)
    browser.sorting(CHANGES)
    assert (luminance(browser.run(COLOURS, "body")[1]) < 0.1) is dark
    weak = {text: contrast(*browser.run(COLOURS, text)) for text in TEXTS}
    assert {text: round(found, 2) for text, found in weak.items() if found < 4.5} == {}
    browser.one("#outputs .plot")
    browser.until("return document.querySelector('#outputs .plot[data-drawn] .ytick text') !== null")
    ink = browser.run("return getComputedStyle(document.querySelector('#outputs .ytick text')).fill")
    assert contrast(ink, browser.run(COLOURS, "body")[1]) >= 4.5


def test_figures_change_their_colours_with_the_page(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.one("#outputs .plot")
    ink = "const tick = document.querySelector('#outputs .ytick text'); return tick && getComputedStyle(tick).fill"
    browser.until(ink)
    by_day = browser.run(ink)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    browser.until(f"return (() => {{ {ink} }})() !== '{by_day}'")


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
