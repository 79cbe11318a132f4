"""What the page says of located outputs: headline, culprits, the figure, and the same numbers as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.located import Located
from harness.report import culprits
from harness.report.culprits import Place
from harness.report.deltas import shortened
from harness.report.html.figures import Figure, significant
from harness.report.html.layer_figure import layer_figure
from harness.report.text import visible

_MOST_CULPRITS = 50
_MOST_SHARERS = 5
_LONGEST_SLUG = 150
Tables = dict[str, list[list[Any]]]


@dataclass(frozen=True, slots=True)
class LocatedView:
    """One located output. `figure`, `layers` and `sensitivity` are names in the page's data, empty without a row."""

    key: tuple[str, str]
    anchor: str
    title: str
    headline: str
    lines: tuple[str, ...]
    more: int
    remarks: tuple[str, ...]
    passes: str
    figure: str
    layers: str
    count: int
    sensitivity: str
    groups: int
    unmatched: tuple[tuple[str, tuple[str, ...]], ...]


def located_views(found: Sequence[Located], figures: dict[str, Figure], tables: Tables) -> list[LocatedView]:
    """A view of each record; keeps what the page's script draws in `figures` and `tables`."""
    taken: set[str] = set()
    return [_view(located, _anchor(located, taken), figures, tables) for located in found]


def _anchor(located: Located, taken: set[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", located.stem.lower().replace("+", "with-"))[:_LONGEST_SLUG].strip("-")
    name = unique = f"located-{slug or 'unnamed'}"
    while unique in taken:
        unique = f"{name}--{len(taken)}"
    taken.add(unique)
    return unique


def _view(located: Located, anchor: str, figures: dict[str, Figure], tables: Tables) -> LocatedView:
    drawn = layers = sensitivity = ""
    if located.layers:
        drawn, layers = anchor, f"layers-{anchor}"
        figures[drawn] = layer_figure(located)
        tables[layers] = _layers(located)
    if located.sensitivity:
        sensitivity = f"sensitivity-{anchor}"
        tables[sensitivity] = [
            [_sharers(one.names), significant(one.float_db, 5), significant(one.alone_db, 5)]
            for one in located.sensitivity
        ]
    return LocatedView(
        key=(str(located.case), located.point),
        anchor=anchor,
        title=culprits.title(located),
        headline=culprits.headline(located).removeprefix(f"{culprits.title(located)}: "),
        lines=tuple(culprits.text(located, one).replace(" -> ", " → ") for one in located.culprits[:_MOST_CULPRITS]),
        more=max(0, len(located.culprits) - _MOST_CULPRITS),
        remarks=tuple(culprits.remarks(located)),
        passes=f"{located.passes:.4g}",
        figure=drawn,
        layers=layers,
        count=len(located.layers),
        sensitivity=sensitivity,
        groups=len(located.sensitivity),
        unmatched=tuple(
            (graph, names)
            for graph, names in (("float", located.only_float), ("quantized", located.only_quantized))
            if names
        ),
    )


def _layers(located: Located) -> list[list[Any]]:
    """The rows of the table below the figure."""
    marked = {place.layer: place for place in culprits.places(located)}
    return [
        [
            place + 1,
            visible(layer.name),
            culprits.ops(layer),
            visible(layer.source),
            significant(layer.sqnr_db, 5),
            significant(layer.local_db, 5),
            significant(layer.worst_channel_db, 5),
            layer.samples,
            " ".join(filter(None, (layer.status, _mark(marked.get(place))))),
        ]
        for place, layer in enumerate(located.layers)
    ]


def _mark(place: Place | None) -> str:
    return "" if place is None else f"★ culprit {place.culprit}"


def _sharers(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHARERS
    shown = ", ".join(visible(shortened(name)) for name in names[:_MOST_SHARERS])
    return f"{shown} and {more} more" if more > 0 else shown
