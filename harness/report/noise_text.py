"""What `sqnr noise` prints: a table of how far rows moved in floors, and the rows beyond their allowance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.noise import MULTIPLES, QUANTILES, Move, Moves, Summary, beyond_allowance, is_output, summary
from harness.report.phrases import fixed, row_name
from harness.report.terminal import print_line, shown

_MOST_ROWS = 20
_QUIET = "above ignore_above_db in both runs"


def groups_of(moves: Moves) -> dict[str, list[Move]]:
    """Rows by what decides their allowance, a name for each group."""
    return {
        "outputs, allowed by their floor": [move for move in moves.outputs if move.by_floor],
        "outputs, allowed sqnr_drop_db anyhow": [move for move in moves.outputs if not move.by_floor],
        "outputs": list(moves.outputs),
        "range bounds": list(moves.bounds),
    }


def print_noise(console: Console, base: str, head: str, moves: Moves) -> None:
    """One head run against the base."""
    table = Table(title=f"{head} against {base}: |change| in noise floors", title_justify="left")
    table.add_column("rows", no_wrap=True)
    for name in _columns():
        table.add_column(name, justify="right")
    for name, some in groups_of(moves).items():
        table.add_row(shown(name), *_cells(summary(some)))
    console.print(table)
    beyond = [*beyond_allowance(moves.outputs), *beyond_allowance(moves.bounds)]
    for move in beyond[:_MOST_ROWS]:
        print_line(console, f"beyond its allowance: {sentence(move)}")
    if len(beyond) > _MOST_ROWS:
        print_line(console, f"... and {len(beyond) - _MOST_ROWS} more: see --json")
    for line in _ends(moves, len(beyond)):
        print_line(console, line)


def _columns() -> list[str]:
    shares = [f"{100 * share:.0f} %" for share in QUANTILES]
    return ["n", "moved", *shares, *(f"> {multiple}" for multiple in MULTIPLES), "needed", "99.9 %"]


def _cells(found: Summary) -> list[str]:
    quantiles = [_floors(found.quantiles[share]) if found.quantiles else "" for share in QUANTILES]
    beyond = [str(found.beyond[multiple]) for multiple in MULTIPLES]
    return [str(found.rows), str(found.moved), *quantiles, *beyond, *map(_floors, (found.needed, found.needed_by_most))]


def _floors(value: float) -> str:
    return "inf" if math.isinf(value) else fixed(value, 2)


def sentence(move: Move) -> str:
    """`resnet/small/trained x86-static converted logits: -0.61 dB, 4.1 floors of 0.150 dB, allowed 0.50 dB`."""
    if is_output(move):
        change, floor, allowed = (fixed(move.change, 2, "+"), fixed(move.floor, 3), fixed(move.allowed, 2))
        return f"{row_name(move.row)}: {change} dB, {_floors(move.floors)} floors of {floor} dB, allowed {allowed} dB"
    return (
        f"{row_name(move.row)}: bounds moved by {move.change:.2g} of their size, {_floors(move.floors)} floors of "
        f"{move.floor:.2g}, allowed {move.allowed:.2g}"
    )


def _ends(moves: Moves, beyond: int) -> Iterator[str]:
    """What it comes to."""
    count = len(moves.outputs) + len(moves.bounds)
    yield f"{beyond} of {count} rows moved further than allowed"
    if moves.quiet:
        yield f"{moves.quiet} outputs left out: {_QUIET}"
    if moves.without_floor:
        yield f"{moves.without_floor} rows left out: no noise floor in the baseline"


def as_json(moves: Moves) -> dict[str, Any]:
    """The same for programs; what is infinite is null."""
    return {
        "groups": {name: _summary_json(summary(some)) for name, some in groups_of(moves).items()},
        "quiet": moves.quiet,
        "without_floor": moves.without_floor,
        "beyond": [_move_json(move) for move in (*beyond_allowance(moves.outputs), *beyond_allowance(moves.bounds))],
    }


def _summary_json(found: Summary) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "moved": found.moved,
        "quantiles": {str(share): _finite(value) for share, value in found.quantiles.items()},
        "beyond": {str(multiple): count for multiple, count in found.beyond.items()},
        "needed": _finite(found.needed),
        "needed_by_most": _finite(found.needed_by_most),
    }


def _move_json(move: Move) -> dict[str, Any]:
    return {
        "key": list(move.row.key),
        "unit": "dB" if is_output(move) else "of the larger bound",
        "change": _finite(move.change),
        "floor": move.floor,
        "floors": _finite(move.floors),
        "allowed": move.allowed,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
