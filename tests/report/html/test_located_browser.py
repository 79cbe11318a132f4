"""Located outputs in a browser: what a mouse and a keyboard do, narrow and wide, by day and by night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from harness.located import Sensitivity
from harness.report.html import page
from tests.located_records import called, culprit, layer, located
from tests.report.html.browser import Browser
from tests.report.html.pages import HOSTILE
from tests.report.html.test_looks import COLOURS, contrast

PLOT = "#culprits .plot[data-drawn]"
NUMBERS = "#culprits details details:first-of-type"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty layers, the third of which is the culprit, at 0.34 dB."""
    layers = [layer(name=f"block{n}:linear", sqnr_db=30.0 - n, local_db=40.0) for n in range(30)]
    layers[2] = layer(name="block2:linear", sqnr_db=0.5, local_db=0.34)
    record = located(
        layers=tuple(layers),
        culprits=(culprit(names=("block2:linear.input",)),),
        sensitivity=(Sensitivity(("a",), 1.0, 2.0),),
        only_float=tuple(f"drop{n}:dropout" for n in range(20)),
    )
    file = tmp_path_factory.mktemp("located") / "located.html"
    file.write_text(page.render_located([record]), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("wild") / "located.html"
    records = [called(name.replace("\ud800", "")) for name in HOSTILE]
    file.write_text(page.render_located(records), encoding="utf-8")
    return file


def test_over_a_star_the_culprit_its_source_and_its_levels_appear(browser: Browser, shown: Path) -> None:
    browser.open(shown)
    browser.one("#culprits .plot")
    browser.until(f"return document.querySelector('{PLOT} .nsewdrag') !== null")
    x, y = browser.run(
        "const plot = document.querySelector('#culprits .plot'), box = plot.getBoundingClientRect();"
        "const { xaxis, yaxis } = plot._fullLayout;"
        "return [box.left + xaxis._offset + xaxis.d2p(2), box.top + yaxis._offset + yaxis.d2p(0.34)]"
    )
    mouse = ActionChains(browser.driver, duration=50)
    mouse.w3c_actions.pointer_action.move_to_location(int(x) + 2, int(y))
    mouse.w3c_actions.pointer_action.move_to_location(int(x), int(y))
    mouse.perform()
    browser.until("return document.querySelector('#culprits .hoverlayer .hovertext') !== null")
    said = re.sub(r"\s", "", browser.run("return document.querySelector('#culprits .hoverlayer').textContent"))
    for fact in ("culprit1:block2:linear.input:range[-1,1.7]->[0,100]", "models/net.py:7", "local:0.34dB"):
        assert fact in said


def test_the_numbers_are_a_table_that_a_keyboard_opens_and_sorts(browser: Browser, shown: Path) -> None:
    browser.open(shown)
    browser.tab_to("#culprits details details summary").send_keys(Keys.ENTER)
    table = f"{NUMBERS} table.dataTable"
    browser.until(f"return document.querySelector('{table} tbody tr') !== null")
    heading = browser.tab_to(f"{NUMBERS} thead [role=button], {NUMBERS} thead th[tabindex]")
    assert heading.is_displayed()
    browser.one(f"{NUMBERS} thead tr:first-child th:nth-child(6)").click()
    browser.until(f"return document.querySelector('{NUMBERS} [aria-sort=ascending]') !== null")
    assert browser.column(table, 1)[0] == "block2:linear"
    assert browser.column(table, 5)[0] == "0.34"
    assert browser.run(f"return document.querySelectorAll('{NUMBERS} tbody a').length") == 0, "rows link to no case"


@pytest.mark.parametrize("width", [390, 1300])
def test_the_page_itself_never_scrolls_sideways(browser: Browser, shown: Path, wild: Path, width: int) -> None:
    for file in (shown, wild):
        browser.open(file, width=width)
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        browser.one("#culprits .plot")
        browser.until(f"return document.querySelector('{PLOT}') !== null")
        assert browser.run("return document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_by_day_and_by_night(browser: Browser, shown: Path, dark: bool) -> None:
    browser.open(shown, dark=dark)
    browser.one("#culprits .plot")
    browser.until(f"return document.querySelector('{PLOT} .xtick text') !== null")
    paper = browser.run(COLOURS, "body")[1]
    for text in ("#culprits .culprits li", "#culprits summary .quiet", "#culprits p", "#culprits figcaption"):
        assert contrast(*browser.run(COLOURS, text)) >= 4.5
    for text in (".xtick text", ".ytick text", ".textpoint text", ".legendtext"):
        ink = browser.run(f"return getComputedStyle(document.querySelector('{PLOT} {text}')).fill")
        assert contrast(ink, paper) >= 4.5, text


def test_names_run_no_script_and_nothing_is_asked_for(browser: Browser, wild: Path) -> None:
    browser.open(wild)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.one("#culprits .plot")
    browser.until(f"return document.querySelector('{PLOT}') !== null")
    browser.one("#culprits table[data-rows]")
    browser.until("return document.querySelector('#culprits table.dataTable tbody tr') !== null")
    assert browser.run("return window.__pwned") is None
    assert browser.run("return document.querySelectorAll('[onmouseover], [onerror], main img, main h1').length") == 0
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "blob:", "data:", "about:"))] == []
