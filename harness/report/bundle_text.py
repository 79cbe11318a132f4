"""What people read of a replay bundle: its README, and the command that measures its row again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.environment import DEFAULT_ISA, isa_of
from harness.records import OutputRow, Point
from harness.report import phrases
from harness.report.markdown import cell, code
from harness.report.text import visible
from harness.suite import FILE, UNKNOWN_WEIGHTS

if TYPE_CHECKING:
    from harness.bundle_record import Bundle


def command(row: OutputRow, pins: Mapping[str, str], excluded: Sequence[str]) -> str:
    """The command that measures a row again in a workspace that has its model.

    A checkpoint is named without its folder.
    """
    case = row.case
    words = ["sqnr", "run", "-m", case.model, "-f", case.flow, "--variant", case.variant, "--size", case.size]
    words += [] if case.weights == UNKNOWN_WEIGHTS else ["--weights", case.weights.removeprefix(FILE)]
    words += [word for name in excluded for word in ("--exclude", name)]
    words += ["--lower"] if row.point == Point.LOWERED else []
    isa = isa_of(pins)
    if isa not in ("", DEFAULT_ISA):
        words += ["--isa", isa]
    elif pins.get("ATEN_CPU_CAPABILITY") == "":
        words += ["--no-pin"]
    return shlex.join(words)


def command_of(record: Bundle) -> str:
    """The command of a bundle's row, from what the bundle says was measured; what it calls its command may be any."""
    return command(record.row, record.environment.pins, record.excluded)


def figure(row: OutputRow) -> str:
    """What a row comes to: its SQNR; without one the status, and the error or the largest error."""
    if row.sqnr_db is not None:
        return phrases.number("sqnr_db", row.sqnr_db)
    size = "" if row.max_abs_err is None else f"largest error {phrases.number('max_abs_err', row.max_abs_err)}"
    return ": ".join(part for part in (row.status, row.error or size) if part)


def readme(record: Bundle, quantizers: int) -> str:
    """README.md of a bundle."""
    row, environment = record.row, record.environment
    stack = ", ".join(f"{name} {version}" for name, version in environment.stack.items())
    pins = ", ".join(f"{name}={value}" for name, value in environment.pins.items() if value)
    facts = {
        "measured": f"{row.case}, {row.point} {row.output}",
        "figure": figure(row),
        "because": "; ".join(record.because),
        "stack": f"{stack}, python {environment.python}",
        "machine": f"{environment.platform}, {environment.cpu}",
        "pins": pins or "none",
        "seed": record.seed,
        "weights": row.weights + (f", SHA-256 {record.checkpoint.sha256}" if record.checkpoint else ""),
        "inputs": ", ".join(f"{len(hashes)} batches of {kind}" for kind, hashes in record.inputs.items()),
        "adapter": ", ".join(record.adapter),
        "left in float": ", ".join(record.excluded),
    }
    lines = [f"- {name}: {cell(value)}" for name, value in facts.items() if value != ""]
    checkpoint = [f"Weights came from {code(record.checkpoint.name)}: give its path."] if record.checkpoint else []
    return "\n".join(
        [
            "# One row of sqnr-harness, to be measured again",
            "",
            *lines,
            "",
            "In a workspace that has this model:",
            "",
            "    sqnr replay FOLDER" + (" --weights PATH" if record.checkpoint else ""),
            "",
            f"says `reproduced to the last bit`, or what differs. {' '.join(checkpoint)}".rstrip(),
            "Without the bundle the row is measured by",
            "",
            f"    {visible(command_of(record))}",
            "",
            f"`bundle.json` holds all of this exactly, `quantizers.csv` the {quantizers} quantizers of the graph.",
            "The bundle holds no weights and no data, only their SHA-256.",
            "",
        ]
    )
