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
from collections.abc import Collection, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch.fx import GraphModule, Node

from harness.errors import UsageError, no_quantizer
from harness.flows import specs
from harness.graphs import ANNOTATION
from harness.measure.qdq import is_dequantize, is_quantize
from harness.measure.sites import Sites, is_observer

_NEAR = 3


class UnknownQuantizerError(UsageError):
    """A name or pattern that fits no quantizer of a case."""


def leave_in_float(prepared: GraphModule, excluded: Collection[str]) -> frozenset[str]:
    """Take the quantizers that fit any of `excluded`, names or shell patterns, out of a prepared graph.

    Returns their names. Every other quantizer keeps its name and, unless it shares an observer with an excluded one,
    its qparams to the last bit. Two kinds go along, as nothing would be left of them: one whose value nobody but an
    excluded one reads, and one whose qparams are derived from an excluded one's (the int32 bias of Cadence's
    quantizer). Raises `UnknownQuantizerError` for a name or pattern that fits none.
    """
    if not excluded:
        return frozenset()
    sites = Sites(prepared)
    observers = {sites.quantizer(node)[0]: node for node in prepared.graph.nodes if _quantizes(prepared, node)}
    if observers:
        names = _fitting(excluded, observers)
        _remove_observers(prepared, [observers[name] for name in names])
    else:
        quantizers = specs.quantizers(prepared)
        names = _fitting(excluded, quantizers)
        specs.take_off(prepared, frozenset().union(*(quantizers[name] for name in names)))
    return frozenset(names)


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


def _fitting(excluded: Iterable[str], names: Collection[str]) -> list[str]:
    """The names that are, or fit, any of `excluded`; each of which must fit one."""
    found: dict[str, None] = {}
    for wanted in excluded:
        fitting = [name for name in names if name == wanted or fnmatchcase(name, wanted)]
        if not fitting:
            near = difflib.get_close_matches(wanted, names, n=_NEAR, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "quantizers.csv of a run without --exclude has all"
            raise UnknownQuantizerError(f"{no_quantizer(wanted)} among {len(names)}; {hint}")
        found |= dict.fromkeys(fitting)
    return list(found)


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
    value = observer
    while is_observer(value):
        value = value.all_input_nodes[0]
    for reader in list(observer.users):
        if is_observer(reader):
            reader.replace_input_with(observer, observer.all_input_nodes[0])
        else:
            reader.replace_input_with(observer, value)
            _annotate(reader, drop=value)


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
