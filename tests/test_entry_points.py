"""A user's own package brings a flow, a fix and a model through entry points; the real program measures them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.program import TINY, latest, make_workspace, sqnr

PLUGIN = '''
from contextlib import contextmanager
from dataclasses import replace

from harness import flows
from harness.fixes import Fix
from harness.records import Stage

flow = replace(flows.load("x86-static"), name="mine", package="mine")


@contextmanager
def repair():
    """Doubles the range of every histogram observer while convert runs."""
    from torchao.quantization.pt2e.observer import HistogramObserver

    original = HistogramObserver.calculate_qparams

    def doubled(self):
        scale, zero_point = original(self)
        return scale * 2, zero_point

    HistogramObserver.calculate_qparams = doubled
    try:
        yield
    finally:
        HistogramObserver.calculate_qparams = original


fix = Fix("double", "https://example.invalid/1", ("mine",), Stage.CONVERT, repair)
'''

ENTRY_POINTS = """
[sqnr.flows]
mine = mine:flow

[sqnr.fixes]
double = mine:fix

[sqnr.models]
guest = guest_model
"""


def _install(site: Path) -> None:
    """What pip would leave of such a package in site-packages."""
    (site / "mine.py").write_text(PLUGIN, encoding="utf-8")
    (site / "guest_model.py").write_text(TINY, encoding="utf-8")
    metadata = site / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")


def test_a_package_brings_a_flow_a_fix_and_a_model(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    _install(site)
    folder = make_workspace(tmp_path / "work", '[tool.sqnr.suites.gate]\nsize = "small"\nflows = ["mine"]\n')
    environ = {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    found = sqnr(folder, "run", "-j", "1", **environ)
    assert found.returncode == 0, found.stderr
    rows = [line.split(",") for line in (latest(folder) / "quantizers.csv").read_text().splitlines()]
    header = rows[0]
    scale = {
        row[header.index("variant")]: float(row[header.index("scale")])
        for row in rows[1:]
        if row[header.index("quantizer")] == "0:linear.input"
    }
    assert {row[0] for row in rows[1:]} == {"guest"}
    assert scale["+double"] == 2 * scale["released"]
