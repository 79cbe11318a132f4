"""What quantization did to every layer: the float and the quantized graph run side by side, node by node.

Each value is measured as soon as both graphs have it and dropped when its last reader is done, so memory does not grow
with the number of batches, and in-place ops cannot overwrite what is measured.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from harness.measure.dataflow import Dataflow
from harness.measure.layer_sums import LayerSums
from harness.measure.local import Border, LocalLayer, local_layer, run_local
from harness.measure.matching import Matching, Pair, match_graphs
from harness.measure.qdq import op_name
from harness.measure.side import Side, call, tensors_of
from harness.measure.sites import VIEW_OPS, Sites
from harness.records import SQNR_CAP_DB, Status

LOCAL_EVERY = 16
"""Of the samples, one in so many is also run through each layer alone: a third pass over all would cost half again.

A sample of a convolution has thousands of values; 200 of a classifier's still settle its SQNR to 0.4 dB.
"""
_CONVOLUTIONS = re.compile(r"(conv|.*batch_norm|.*instance_norm|.*group_norm|.*pool\dd|.*upsample)")
_ROWS = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "layer_norm", "native_layer_norm", "embedding", "softmax"}
)
_SOURCE = re.compile(r'File "([^"]+)", line (\d+), in ')


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, quantized against float; dB, higher is better, at most 160, None where the status leaves it undefined.

    `sqnr_db` is accumulated: damage done here and damage inherited. `local_db` is that of this layer alone, its own
    quantizers, parameters and op on the float graph's values. `worst_channel_db` is the accumulated SQNR of the worst
    channel: axis 1 of convolutions and what follows them, else the last axis. `local_numel` is 0 where the layer's op
    and parameters are those of the float graph to the last bit: it then loses nothing, and need not be run.
    """

    name: str
    op: str
    actual_op: str
    folded: str
    """The float op whose value this is, where one was folded into this layer; else empty."""
    source: str
    """File and line of the Python call, where the graph knows it."""
    matched_by: str
    status: Status
    sqnr_db: float | None
    worst_channel_db: float | None
    numel: int
    samples: int
    local_status: Status | None
    """None where too little around the layer was matched to tell its own damage from others'."""
    local_db: float | None
    local_numel: int


@dataclass(frozen=True, slots=True)
class LayerReport:
    """Layers in the order of the float graph, and the names of the layers that only one graph has."""

    layers: tuple[Layer, ...]
    only_reference: tuple[str, ...]
    only_actual: tuple[str, ...]
    batches: int


def measure_layers(
    *,
    reference: GraphModule,
    actual: GraphModule,
    batches: Iterable[tuple[Tensor, ...]],
    local_every: int = LOCAL_EVERY,
) -> LayerReport:
    """Measure each layer of `actual` against `reference`, two graphs of one model, over all batches.

    Local damage is measured on every `local_every`-th sample, the first among them; with 0 only where it needs no run.
    Raises what the graphs raise when they run; values that cannot be compared are statuses.
    """
    lockstep = _Lockstep(reference, actual)
    count = seen = 0
    with torch.no_grad():
        for inputs in batches:
            samples = next((len(value) for value in inputs if value.dim()), 1)
            rows = slice(-seen % local_every, None, local_every) if local_every else None
            lockstep.run(inputs, rows if rows is not None and rows.start < samples else None)
            seen += samples
            count += 1
    return lockstep.report(count)


