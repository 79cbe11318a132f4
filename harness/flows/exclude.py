"""Leaving single quantizers of a flow in float: `sqnr run --exclude QUANTIZER`.

A quantizer is one quantize op, named as in quantizers.csv. Excluded, it is gone, and every place that read its value
reads the float one; a value that is quantized twice, by two quantizers for two readers, keeps the other.

It is taken out of what a flow's `prepare` returns, so that no flow needs to know of it. Where that has observers, the
excluded ones are taken from between value and readers. That is better than to take specs off the annotations before
upstream prepares: which observers share is upstream's decision, transitive and in part implicit, and stays as it was
made. Where a flow's prepared graph has annotations and no observers (NNCF), specs are taken off,
and its quantizer is wrapped so that it annotates the same again (`harness.flows.specs`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch.fx import GraphModule, Node

from harness.errors import UsageError, no_quantizer
from harness.flows import specs
from harness.graphs import ANNOTATION
from harness.measure.qdq import is_dequantize, is_quantize
from harness.measure.sites import Sites, is_observer, operands, trace_source

_NEAR = 3
_EDGE_OP = "_copy"
"""How ops of the edge dialect are called that are views elsewhere: no such op was in the graph before it."""
_LOWERED = (
    "that exists only after lowering (`lowered` rows): the upstream's pass makes it, so it cannot be left in float; "
    "those of `converted` rows can"
)


class UnknownQuantizerError(UsageError):
    """A name or pattern that fits no quantizer of a case."""


def leave_in_float(prepared: GraphModule, excluded: Collection[str], *, lowers: bool = False) -> frozenset[str]:
    """Take the quantizers that fit any of `excluded`, names or patterns of `*` and `?`, out of a prepared graph.

    Returns their names, all that quantizers.csv has of them: a constant's observer becomes a row for each place that
    reads it (tied weights). Every other quantizer keeps its name and, unless it shares an observer with an excluded
    one, its qparams to the last bit. Two kinds go along, as nothing would be left of them: one whose value nobody but
    an excluded one reads, and one whose qparams are derived from an excluded one's (the int32 bias of Cadence's
    quantizer). Raises `UnknownQuantizerError` for a name or pattern that fits none; `lowers` says that the graph will
    go through a pass, whose own quantizers nothing can be said of here.
    """
    if not excluded:
        return frozenset()
    sites = Sites(prepared)
    observers = {sites.quantizer(node)[0]: node for node in prepared.graph.nodes if _quantizes(prepared, node)}
    places = frozenset(sites.site(node) for node in prepared.graph.nodes) if lowers else None
    if observers:
        rows, shared = _names_read_by(sites, observers)
        names = _fitting(excluded, rows, shared, places)
        gone = dict.fromkeys(rows[name] for name in names)
        _remove_observers(prepared, list(gone))
        return frozenset(name for name, observer in rows.items() if observer in gone)
    edges = specs.quantizers(prepared)
    shared = {
        sites.edge(reader, operand): name
        for name, served in edges.items()
        for value, reader in served
        for operand in _operands_of(reader, value)
    }
    names = _fitting(excluded, edges, shared, places)
    specs.take_off(prepared, frozenset().union(*(edges[name] for name in names)))
    return frozenset(names)


def _names_read_by(sites: Sites, observers: dict[str, Node]) -> tuple[dict[str, Node], dict[str, str]]:
    """(the observer of each name in quantizers.csv, the name that one has which stands there under another).

    A constant is folded to codes for each reader, with a row of its own; an activation is quantized by one op for all.
    """
    rows, shared = dict(observers), dict[str, str]()
    for name, observer in observers.items():
        read_as = [
            sites.edge(reader, operand)
            for reader in observer.users
            if not is_observer(reader)
            for operand in _operands_of(reader, observer)
        ]
        if trace_source(_observed(observer)).op == "get_attr":
            rows = dict.fromkeys(read_as, observer) | rows
        else:
            shared |= dict.fromkeys(read_as, name)
    return rows, shared


def _operands_of(reader: Node, value: Node) -> list[str]:
    return [operand for operand, source in operands(reader) if source is value] if reader.op == "call_function" else []


def check_left(converted: GraphModule, left: Collection[str]) -> None:
    """Raise `UsageError` if a converted graph still has a quantizer that was to stay in float."""
    if not left:
        return
    sites = Sites(converted)
    for node in converted.graph.nodes:
        if (is_quantize(node) or is_dequantize(node)) and (name := sites.quantizer(node)[0]) in left:
            raise UsageError(
                f"{name} was to stay in float and is quantized all the same: the flow does not convert the graph that "
                "it prepared, so it takes no --exclude (docs/extending.md)"
            )


def _fitting(
    excluded: Iterable[str], names: Collection[str], shared: Mapping[str, str], places: Collection[str] | None
) -> list[str]:
    """The names that are, or fit, any of `excluded`; each of which must fit one.

    `shared` has names that stand in no quantizers.csv, and what does instead; `places` those of a graph that is to go
    through a pass, else None.
    """
    found: dict[str, None] = {}
    for wanted in excluded:
        fitting = [name for name in names if name == wanted or fits(name, wanted)]
        if not fitting:
            advice = _advice(wanted, names, shared, places)
            raise UnknownQuantizerError(f"{no_quantizer(wanted)} among {len(names)}; {advice}")
        found |= dict.fromkeys(fitting)
    return list(found)


def _advice(wanted: str, names: Collection[str], shared: Mapping[str, str], places: Collection[str] | None) -> str:
    if wanted in shared:
        return f"what it reads has one quantizer for all readers, {shared[wanted]}: that one can be left in float"
    place = wanted.rpartition(".")[0]
    if places is not None and place not in places and place.partition("#")[0].endswith(_EDGE_OP):
        return f"it is one {_LOWERED}"
    near = difflib.get_close_matches(wanted, names, n=_NEAR, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "quantizers.csv of a run without --exclude has all"
    return hint if places is None else f"{hint} (it may be one {_LOWERED})"


def fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern of `*` and `?`; brackets stand for themselves, as in `cat.tensors[0]`."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _quantizes(graph: GraphModule, node: Node) -> bool:
    """Whether a node is an observer that becomes a quantizer: some annotate a bias as float32, to stay as it is."""
    dtype = getattr(graph.get_submodule(str(node.target)), "dtype", None) if is_observer(node) else None
    return isinstance(dtype, torch.dtype) and not (dtype.is_floating_point and dtype.itemsize > 1)


def _remove_observers(graph: GraphModule, gone: list[Node]) -> None:
    while gone:
        modules = {id(graph.get_submodule(str(node.target))) for node in gone}
        for observer in gone:
            _bypass(observer)
        for observer in reversed(gone):
            _erase(graph, observer)
        live = [node for node in graph.graph.nodes if is_observer(node)]
        modules -= {id(graph.get_submodule(str(node.target))) for node in live}
        gone = [node for node in live if any(id(source) in modules for source in _derived_from(graph, node))]
    graph.recompile()


def _bypass(observer: Node) -> None:
    """Let what computes with an observed value read it as it was computed; other observers go on behind it."""
    value = _observed(observer)
    for reader in list(observer.users):
        if is_observer(reader):
            reader.replace_input_with(observer, observer.all_input_nodes[0])
        else:
            reader.replace_input_with(observer, value)
            _annotate(reader, drop=value)


def _observed(observer: Node) -> Node:
    """The value that an observer sees, through others before it."""
    value = observer
    while is_observer(value):
        value = value.all_input_nodes[0]
    return value


def _erase(graph: GraphModule, observer: Node) -> None:
    """Erase an observer that nothing reads, and those before it that were there for it alone."""
    before = observer.all_input_nodes[0]
    graph.graph.erase_node(observer)
    graph.delete_submodule(str(observer.target))
    if is_observer(before) and not before.users:
        _erase(graph, before)
    elif not any(is_observer(reader) for reader in before.users):
        _annotate(before, output=False)


def _annotate(node: Node, *, drop: Node | None = None, output: bool = True) -> None:
    """Take a spec off a node's annotation, in a new one: several nodes may hold the same.

    What convert finds annotated and not observed it takes for a mistake, and so would the row reader.
    """
    old = node.meta.get(ANNOTATION)
    if old is not None:
        kept = {source: spec for source, spec in old.input_qspec_map.items() if source is not drop}
        node.meta[ANNOTATION] = replace(old, input_qspec_map=kept, output_qspec=old.output_qspec if output else None)


def _derived_from(graph: GraphModule, observer: Node) -> Iterable[object]:
    found: Iterable[object] = getattr(graph.get_submodule(str(observer.target)), "obs_or_fqs", ())
    return found
