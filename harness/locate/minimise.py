"""The smallest part of a graph that still shows a culprit's damage, as programs that load without this project.

A folder `minimal/` holds `bad.pt2` and `good.pt2` (the part as it is, and the nearest good one: the culprit put right),
`inputs.safetensors` (one sample of the float graph's values before it, and `reference`, the float value behind it), and
`minimal.json`. Parts that are tried: a quantizer alone, and the layers that it is in; of those that show the damage
the smallest is written.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor
from torch.fx import Node

from harness.files import replace_all
from harness.fixes.states import repaired
from harness.locate.candidates import Candidate
from harness.locate.fragment import Fragment, Part, part_between, with_quantizers
from harness.locate.hybrid import Override
from harness.locate.minimal import BAD, GOOD, INPUTS, RECORD, REFERENCE, Record, bits
from harness.locate.scene import Scene
from harness.measure.cause import HARMLESS_DB
from harness.measure.dataflow import Dataflow
from harness.measure.local import Border, LocalLayer, local_layer
from harness.measure.metrics import sqnr_db
from harness.measure.qdq import is_dequantize, is_quantize
from harness.measure.side import Side
from harness.records import SQNR_CAP_DB

SHOWS_DB = 3.0
"""A part shows the damage if it is this much worse than the same part put right, and worse than harmless."""


@dataclass(frozen=True, slots=True)
class Minimal:
    """A part as it is and put right, what both are given, and the float value that both should give; dB against it."""

    name: str
    bad: Fragment
    good: Fragment
    inputs: tuple[Tensor, ...]
    reference: Tensor
    bad_db: float | None
    good_db: float | None
    nodes: int

    @property
    def shows(self) -> bool:
        """Whether the part shows the damage."""
        if self.bad_db is None or self.good_db is None:
            return self.good_db is not None
        return self.bad_db < HARMLESS_DB and self.good_db - self.bad_db >= SHOWS_DB

    @property
    def size(self) -> tuple[int, float]:
        """What is smaller is better, and of the same size what shows more."""
        return self.nodes, -SQNR_CAP_DB if self.bad_db is None else self.bad_db


def minimise(scene: Scene, culprit: Candidate, folder: Path) -> Minimal | None:
    """Write the smallest part that shows a culprit's damage into a folder; None if none of those tried does.

    Raises `UsageError` if the folder cannot be written.
    """
    with torch.no_grad(), repaired(scene.graphs.fixes):
        found = min((one for one in _Bench(scene).parts(culprit) if one.shows), key=lambda one: one.size, default=None)
        if found is not None:
            _write(found, culprit, folder)
    return found


class _Bench:
    """Cuts parts out of a scene's graphs, and feeds them what the float graph has there for its first batch."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        graphs = scene.graphs
        self._ours = Side(graphs.reference, Dataflow(graphs.reference))
        self._theirs = scene.quantized.hybrid.side
        self._pairs = scene.matching
        self._border = Border(self._pairs, scene.quantized.hybrid.dataflow, self._ours, self._theirs)

    def parts(self, culprit: Candidate) -> Iterator[Minimal]:
        """Quantizers alone, and layers that they or it are in; what cannot be cut out or run alone is left out."""
        layers = [
            (pair, layer)
            for pair in self._pairs.pairs
            if (layer := local_layer(pair, self._border, self._ours, self._theirs)) is not None and pair.restore is None
        ]
        cuts: list[Callable[[], Minimal | None]] = [
            self._alone(node, culprit) for node in culprit.overrides if is_dequantize(node)
        ]
        for pair, layer in layers:
            if culprit.kind == "layer" and pair.name in culprit.names:
                cuts.append(partial(self._float_layer, layer))
            elif culprit.kind == "quantizer" and _touches(layer, culprit):
                cuts.append(partial(self._layer, layer, culprit))
        for cut in cuts:
            try:
                found = cut()
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue  # ops that hold a shape fast, or take more than tensors
            if found is not None:
                yield found

    def _alone(self, restored: Node, culprit: Candidate) -> partial[Minimal | None]:
        """A quantize op and a dequantize op behind it: both sides should give what goes in."""

        def cut() -> Minimal | None:
            quantize = self._scene.quantized.quantizers.source.get(restored)
            source = self._border.source(quantize.all_input_nodes[0]) if quantize is not None else None
            if quantize is None or source is None:
                return None
            feeds = quantize.all_input_nodes[:1]
            part = part_between(self._theirs, restored, tuple(feeds))
            if part is None:
                return None
            floats = {node: _passing(node) for node in part.nodes if is_quantize(node) or is_dequantize(node)}
            given = self._recorded([source])
            right = Fragment(self._theirs, part, floats)(*given)
            name = self._scene.quantized.quantizers.names[restored]
            bad, good = Fragment(self._theirs, part), Fragment(self._theirs, part, culprit.overrides)
            return _measured(name, bad, good, given, right, len(part.nodes))

        return partial(cut)

    def _layer(self, layer: LocalLayer, culprit: Candidate) -> Minimal:
        """A layer with its quantizers, as they are and put right."""
        part = with_quantizers(self._theirs, Part(layer.nodes, tuple(layer.feeds)))
        *given, right = self._recorded([*layer.feeds.values(), layer.pair.reference])
        bad, good = Fragment(self._theirs, part), Fragment(self._theirs, part, culprit.overrides)
        return _measured(layer.pair.name, bad, good, tuple(given), right, len(part.nodes))

    def _float_layer(self, layer: LocalLayer) -> Minimal | None:
        """A layer whose op is the culprit, and the float one in its place."""
        floats = part_between(self._ours, layer.pair.reference, tuple(layer.feeds.values()))
        if floats is None:
            return None
        *given, right = self._recorded([*layer.feeds.values(), layer.pair.reference])
        part = with_quantizers(self._theirs, Part(layer.nodes, tuple(layer.feeds)))
        bad, good = Fragment(self._theirs, part), Fragment(self._ours, floats)
        return _measured(layer.pair.name, bad, good, tuple(given), right, len(part.nodes))

    def _recorded(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        """Values of float nodes for the first batch of the evaluation set."""
        self._ours.start(next(iter(self._scene.subject.evaluation())), Counter(nodes))
        self._ours.finish()
        return tuple(self._ours.measured(node).clone() for node in nodes)


def _touches(layer: LocalLayer, culprit: Candidate) -> bool:
    around = {*layer.nodes, *(source for node in layer.nodes for source in node.all_input_nodes)}
    return not around.isdisjoint(culprit.overrides)


def _passing(node: Node) -> Override:
    return Override(tuple(node.all_input_nodes[:1]), torch.clone)


def _measured(
    name: str, bad: Fragment, good: Fragment, inputs: tuple[Tensor, ...], reference: Tensor, nodes: int
) -> Minimal:
    """A part with its figures, on the one sample that shows the damage best where the part takes one alone."""
    whole = _figures(name, bad, good, inputs, reference, nodes)
    count = len(reference) if reference.dim() else 1
    if count < 2 or any(not one.dim() or len(one) != count for one in inputs):
        return whole
    try:
        noise = (bad(*inputs) - reference).flatten(1).square().sum(1) / reference.flatten(1).square().sum(1)
        worst = int(noise.nan_to_num(nan=torch.inf).argmax())
        sample = slice(worst, worst + 1)
        single = _figures(name, bad, good, tuple(one[sample].clone() for one in inputs), reference[sample], nodes)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return whole  # graphs may hold the size of a batch fast
    return single if single.shows or not whole.shows else whole


def _figures(
    name: str, bad: Fragment, good: Fragment, inputs: tuple[Tensor, ...], reference: Tensor, nodes: int
) -> Minimal:
    bad_db, good_db = (sqnr_db(reference=reference, actual=one(*inputs)) for one in (bad, good))
    return Minimal(name, bad, good, inputs, reference.clone(), bad_db, good_db, nodes)


def _write(found: Minimal, culprit: Candidate, folder: Path) -> None:
    programs = {name: _program(one, found.inputs) for name, one in ((BAD, found.bad), (GOOD, found.good))}
    tensors = {str(place): value.contiguous() for place, value in enumerate(found.inputs)}
    record = Record(
        part=found.name,
        nodes=found.nodes,
        culprit=list(culprit.names),
        bad_db=found.bad_db,
        good_db=found.good_db,
        bad_bits=bits(found.bad(*found.inputs)),
        good_bits=bits(found.good(*found.inputs)),
    )
    replace_all(
        {
            **{folder / name: content for name, content in programs.items()},
            folder / INPUTS: save({**tensors, REFERENCE: found.reference.contiguous()}),
            folder / RECORD: record.model_dump_json(indent=1, by_alias=True) + "\n",
        }
    )


def _program(module: Fragment, inputs: tuple[Tensor, ...]) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, inputs), buffer)
    return buffer.getvalue()
