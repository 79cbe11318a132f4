"""One browser for all tests of this folder, and the pages it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.records import Row
from harness.report.html import page
from harness.report.html.timeline import timeline
from harness.steps import find_steps
from tests.histories import frame_of, series
from tests.judgements import judged
from tests.report.html.pages import CASES, HOSTILE, called
from tests.rows import output_row, quantizer_row

if TYPE_CHECKING:
    from tests.report.html.browser import Browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    pytest.importorskip("selenium")
    from tests.report.html.browser import Browser, start

    driver = start()
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="package")
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


@pytest.fixture(scope="package")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that are scripts, markup and attributes, in the page and in a history."""
    names = [name.replace("\ud800", "") for name in HOSTILE]
    frame = frame_of(*(series([40.0, 30.0], output=name, run=name, torchao=[name, "2"]) for name in names))
    file = tmp_path_factory.mktemp("hostile") / "report.html"
    file.write_text(page.render(*called(*HOSTILE), timeline(frame, find_steps(frame))), encoding="utf-8")
    return file
