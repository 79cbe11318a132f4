"""What each quantizer costs: every share-group left in float alone, and quantized alone.

Two passes a group make this the slow way to look, so each answer is kept in a file as it comes: a second call goes on
where the first one ended. Lines are only ever added, each with a digest of what it was measured on, so that calls of
other states, even at once, do not disturb each other.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.environment import fingerprint
from harness.errors import UsageError
from harness.locate.hybrid import Overrides
from harness.locate.scene import Scene
from harness.locate.sources import FloatSource
from harness.located import Sensitivity
from harness.measure.structure import graph_digest

_Levels = dict[str, Annotated[float, Field(allow_inf_nan=False)] | None]


class _Answer(BaseModel):
    """One line: a group's SQNRs by output, alone in float and alone quantized, and what they were measured on."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    digest: str
    group: list[str]
    in_float: _Levels
    alone: _Levels


def sensitivities(scene: Scene, output: str, kept: Path, on_group: Callable[[int, int], None]) -> list[Sensitivity]:
    """Every share-group that can be left in float, the one whose absence helps the output most first.

    `kept` is the file of answers; `on_group` is told how many groups of how many are done. Raises `UsageError` if the
    file cannot be written.
    """
    source = FloatSource(scene.quantized)
    found = [source.replacement(unit) for unit in scene.quantized.quantizers.units]
    floats = {one.unit.names: one.overrides for one in found if one is not None}
    digest = _digest(scene)
    try:
        answers = _recall(kept, digest)
        for done, group in enumerate(floats):
            on_group(done, len(floats))
            if group not in answers:
                rest = [overrides for names, overrides in floats.items() if names != group]
                others = {node: one for overrides in rest for node, one in overrides.items()}
                answers[group] = _Answer(
                    digest=digest,
                    group=list(group),
                    in_float=_levels(scene, floats[group]),
                    alone=_levels(scene, others),
                )
                _add(kept, answers[group])
    except OSError as error:
        raise UsageError(f"{kept}: cannot be written: {error.strerror or error}") from None
    ranked = [
        Sensitivity(group, answers[group].in_float.get(output), answers[group].alone.get(output)) for group in floats
    ]
    return sorted(ranked, key=lambda one: (one.float_db is None, -(one.float_db or 0.0)))


def _levels(scene: Scene, overrides: Overrides) -> _Levels:
    return {output: row.sqnr_db for output, row in scene.what_if(overrides).items()}


def _digest(scene: Scene) -> str:
    """Tells measurements of one state from those of another: what was run, on what, with which stack and pins."""
    rows = [*scene.outputs.values(), *scene.quantized.rows.values()]
    inputs = sorted(scene.subject.input_hashes.items())
    text = (graph_digest(scene.graphs.actual), scene.subject.digest, inputs, sorted(map(repr, rows)), fingerprint())
    return hashlib.sha256(repr(text).encode()).hexdigest()


def _recall(kept: Path, digest: str) -> dict[tuple[str, ...], _Answer]:
    """Answers of earlier calls for the same state. A line that is none, such as one cut short, is asked again."""
    text = kept.read_text(encoding="utf-8", errors="replace") if kept.exists() else ""
    found: dict[tuple[str, ...], _Answer] = {}
    for line in text.splitlines():
        try:
            answer = _Answer.model_validate_json(line)
        except ValidationError:
            continue
        if answer.digest == digest:
            found[tuple(answer.group)] = answer
    return found


def _add(kept: Path, answer: _Answer) -> None:
    """One more line, at once and safe on disk; an unfinished one before it is ended."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(answer.model_dump(), allow_nan=False) + "\n"
    with kept.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else "\n" + text
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
