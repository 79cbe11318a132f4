"""Several outputs of one graph: each is looked into by itself, and those without an SQNR are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from harness import flows
from harness.locate.against import Against
from harness.locate.find import MOST_PASSES, Finder
from harness.locate.sensitivity import sensitivities
from tests.lab import adapter
from tests.locate.defects import injected, requantized, staged

BODY = injected(convert=requantized("body:conv2d.input", scale=0.25))


def test_what_was_asked_before_changes_nothing_of_what_is_found(tmp_path: Path) -> None:
    found = []
    for between in (False, True):
        scene, pipeline, subject = staged(adapter(), "small", BODY)
        finder = Finder(scene, Against(pipeline, subject, scene, None).find("fitted"))
        finder.find("head")
        if between:
            sensitivities(scene, "head", tmp_path / "kept.jsonl", lambda _done, _all: None)
        found.append(finder.find("score"))
    assert found[0] == found[1]
    assert found[0].culprits
    assert found[0].passes <= MOST_PASSES


class HalfLost(nn.Module):
    """One output that is not a number in the float model itself, and a good one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Twice (N, 2, H, W)."""
        y: torch.Tensor = self.head(torch.relu(self.body(x)))
        return y * float("nan"), y


def half_lost() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return HalfLost().eval().requires_grad_(False)


@pytest.mark.parametrize("output", [None, "lost"])
def test_an_output_without_a_reference_is_not_looked_into_by_itself_and_says_why(output: str | None) -> None:
    flow = injected(convert=requantized("body:conv2d.input", scale=0.25))
    scene, pipeline, subject = staged(adapter(half_lost, ("lost", "good")), "small", flow)
    finder = Finder(scene, Against(pipeline, subject, scene, None).find("fitted"))
    assert finder.worst() == "good"
    found = finder.find(output or finder.worst())
    if output is None:
        assert found.culprits[0].names == ("body:conv2d.input",)
    else:
        assert (found.culprits, found.explained, found.sqnr_db) == ((), None, None)
        assert "nonfinite_reference" in found.remark


def test_a_suspect_is_not_said_to_have_been_needed() -> None:
    scene, pipeline, subject = staged(adapter(), "small", flows.load("x86-static"))
    finder = Finder(scene, Against(pipeline, subject, scene, None).find("fitted"))
    found = finder.find("head")
    assert not found.minimal
    assert "no range is much at fault" in found.remark
