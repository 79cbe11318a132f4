"""The page on wide and narrow windows, by day and by night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("selenium")

from tests.report.html.browser import Browser
from tests.report.html.pages import CHANGES


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
