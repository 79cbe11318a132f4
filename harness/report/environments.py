"""Where and with what a run was measured, beside the same of what it is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.judge import Judgement
from harness.store import Run

_STACK = "stack"
_ABSENT = "not installed"


@dataclass(frozen=True, slots=True)
class Setting:
    """One fact of the environment, before and now; empty where it was not recorded."""

    what: str
    before: str
    now: str
    differs: bool


def settings(run: Run, judgement: Judgement) -> list[Setting]:
    """The environment of a run beside that of what it is judged by, which may have been measured on several machines.

    First the quantizers that were left in float, if any were.
    A fact differs if it was recorded before and is not the same everywhere. A package that one side lacks differs.
    """
    now = _facts(run.environment)
    before = [_facts(environment) for environment in judgement.before.environments]
    found = [*_left_in_float(run, judgement)]
    for fact in dict.fromkeys(fact for facts in (now, *before) for fact in facts):
        kind, what = fact
        absent = _ABSENT if kind == _STACK else ""
        then = list(dict.fromkeys(facts.get(fact, absent) for facts in before if fact in facts or kind == _STACK))
        here = now.get(fact, absent)
        found.append(Setting(what, ", ".join(then), here, differs=bool(then) and then != [here]))
    return found


def _left_in_float(run: Run, judgement: Judgement) -> list[Setting]:
    now, before = run.excluded, judgement.before.excluded
    if not now and not before:
        return []
    return [Setting("left in float", _listed(before), _listed(now), differs=now != before)]


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def _facts(environment: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Facts by kind and name; those of the stack and the pins by their own names."""
    return {
        (kind if isinstance(value, dict) else "", str(name)): str(fact)
        for kind, value in environment.items()
        for name, fact in (value.items() if isinstance(value, dict) else [(kind, value)])
    }
