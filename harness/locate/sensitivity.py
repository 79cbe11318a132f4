"""What each quantizer costs: every share-group left in float alone, and quantized alone.

Two passes a group make this the slow way to look, so each answer is kept in a file as it comes: a second call goes on
where the first one ended, as long as graphs, qparams, inputs and stack are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.environment import stack_versions
from harness.errors import UsageError
from harness.locate.hybrid import Overrides
from harness.locate.scene import Scene
from harness.locate.sources import FloatSource
from harness.located import Sensitivity
from harness.measure.structure import graph_digest

_Levels = dict[str, float | None]


def sensitivities(scene: Scene, output: str, kept: Path, on_group: Callable[[int, int], None]) -> list[Sensitivity]:
    """Every share-group that can be left in float, the one whose absence helps the output most first.

    `kept` is the file of answers; `on_group` is told how many groups of how many are done. Raises `UsageError` if the
    file cannot be written.
    """
    source = FloatSource(scene.quantized)
    found = [source.replacement(unit) for unit in scene.quantized.quantizers.units]
    floats: dict[str, Overrides] = {_name(one.unit.names): one.overrides for one in found if one is not None}
    names = {_name(one.unit.names): one.unit.names for one in found if one is not None}
    answers = dict(_recall(kept, _digest(scene)))
    try:
        with kept.open("a", encoding="utf-8") as file:
            for done, (group, own) in enumerate(floats.items()):
                on_group(done, len(floats))
                if group not in answers:
                    rest = {
                        node: one
                        for name, overrides in floats.items()
                        if name != group
                        for node, one in overrides.items()
                    }
                    answers[group] = tuple(_levels(scene, overrides) for overrides in (own, rest))
                    file.write(json.dumps({"group": group, "levels": answers[group]}, allow_nan=False) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"{kept}: cannot be written: {error.strerror or error}") from None
    ranked = [
        Sensitivity(names[group], answers[group][0].get(output), answers[group][1].get(output)) for group in floats
    ]
    return sorted(ranked, key=lambda one: -(one.float_db if one.float_db is not None else -1e9))


def _name(names: tuple[str, ...]) -> str:
    return json.dumps(names)


def _levels(scene: Scene, overrides: Overrides) -> _Levels:
    return {output: row.sqnr_db for output, row in scene.what_if(overrides).items()}


def _digest(scene: Scene) -> str:
    """Tells measurements of one state from those of another: what was run, on what, with which stack."""
    rows = [*scene.outputs.values(), *scene.quantized.rows.values()]
    text = (graph_digest(scene.graphs.actual), scene.subject.digest, sorted(map(repr, rows)), stack_versions())
    return hashlib.sha256(repr(text).encode()).hexdigest()


def _recall(kept: Path, digest: str) -> Iterator[tuple[str, tuple[_Levels, ...]]]:
    """Answers of an earlier call for the same state; else the file is begun anew. A line cut short is asked again."""
    lines = kept.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if kept.exists() else []
    whole = [line for line in map(_parsed, lines) if line is not None]
    same = bool(whole) and whole[0].get("digest") == digest
    answers = [(line["group"], tuple(line["levels"])) for line in whole if same and "group" in line]
    text = [{"digest": digest}, *({"group": group, "levels": levels} for group, levels in answers)]
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("".join(json.dumps(line) + "\n" for line in text), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{kept}: cannot be written: {error.strerror or error}") from None
    yield from answers


def _parsed(line: str) -> dict[str, Any] | None:
    if not line.endswith("\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
