"""Where and with what a run was measured, beside the same of what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.judge import Judgement
from harness.store import Run


@dataclass(frozen=True, slots=True)
class Setting:
    """One fact of the environment, before and now."""

    what: str
    before: str
    now: str
    differs: bool


def settings(run: Run, judgement: Judgement) -> list[Setting]:
    """The environment of a run beside that of what it is judged by."""
    now = _flat(run.environment)
    before: dict[str, list[str]] = {}
    for environment in judgement.before.environments:
        for what, value in _flat(environment).items():
            if value not in before.setdefault(what, []):
                before[what].append(value)
    names = sorted(
        now.keys() | before.keys(), key=lambda what: (what not in now, list(now).index(what) if what in now else 0)
    )
    return [
        Setting(
            what,
            ", ".join(before.get(what, ())),
            now.get(what, "not installed"),
            what in before and [now.get(what)] != before[what],
        )
        for what in names
    ]


def _flat(environment: Any) -> dict[str, str]:
    """Facts by name; those of the stack and the pins by their own."""
    facts: dict[str, str] = {}
    for name, value in environment.items():
        facts |= (
            {str(key): str(inner) for key, inner in value.items()} if isinstance(value, dict) else {name: str(value)}
        )
    return facts
