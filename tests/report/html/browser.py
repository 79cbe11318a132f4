"""One headless Chromium, and what it shows of a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 20
"""The longest that anything on a page may take on a busy machine."""
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
_READY = "return document.documentElement.dataset.ready === 'yes'"


def start() -> webdriver.Chrome:
    """A browser that logs its console and its requests; skips the test where there is none."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip(f"no {'chromium' if program is None else 'chromedriver'} is installed")
    options = Options()
    options.binary_location = program
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        return webdriver.Chrome(options=options, service=Service(driver))
    except WebDriverException as error:
        pytest.skip(f"chromium does not start: {(error.msg or '').splitlines()[:1]}")


class Browser:
    """What tests do with a page, in the words of those who read it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, file: Path, *, width: int = 1300, dark: bool = False, anchor: str = "") -> None:
        """Show a page and wait until its script has run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get("about:blank")  # the same page with another anchor would not be loaded anew
        self.driver.get(file.as_uri() + anchor)
        self.until(_READY)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> None:
        """Wait until a script returns something true."""
        WebDriverWait(self.driver, SECONDS, 0.05).until(lambda _: self.run(script, *arguments), f"never: {script}")

    def one(self, selector: str) -> WebElement:
        """The first element that fits, scrolled into the middle of the window."""
        self.until("return document.querySelector(arguments[0]) !== null", selector)
        element: WebElement = self.run(
            "const found = document.querySelector(arguments[0]); found.scrollIntoView({block: 'center'}); return found",
            selector,
        )
        return element

    def column(self, table: str, number: int) -> list[str]:
        """The cells in a column of the rows that a table shows."""
        cells: list[str] = self.run(
            "return [...document.querySelectorAll(`${arguments[0]} > tbody > tr`)].map((row) =>"
            " row.cells.length > arguments[1] ? row.cells[arguments[1]].innerText.trim() : row.innerText.trim())",
            table,
            number,
        )
        return cells

    def sorting(self, table: str) -> None:
        """Wait until a table can be sorted."""
        self.one(table)
        self.until("return document.querySelector(`${arguments[0]}.dataTable`) !== null", table)

    def press(self, *keys: str) -> WebElement:
        """Press keys; returns the element that has the focus then."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)
        return self.driver.switch_to.active_element

    def tab_to(self, selector: str, most: int = 200) -> WebElement:
        """Go by the tabulator to the first element that fits."""
        for _ in range(most):
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return self.driver.switch_to.active_element
            self.press(Keys.TAB)
        raise AssertionError(f"{selector}: not reached by {most} tabulators")

    def complaints(self) -> list[str]:
        """What the console says of errors and warnings since the page was opened."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """The addresses asked for since the page was opened."""
        messages = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        return [item["params"]["request"]["url"] for item in messages if item["method"] == "Network.requestWillBeSent"]
