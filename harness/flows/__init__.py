"""Flows: the routes by which an upstream quantizes a model, one file per quantizer family.

A flow knows how each stage is done and nothing about models, measuring or baselines. `BUILTIN` names the file that
defines each flow, read on use; other packages add theirs through the entry-point group `sqnr.flows`, whose value is
a `Flow` object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from harness.errors import unknown_name
from harness.records import Point

if TYPE_CHECKING:
    import torch

ENTRY_POINTS = "sqnr.flows"
ARM_FLOWS = tuple(
    f"arm-{mode}-{activation}s8f32-per-{granularity}"
    for mode in ("static", "dynamic")
    for activation in ("s8", "u8")
    for granularity in ("tensor", "channel")
)
INDUCTOR_FLOWS = ("x86-static", "x86-dynamic", *ARM_FLOWS, "arm-static-default")
BUILTIN = {
    **dict.fromkeys(INDUCTOR_FLOWS, "harness.flows.inductor"),
    **dict.fromkeys(("nncf-mul", "nncf-x86"), "harness.flows.nncf"),
    **dict.fromkeys(("cadence-hoist", "cadence-portable"), "harness.flows.cadence"),
    **dict.fromkeys(("vulkan-4w", "vulkan-8w"), "harness.flows.vulkan"),
    "xnnpack": "harness.flows.xnnpack",
}


@dataclass(frozen=True, slots=True)
class Program:
    """What a compiler or a runtime made of a converted graph: it runs, and has no nodes to read quantizers from.

    `run` takes the model's inputs. `counts` are columns of `harness.records.OutputRow` by name (`int8_convs`, ...), and
    `digest` is equal for programs that compute alike.
    """

    run: Callable[..., Any]
    counts: Mapping[str, int]
    digest: str


@dataclass(frozen=True, slots=True)
class Flow:
    """One route through an upstream's quantizer.

    Every callable may write into the graph it is given: the pipeline hands out copies. Flows with the same `export`
    function share one exported graph.
    """

    name: str
    package: str
    """Distribution that owns the quantizer; its version is recorded."""
    export: Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], torch.fx.GraphModule]
    prepare: Callable[[torch.fx.GraphModule], torch.fx.GraphModule]
    calibrate: Callable[[torch.fx.GraphModule, Iterable[tuple[torch.Tensor, ...]]], torch.fx.GraphModule | None]
    """Runs the batches through the prepared graph; returns a graph only where that makes another one."""
    convert: Callable[[torch.fx.GraphModule], torch.fx.GraphModule]
    edge: Callable[[torch.fx.GraphModule, tuple[torch.Tensor, ...]], Any] | None = None
    """The converted graph as the program that `lower` takes, made once for all variants of the lowering; it must be
    something that `copy.deepcopy` copies."""
    lower: Callable[[Any], torch.fx.GraphModule | Program] | None = None
    """The upstream's pass, as a graph that takes the model's inputs; or its compiler or runtime, as a program."""
    programs: bool = False
    """Whether `lower` gives a program."""

    @property
    def points(self) -> tuple[Point, ...]:
        """The points at which this flow's outputs are measured."""
        return (Point.FLOAT, Point.PREPARED, Point.CONVERTED, *((Point.LOWERED,) if self.lower else ()))

    @property
    def graph_points(self) -> tuple[Point, ...]:
        """Those of them that run a graph, whose nodes can be looked into."""
        return tuple(point for point in self.points if point is not Point.LOWERED or not self.programs)

    def unlowered(self) -> Flow:
        """The same flow as far as the converted graph."""
        return replace(self, edge=None, lower=None, programs=False)


def names() -> list[str]:
    """All flows that can be asked for, built-in and added by other packages."""
    return sorted({*BUILTIN, *entry_points(group=ENTRY_POINTS).names})


def load(name: str) -> Flow:
    """The flow called `name`; raises `UsageError` listing near matches if there is none."""
    if name in BUILTIN:
        flow: Flow = import_module(BUILTIN[name]).flow(name)
        return flow
    found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
    if not found:
        raise unknown_name("flow", name, names())
    added: Flow = found[0].load()
    return added
