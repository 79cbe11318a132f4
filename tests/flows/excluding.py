"""A model measured with some of its quantizers left in float, and what that may change."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Node

from harness import fixes
from harness.adapter import Batch
from harness.fixes import Fix
from harness.flows import Flow
from harness.measure.qdq import is_dequantize
from harness.pipeline import CaseResult, Pipeline
from harness.records import Point, QuantizerRow, QuantizerStatus
from harness.stages import Stages
from harness.subject import Subject
from harness.workspace import load_module
from tests.lab import adapter, lab_case, uncompiled

MODELS = Path(__file__).parents[2] / "models"
QPARAMS = ("role", "mode", "dtype", "granularity", "axis", "quant_min", "quant_max", "scale", "zero_point", "lo", "hi")


def fours(seed: int) -> list[Batch]:
    """One batch of (16, 4)."""
    return [Batch((torch.randn(16, 4, generator=torch.Generator().manual_seed(seed)),))]


def subject_of(module: Any) -> Subject:
    with torch.no_grad():
        return Subject(module, "small", next(iter(module.SIZES["small"].weights)), 0)


def measured(
    flow: str | Flow, *excluded: str, module: Any = None, repairs: tuple[Fix, ...] = (), on: Subject | None = None
) -> CaseResult:
    """The rows of a model through a flow; `excluded` are names or patterns of quantizers."""
    loaded = uncompiled(flow) if isinstance(flow, str) else flow
    case = lab_case(loaded.name, fixes.variant_name(frozenset(fix.name for fix in repairs)))
    pipeline = Pipeline(on or subject_of(module or adapter()), lambda _case, _stage: None, excluded)
    return pipeline.measure(case, loaded, repairs)


def small(name: str) -> Any:
    """A small model with its first batch of each kind of data, which is enough to prepare, calibrate and convert."""
    whole = load_module(MODELS, name)
    return SimpleNamespace(
        __name__=name,
        SIZES=whole.SIZES,
        build=whole.build,
        calibration=lambda size, seed: islice(whole.calibration(size, seed), 1),
        evaluation=lambda size, seed: islice(whole.evaluation(size, seed), 1),
    )


def quantized(result: CaseResult, point: Point = Point.CONVERTED) -> dict[str, QuantizerRow]:
    """The quantizers of a graph, by name."""
    rows = [row for row in result.quantizers if row.point == point]
    return {row.quantizer: row for row in rows if row.status == QuantizerStatus.QUANTIZED}


def qparams(row: QuantizerRow) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in QPARAMS)


def levels(result: CaseResult, point: Point) -> list[float]:
    """SQNR of each output at a point, dB."""
    return [row.sqnr_db for row in result.outputs if row.point == point and row.sqnr_db is not None]


def converted(stages: Stages, flow: Flow) -> torch.fx.GraphModule:
    from harness.records import Stage

    with torch.no_grad():
        graph: torch.fx.GraphModule = stages.at(Stage.CONVERT, lab_case(flow.name), flow, ()).graph
    return graph


def reads_codes(node: Node) -> set[str]:
    """Operands of a node that come from codes, by the name of the value's producer."""
    return {source.name for source in node.all_input_nodes if is_dequantize(source)}
