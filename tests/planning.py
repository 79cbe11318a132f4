"""Plans of two models, and fixes that are planned and never run."""

from __future__ import annotations

import pytest

from harness.fixes import Fix, Reading
from harness.records import Stage
from harness.settings import Settings
from harness.suite import Plan, Selection, Sizes, make_plan
from tests.rows import SIZES


def plan(sizes: Sizes = SIZES, settings: Settings | None = None, **wanted: object) -> Plan:
    """The plan of a selection, of the gate unless told otherwise."""
    return make_plan(Selection(**wanted), settings or Settings(), sizes)  # type: ignore[arg-type]


def planned_fix(name: str, *flows: str, stage: Stage = Stage.CONVERT, repaired: bool = True) -> Fix:
    """A fix that is planned and never run."""
    reading = Reading(1.0, 2.0, right=False)
    repair = (lambda: pytest.fail("planning enters no repair")) if repaired else None
    return Fix(name, "link", "torch", (), flows, stage, "a number", lambda: reading, repair)
