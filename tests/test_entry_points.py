"""A user's own package brings a flow and a model, and its user a fix of one file; the real program measures them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from harness import table
from harness.records import OutputRow, QuantizerRow
from tests.program import TINY, latest, make_workspace, sqnr

EXTENDING = Path(__file__).parents[1] / "docs" / "extending.md"

ACME = '''
from dataclasses import replace

import torch

from harness import flows

x86 = flows.load("x86-static")


def bound(x):
    return float(x.max())


def convert(graph):
    """Scales every activation range by how much of [-2, 1] `bound` sees."""
    converted = x86.convert(graph)
    share = bound(torch.tensor([-2.0, 1.0])) / 2
    for node in converted.graph.nodes:
        if "quantize_per_tensor" in str(node.target):
            node.args = (node.args[0], node.args[1] * share, *node.args[2:])
    converted.recompile()
    return converted


flow = replace(x86, name="acme", package="acme-quant", convert=convert)
'''

ENTRY_POINTS = """
[sqnr.flows]
acme = acme_quant:flow

[sqnr.fixes]
acme-absmax = acme_fix:FIX

[sqnr.models]
guest = guest_model
"""


def documented_fix() -> str:
    """The file that docs/extending.md tells users to write."""
    (block,) = [
        code for code in re.findall(r"```python\n(.*?)```", EXTENDING.read_text(), re.S) if "FIX = Fix(" in code
    ]
    return block


@pytest.fixture
def acme(tmp_path):
    """Runs sqnr where pip has installed acme-quant, its fix and a model; the workspace plans just that flow."""
    site = tmp_path / "site"
    metadata = site / "acme_quant-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "acme_quant.py").write_text(ACME, encoding="utf-8")
    (site / "acme_fix.py").write_text(documented_fix(), encoding="utf-8")
    (site / "guest_model.py").write_text(TINY, encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-quant\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    folder = make_workspace(tmp_path / "work", '[tool.sqnr.suites.gate]\nsize = "small"\nflows = ["acme"]\n')
    environ = {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    def run(*arguments: str):
        return sqnr(folder, *arguments, **environ)

    run.folder, run.site = folder, site
    return run


def test_the_fix_of_the_documentation_is_probed_and_becomes_a_variant(acme):
    fixes = {fix["name"]: fix for fix in json.loads(acme("fixes", "--json").stdout)}
    mine = fixes["acme-absmax"]
    assert (mine["state"], mine["version"], mine["released"], mine["repaired"]) == ("needed", "1.0", 1.0, 2.0)

    found = acme("run", "-j", "1")
    assert found.returncode == 0, found.stderr
    quantizers = table.parse(latest(acme.folder) / "quantizers.csv", QuantizerRow)
    bounds = {row.variant: row.hi for row in quantizers if row.quantizer == "0:linear.input"}
    assert {row.model for row in quantizers} == {"guest"}
    assert bounds["+acme-absmax"] == 2 * bounds["released"]
    outputs = table.parse(latest(acme.folder) / "outputs.csv", OutputRow)
    states = {(row.variant, row.fix_state) for row in outputs if row.point == "converted"}
    assert states == {("released", ""), ("+acme-absmax", "needed")}


def test_when_the_package_mends_it_the_variant_is_upstreamed(acme):
    (acme.site / "acme_quant.py").write_text(ACME.replace("x.max()", "x.abs().max()"), encoding="utf-8")
    assert acme("run", "-j", "1").returncode == 0
    rows = table.parse(latest(acme.folder) / "outputs.csv", OutputRow)
    states = {row.fix_state for row in rows if row.variant != "released" and row.point == "converted"}
    assert states == {"upstreamed"}


def test_when_the_package_renames_the_seam_the_variant_fails_and_says_why(acme):
    renamed = ACME.replace("def bound(x)", "def bound(values)").replace("x.max()", "values.max()")
    (acme.site / "acme_quant.py").write_text(renamed, encoding="utf-8")
    fixes = acme("fixes", "--json")
    assert fixes.returncode == 4
    assert next(fix for fix in json.loads(fixes.stdout) if fix["name"] == "acme-absmax")["state"] == "unknown"
    acme("run", "-j", "1")
    rows = table.parse(latest(acme.folder) / "outputs.csv", OutputRow)
    broken = [row for row in rows if row.variant != "released" and row.point == "converted"]
    assert {(row.status, row.fix_state) for row in broken} == {("failed:convert", "unknown")}
    assert "acme_quant.bound takes (values), not (x)" in broken[0].error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise ImportError('no acme here')", "cannot be loaded: ImportError: no acme here"),
        ("FIX = 3", "is a int, not a harness.fixes.Fix"),
    ],
)
def test_an_entry_point_that_gives_no_fix_is_one_clear_line(acme, text, error):
    (acme.site / "acme_fix.py").write_text(text, encoding="utf-8")
    found = acme("run")
    assert found.returncode == 2
    assert "entry point acme-absmax = acme_fix:FIX in group sqnr.fixes" in found.stderr
    assert error in found.stderr
