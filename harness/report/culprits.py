"""Where a case's damage comes from, in words: the same lines on a terminal, in markdown and on the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.located import Culprit, LayerLevel, Located
from harness.records import SQNR_CAP_DB, Status
from harness.report.deltas import shortened
from harness.report.phrases import fixed, number
from harness.report.text import visible

_MOST_NAMES, _MOST_NAME, _MOST_SOURCE = 3, 72, 120
_AGAINST = {
    "baseline": "with the baseline's ranges",
    "fitted": "with ranges fitted to the float graph's values",
}


def headline(located: Located) -> str:
    """Which output, and its dB three times: as it is, with everything put right, with the culprits alone."""
    count = len(located.culprits)
    parts = [f"{level(located.sqnr_db)} as it is"]
    if located.other_db is not None:
        parts.append(f"{level(located.other_db)} {against(located)}")
    if count and located.explained_db is not None:
        share = "" if located.explained is None else f", {fixed(100 * located.explained, 1)} % of the difference"
        what = "the culprit" if count == 1 else f"the {count} culprits"
        parts.append(f"{level(located.explained_db)} with {what} alone put right{share}")
    return f"{title(located)}: {'; '.join(parts)}"


def title(located: Located) -> str:
    """Case, point and output."""
    return visible(f"{located.case} {located.point} {located.output}")


def against(located: Located) -> str:
    """Where right values were taken from, as the end of a sentence."""
    return _AGAINST.get(located.against) or f"with {visible(shortened(located.against))}"


def text(located: Located, culprit: Culprit) -> str:
    """One line: `narrow:linear.input: range [-1, 1.7] -> [0, 100] explains 30.5 of 30.5 dB (clipping)`.

    The only culprit explains what the output gains with it put right, of what it gains with everything put right. Of
    several each is told with what it gains alone, which may be little where the others hide it, and what all explain
    together stands in the headline; one that was not tried alone has no figure. The source is the first reader's.
    """
    parts = [f"{_names(culprit)}:", _change(culprit), _explained(located, culprit)]
    local = "" if culprit.local_db is None else f"{_db(culprit.local_db)} dB local"
    source = visible(shortened(culprit.source or _source(located, culprit), _MOST_SOURCE))
    notes = ", ".join(filter(None, (culprit.cause, local, source)))
    return " ".join(filter(None, (*parts, f"({notes})" if notes else "")))


def remarks(located: Located) -> list[str]:
    """What to know of a record beside its culprits: that there are none, that some may be needless, its own remark."""
    lines = [] if located.culprits else ["no culprit was found"]
    if len(located.culprits) > 1 and not located.minimal:
        lines.append("not each of them was seen to be needed")
    return [*lines, *([visible(located.remark)] if located.remark else [])]


def _names(culprit: Culprit) -> str:
    names = [visible(shortened(name, _MOST_NAME)) for name in culprit.names[:_MOST_NAMES]]
    more = len(culprit.names) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _change(culprit: Culprit) -> str:
    if culprit.kind == "layer":
        return "left in float"
    if culprit.old is None and culprit.new is None:
        return "put right"
    old = "none" if culprit.old is None else _range(culprit.old)
    return f"range {old} -> {'float' if culprit.new is None else _range(culprit.new)}"


def _range(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:.4g}, {ends[1]:.4g}]"


def _explained(located: Located, culprit: Culprit) -> str:
    gain, only = culprit.alone_db, len(located.culprits) == 1
    if gain is None and only:
        gain = _less(located.explained_db, located.sqnr_db)
    if gain is None:
        return ""
    whole = _less(located.other_db, located.sqnr_db)
    alone = "" if only else " alone"
    if whole is None or not whole > 0:
        return f"gains {_db(gain)} dB{alone}"
    if only and _db(gain) != _db(whole) and gain > whole:  # a layer in float loses its rounding too
        return f"explains all {_db(whole)} dB, and gains {_db(gain)}"
    return f"{'explains' if only else 'gains'} {_db(gain)} of {_db(whole)} dB{alone}"


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _db(value: float) -> str:
    """One digit is enough, but below 1 dB, where damage is worst, two."""
    return fixed(value, 2 if abs(value) < 1 else 1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a culprit acts: the place of a layer in the record, and the culprit's number there, from 1."""

    layer: int
    culprit: int


def places(located: Located) -> list[Place]:
    """The layers that read a culprit's value, or are one; the first of several culprits of a layer.

    A name that neither graph has is in no place. An edge pass renames ops, `slice` to `slice_copy` say: a quantizer
    of such a graph belongs to the layer that the renamed op computes.
    """
    index: dict[str, int] = {}
    for place, layer in enumerate(located.layers):
        index.setdefault(layer.name, place)
    for place, layer in enumerate(located.layers):
        index.setdefault(_renamed(layer), place)
    found: dict[int, int] = {}
    for count, culprit in enumerate(located.culprits, start=1):
        for name in _layer_names(culprit):
            if name in index:
                found.setdefault(index[name], count)
    return [Place(layer, culprit) for layer, culprit in sorted(found.items())]


def _source(located: Located, culprit: Culprit) -> str:
    """The line of the first layer that reads a culprit's value, or is it."""
    names = set(_layer_names(culprit))
    return next((one.source for one in located.layers if one.name in names or _renamed(one) in names), "")


def _layer_names(culprit: Culprit) -> Iterable[str]:
    if culprit.readers or culprit.kind == "layer":
        return culprit.readers or culprit.names
    return [name.rpartition(".")[0] for name in culprit.names]


def _renamed(layer: LayerLevel) -> str:
    """A layer's name with the quantized graph's op in it."""
    path, colon, last = layer.name.rpartition(":")
    _, sign, occurrence = last.partition("#")
    return f"{path}{colon}{layer.actual_op}{sign}{occurrence}"


def worst_local(layers: Sequence[LayerLevel], most: int) -> list[int]:
    """Places of the layers that lose most by themselves, the worst first; exact ones lose nothing."""
    lossy = [(layer.local_db, place) for place, layer in enumerate(layers) if loses(layer)]
    return [place for _, place in sorted(lossy, key=lambda one: (one[0] or 0.0, one[1]))[:most]]


def loses(layer: LayerLevel) -> bool:
    """Whether a layer is known to do damage by itself."""
    return layer.local_db is not None and layer.local_db < SQNR_CAP_DB


def level(value: float | None, status: str = Status.MEASURED) -> str:
    """A layer's dB as people read it: `exact` at the cap, the status where it leaves none."""
    if value is None:
        return "no SQNR" if status in (Status.MEASURED, Status.EXACT) else status
    return "exact" if value >= SQNR_CAP_DB else number("sqnr_db", value)


def ops(layer: LayerLevel) -> str:
    """The float op, and the quantized graph's where it is another."""
    names = dict.fromkeys((layer.op, layer.actual_op))
    return " -> ".join(visible(shortened(name, _MOST_NAME)) for name in names)
