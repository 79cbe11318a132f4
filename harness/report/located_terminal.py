"""What was located, on a terminal: the figures, the culprits, and the layers that lose most by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.located import LayerLevel, Located
from harness.report import culprits
from harness.report.deltas import shortened
from harness.report.terminal import print_line

if TYPE_CHECKING:
    from rich.console import Console

_MOST_CULPRITS, _MOST_LAYERS, _MOST_NAME = 10, 5, 96


def print_located(console: Console, located: Located, files: Sequence[Path] = ()) -> None:
    """A headline with three dB figures, a line for each culprit, the five worst local layers, where the files are."""
    print_line(console, f"culprits of {culprits.headline(located)}")
    for count, culprit in enumerate(located.culprits[:_MOST_CULPRITS], start=1):
        print_line(console, f"{count}. {culprits.text(located, culprit)}")
    if len(located.culprits) > _MOST_CULPRITS:
        print_line(console, f"and {len(located.culprits) - _MOST_CULPRITS} more culprits: see the record")
    for remark in culprits.remarks(located):
        print_line(console, f"note: {remark}")
    worst = culprits.worst_local(located.layers, _MOST_LAYERS)
    if worst:
        print_line(console, f"lossiest of {len(located.layers)} layers, each by itself:")
    for place in worst:
        print_line(console, f"- {_layer(located.layers[place])}")
    unmatched = len(located.only_float), len(located.only_quantized)
    if any(unmatched):
        print_line(console, f"layers of one graph alone: {unmatched[0]} float, {unmatched[1]} quantized")
    for file in files:
        print_line(console, f"located: {file}")


def _layer(layer: LayerLevel) -> str:
    accumulated = culprits.level(layer.sqnr_db, layer.status)
    figures = f"{culprits.level(layer.local_db)} local, {accumulated} accumulated"
    where = f" at {shortened(layer.source, _MOST_NAME)}" if layer.source else ""
    return f"{figures}: {shortened(layer.name, _MOST_NAME)} ({culprits.ops(layer)}){where}"
