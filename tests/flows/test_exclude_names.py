"""What `--exclude` takes for a name: every row of a tied weight, brackets as they stand, nothing of a lowered graph."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.flows.exclude import fits
from harness.records import Cause, Point, QuantizerStatus
from tests.flows.excluding import fours, measured, quantized
from tests.lab import adapter
from tests.program import TINY, make_workspace, sqnr
from tests.upstream import needs

needs("torchao", "nncf", "executorch")

TIED = {"first:linear.weight", "first:linear#1.weight", "last:linear.weight"}


class Tied(nn.Module):
    """One weight read three times: by a module that is called twice, and by another that is tied to it."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(torch.relu(self.first(x)))
        return torch.cat([x, x], -1), self.last(x + x)


MODULE = adapter(lambda: Tied().eval().requires_grad_(False), ("doubled", "last"), fours)


@cache
def released(flow: str):
    return measured(flow, module=MODULE)


def errors(flow: str, *excluded: str) -> set[str]:
    return {row.error for row in measured(flow, *excluded, module=MODULE).outputs} - {""}


@pytest.mark.parametrize("flow", ["x86-static", "xnnpack", "cadence-hoist"])
@pytest.mark.parametrize("name", ["first:linear#1.weight", "last:linear.weight", "last:*.weight"])
def test_each_row_of_a_tied_weight_names_the_one_quantizer_that_all_have(flow, name):
    assert quantized(released(flow)).keys() >= TIED
    without = measured(flow, name, module=MODULE)
    rows = {row.quantizer: row for row in without.quantizers if row.point == Point.CONVERTED}
    assert {(rows[one].status, rows[one].cause) for one in TIED} == {(QuantizerStatus.UNQUANTIZED, "")}


def test_a_bias_of_a_module_called_twice_is_taken_by_the_name_of_either_call():
    names = {"first:linear#1.bias", "first:linear.bias"}
    whole = quantized(released("cadence-hoist")).keys()
    assert whole >= names
    gone = whole - quantized(measured("cadence-hoist", "first:linear#1.bias", module=MODULE)).keys()
    assert gone
    assert gone <= names


def test_nncf_says_under_which_name_a_tied_weight_is_quantized():
    """Upstream quantizes it for its first reader alone: the others have it in float already."""
    rows = {row.quantizer: row for row in released("nncf-x86").quantizers if row.point == Point.CONVERTED}
    assert {one for one in TIED if rows[one].cause == Cause.UNQUANTIZED} == TIED - {"first:linear.weight"}
    [line] = errors("nncf-x86", "last:linear.weight")
    assert "one quantizer for all readers, first:linear.weight" in line


def test_a_name_of_the_lowered_graph_alone_is_told_so_and_nothing_else_is_proposed():
    [line] = errors("cadence-hoist", "slice_copy.self")
    assert "exists only after lowering" in line
    assert "cannot be left in float" in line
    assert "did you mean" not in line
    [line] = errors("cadence-hoist", "last:linear.wieght")
    assert "did you mean last:linear.weight" in line
    [line] = errors("x86-static", "slice_copy.self")
    assert "lowering" not in line


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("cat.tensors[0]", True),
        ("*cat.tensors[0]", True),
        ("*.tensors[?]", True),
        ("*.tensors[1]", False),
        ("*.tensors0", False),
        ("[bc]at.*", False),
    ],
)
def test_brackets_of_a_pattern_stand_for_themselves(pattern, taken):
    assert fits("cat.tensors[0]", pattern) is taken


def test_a_pattern_with_brackets_takes_the_operand_of_a_cat():
    name = "cat.tensors[0]"
    assert name in quantized(released("x86-static"))
    assert name not in quantized(measured("x86-static", "*tensors[0]", module=MODULE))


def test_no_run_is_left_of_a_name_that_no_model_has(tmp_path):
    made = make_workspace(tmp_path, tiny=TINY)
    said = sqnr(made, "run", "--exclude", "2:linear.wieght")
    assert said.returncode == 2
    assert "no run is kept" in said.stderr
    assert not list((made / "reports").glob("*/"))


ROWS = """
import sys
import torch
torch.set_num_threads(1)
from tests.flows.test_exclude_names import released
junk = [object() for _ in range(int(sys.argv[1]))]
result = released("nncf-x86")
print([(r.output, r.sqnr_db) for r in result.outputs], [(r.quantizer, r.status, r.scale) for r in result.quantizers])
"""


def test_nncf_rows_of_a_tied_weight_are_the_same_in_every_process():
    """Its set of nodes is ordered by their addresses: of four processes with a third each, 1 in 27 would agree."""
    said = {
        subprocess.run(
            [sys.executable, "-c", ROWS, str(1000 * seed)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(said) == 1
    assert "first:linear.weight" in said.pop()