class _Lockstep:
    """Both graphs, the plan of what is compared when, and the running sums."""

    def __init__(self, reference: GraphModule, actual: GraphModule) -> None:
        self._matching: Matching = match_graphs(reference=reference, actual=actual)
        ours, theirs = Dataflow(reference), Dataflow(actual)
        self._ours, self._theirs = Side(reference, ours), Side(actual, theirs)
        self._sites = Sites(reference), Sites(actual)
        border = Border(self._matching, theirs, self._ours, self._theirs)
        axes = channel_axes(self._ours.nodes, ours)
        self._sums = {pair: LayerSums(axes.get(pair.reference)) for pair in self._matching.pairs}
        self._local = {pair: local_layer(pair, border, self._ours, self._theirs) for pair in self._matching.pairs}
        self._plan()

    def _plan(self) -> None:
        """When each pair is compared and each layer run alone, and how often each value is read for that."""
        self._pairs: dict[Node, list[Pair]] = defaultdict(list)
        self._early: dict[Node, list[LocalLayer]] = defaultdict(list)
        self._late: dict[Node, list[LocalLayer]] = defaultdict(list)
        self._reads: Counter[Node] = Counter()
        self._local_reads: Counter[Node] = Counter()
        place = self._ours.place
        for pair in self._matching.pairs:
            self._pairs[pair.reference].append(pair)
            self._reads[pair.reference] += 1
            layer = self._local[pair]
            if layer is None or layer.same:
                continue
            # Before the float node runs, if it can be: an in-place op then need not leave a copy of its input.
            last = max((source for source in layer.feeds.values() if source in place), key=place.__getitem__)
            if place[last] < place[pair.reference]:
                self._early[pair.reference].append(layer)
            else:
                self._late[last].append(layer)
            self._local_reads.update([pair.reference, *layer.feeds.values()])
        self._actual_reads = Counter(pair.actual for pair in self._matching.pairs)

    def run(self, inputs: tuple[Tensor, ...], rows: slice | None) -> None:
        """One batch; `rows` are the samples that are also run through each layer alone."""
        self._ours.start(inputs, self._reads if rows is None else self._reads + self._local_reads)
        self._theirs.start(inputs, self._actual_reads)
        for node in self._ours.nodes:
            early = [(layer, self._alone(layer, rows)) for layer in self._early[node]] if rows else []
            self._ours.run_through(node)
            late = [(layer, self._alone(layer, rows)) for layer in self._late[node]] if rows else []
            for layer, result in (*early, *late):
                self._settle(layer, *result)
            for pair in self._pairs[node]:
                self._theirs.run_through(pair.actual)
                value = restored(pair, self._theirs.measured(pair.actual))
                compare(self._sums[pair], self._ours.measured(node), value)
        self._theirs.finish()

    def _alone(self, layer: LocalLayer, rows: slice) -> tuple[Any, slice]:
        feeds = {node: self._ours.measured(source) for node, source in layer.feeds.items()}
        for tried in (rows, slice(None)):
            try:
                return run_local(layer, feeds, self._theirs, tried)
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue  # ops that hold a shape fast do not take fewer samples
        return None, rows  # nor the float graph's shapes: it is no exact twin, and `mismatch` says so

    def _settle(self, layer: LocalLayer, value: Any, rows: slice) -> None:
        reference = self._ours.measured(layer.pair.reference)
        if rows != slice(None) and isinstance(reference, Tensor):
            reference = reference[rows]
        compare(layer.sums, reference, restored(layer.pair, value))

    def report(self, batches: int) -> LayerReport:
        """All layers so far."""
        ours, theirs = self._sites
        return LayerReport(
            tuple(self._layer(pair) for pair in self._matching.pairs),
            tuple(ours.site(node) for node in self._matching.only_reference),
            tuple(theirs.site(node) for node in self._matching.only_actual),
            batches,
        )

    def _layer(self, pair: Pair) -> Layer:
        sums, layer = self._sums[pair], self._local[pair]
        same = layer is not None and layer.same and sums.numel > 0
        local = layer.sums if layer is not None else None
        return Layer(
            name=pair.name,
            op=pair.op,
            actual_op=op_name(pair.computed),
            folded="" if pair.reference is pair.source else op_name(pair.reference),
            source=source_line(pair.source),
            matched_by=pair.by,
            status=sums.status,
            sqnr_db=sums.sqnr_db(),
            worst_channel_db=sums.worst_channel_db(),
            numel=sums.numel,
            samples=sums.samples,
            local_status=Status.EXACT if same else local.status if local else None,
            local_db=SQNR_CAP_DB if same else local.sqnr_db() if local else None,
            local_numel=local.numel if local else 0,
        )


def compare(sums: LayerSums, reference: Any, actual: Any) -> None:
    """Add one pair of values, tensors or tuples of them."""
    ours, theirs = tensors_of(reference), tensors_of(actual)
    if len(ours) != len(theirs):
        sums.spoil(Status.MISMATCH)
        return
    for one, other in zip(ours, theirs, strict=True):
        sums.update(reference=one, actual=other)


def restored(pair: Pair, value: Any) -> Any:
    """A layer's value, which may be codes, as the numbers that it stands for."""
    if pair.restore is None or not isinstance(value, Tensor):
        return value
    return call(pair.restore, lambda _codes: value)


def channel_axes(nodes: list[Node], dataflow: Dataflow) -> dict[Node, int]:
    """The axis of each value that counts channels."""
    axes: dict[Node, int] = {}
    for node in nodes:
        name = op_name(node) if node.op == "call_function" else ""
        if _CONVOLUTIONS.match(name):
            axes[node] = 1
        elif name in _ROWS or name in VIEW_OPS:
            axes[node] = -1
        else:
            axes[node] = next((axes[one] for one in node.all_input_nodes if one not in dataflow.constants), -1)
    return axes


def source_line(node: Node) -> str:
    """`package/file.py:line` of the innermost Python call outside torch that a node was traced from; empty if unknown.

    A layer of `nn.Sequential` is called by torch alone.
    """
    calls = [(file.replace("\\", "/"), line) for file, line in _SOURCE.findall(str(node.meta.get("stack_trace") or ""))]
    own = [call for call in calls if "/torch/" not in call[0] and not call[0].startswith("<")]
    return f"{'/'.join(own[-1][0].split('/')[-2:])}:{own[-1][1]}" if own else ""
