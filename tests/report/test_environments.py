"""The environment of a run beside that of what it is judged by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.report.environments import settings
from tests.judgements import nothing


def beside(now: dict[str, Any], *before: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """(before, now, differs) of each fact, in order."""
    run, judgement = nothing()
    judged_by = replace(judgement.before, environments=before)
    found = settings(replace(run, environment=now), replace(judgement, before=judged_by))
    return {item.what: (item.before, item.now, item.differs) for item in found}


def test_facts_stand_in_the_order_of_the_run_those_of_the_baseline_alone_last() -> None:
    now = {"cpu": "a", "stack": {"torch": "2"}, "pins": {"OMP_NUM_THREADS": "1"}}
    before = {
        "gpu": "g",
        "pins": {"MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"},
        "cpu": "a",
        "stack": {"torch": "2"},
    }
    assert beside(now, before) == {
        "cpu": ("a", "a", False),
        "torch": ("2", "2", False),
        "OMP_NUM_THREADS": ("1", "1", False),
        "gpu": ("g", "", True),
        "MKL_CBWR": ("COMPATIBLE", "", True),
    }


def test_another_version_differs() -> None:
    assert beside({"stack": {"torchao": "0.18"}}, {"stack": {"torchao": "0.17"}}) == {"torchao": ("0.17", "0.18", True)}


def test_a_package_that_one_side_lacks_differs() -> None:
    assert beside({"stack": {"nncf": "3.4"}}, {"stack": {"torchao": "0.17"}}) == {
        "nncf": ("not installed", "3.4", True),
        "torchao": ("0.17", "not installed", True),
    }


def test_several_machines_are_all_named_and_differ_unless_all_agree() -> None:
    before = [{"cpu": "a", "stack": {"torch": "2"}}, {"cpu": "b", "stack": {"torch": "2"}}, {"cpu": "a", "stack": {}}]
    assert beside({"cpu": "a", "stack": {"torch": "2"}}, *before) == {
        "cpu": ("a, b", "a", True),
        "torch": ("2, not installed", "2", True),
    }


def test_what_was_not_recorded_is_no_difference() -> None:
    assert beside({"python": "3.11", "stack": {}}, {"stack": {}}) == {"python": ("", "3.11", False)}


def test_a_pin_that_was_left_off_differs() -> None:
    now, before = {"pins": {"MKL_CBWR": ""}}, {"pins": {"MKL_CBWR": "COMPATIBLE"}}
    assert beside(now, before) == {"MKL_CBWR": ("COMPATIBLE", "", True)}


@pytest.mark.parametrize("now", [{}, {"stack": {"torch": "2"}}])
def test_without_anything_to_be_judged_by_nothing_differs(now: dict[str, Any]) -> None:
    assert [differs for *_, differs in beside(now).values()] == [False] * len(now)


def test_facts_that_are_no_text_are_shown_as_text() -> None:
    assert beside({"cores": 2, "flags": ["a"]}, {"cores": "2"}) == {
        "cores": ("2", "2", False), "flags": ("", "['a']", False)
    }  # fmt: skip
