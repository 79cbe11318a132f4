"""`sqnr list`: what can be asked for, as tables and as JSON, whatever an adapter is like."""

from __future__ import annotations

import json

import pytest

from tests.program import TINY, make_workspace, sqnr

SETTINGS = """
[tool.sqnr.suites.mine]
size = "small"
flows = ["x86-static", "vulkan-8w"]
lowered = ["vulkan-8w"]
includes = ["gate"]
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return make_workspace(tmp_path_factory.mktemp("listed"), SETTINGS, tiny=TINY, broken="raise RuntimeError('no')")


def test_a_suite_says_what_it_lowers_and_includes(workspace):
    shown = sqnr(workspace, "list", COLUMNS="200")
    assert shown.returncode == 0
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.stdout.splitlines() if "│" in line]
    assert ["mine", "small", "x86-static, vulkan-8w", "vulkan-8w", "gate"] in rows
    assert ["tiny", "small: seeded"] in rows
    assert ["broken", "cannot be imported; `sqnr run -m` says why"] in rows
    assert f"models: {workspace / 'models'}" in shown.stdout


def test_the_same_as_json(workspace):
    found = json.loads(sqnr(workspace, "list", "--json").stdout)
    assert found["models"] == {"broken": None, "tiny": {"small": ["seeded"]}}
    mine = found["suites"]["mine"]
    assert (mine["flows"], mine["lowered"]) == (["x86-static", "vulkan-8w"], ["vulkan-8w"])
    assert {"gate", "kernels", "nightly", "mine"} <= set(found["suites"])
    assert found["fixes"]["cadence-branch-hoist"].startswith("https://github.com/pytorch/executorch/")
