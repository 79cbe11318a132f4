"""Replay bundles of rows in round numbers, and what is measured again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import bundle
from harness.bundle import Facts, Read
from harness.records import OutputRow, QuantizerRow
from harness.replay import Measured
from tests.rows import ENVIRONMENT, output_row, quantizer_row

ONE, TWO, THREE, FOUR = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)
FACTS = Facts(
    seed=0,
    environment=ENVIRONMENT,
    weights_hash=ONE,
    inputs={"calibration": [TWO], "evaluation": [ONE, TWO, THREE]},
    adapter={"resnet.py": THREE, "_digits.py": FOUR},
)


def facts(**changes: Any) -> Facts:
    """Those of FACTS, but for these; an environment is merged into its own, two levels deep."""
    environment = changes.pop("environment", {})
    merged = {
        name: {**ENVIRONMENT[name], **environment[name]} if isinstance(ENVIRONMENT[name], dict) else environment[name]
        for name in environment
    }
    return replace(FACTS, environment={**ENVIRONMENT, **merged}, **changes)


def written(
    folder: Path, row: OutputRow | None = None, *quantizers: QuantizerRow, because: tuple[str, ...] = (), **changes: Any
) -> Read:
    """A bundle of a row (30 dB logits unless told otherwise) and one quantizer, read back."""
    bundle.write(folder, row or output_row(), quantizers or (quantizer_row(),), facts(**changes), because)
    return bundle.read(folder)


def measured(row: OutputRow | None = None, *quantizers: QuantizerRow, **changes: Any) -> Measured:
    """What is measured again: the same, unless told otherwise."""
    return Measured(row or output_row(), quantizers or (quantizer_row(),), facts(**changes))


def edit(folder: Path, **changes: Any) -> None:
    """Change fields of a bundle.json; those of `row` are merged into it."""
    file = folder / "bundle.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(changes.get("row"), dict):
        changes["row"] = {**content["row"], **changes["row"]}
    file.write_text(json.dumps({**content, **changes}), encoding="utf-8")
