"""Builders of rows, runs and workspaces with defaults in round numbers; keywords override any field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from harness.adapter import Size
from harness.baseline import Baseline
from harness.records import FAILED, Case, OutputRow, QuantizerRow, Row
from harness.settings import Settings, parse_settings
from harness.store import COMPLETE, Run
from harness.suite import Plan
from harness.workspace import Workspace

R = TypeVar("R", OutputRow, QuantizerRow)

CASE = Case("resnet", "small", "trained", "x86-static")
SIZES = {
    "resnet": {"small": Size(("trained", "seeded"), ("logits",)), "full": Size(("seeded", "pretrained"), ("logits",))},
    "vit": {"small": Size(("trained",), ("logits",)), "full": Size(("seeded",), ("logits",))},
}

ENVIRONMENT = {
    "platform": "linux-x86_64",
    "python": "3.11.7",
    "cpu": "a cpu",
    "stack": {"torch": "2.14.1", "torchao": "0.18.0"},
    "pins": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"},
}


def case(**changes: str) -> Case:
    """The small trained resnet through x86-static, unless told otherwise."""
    return Case(**{**{name: getattr(CASE, name) for name in Case.__slots__}, **changes})


def output_row(**changes: Any) -> OutputRow:
    """Converted logits at 30 dB, worst sample 20 dB, 90 % right, from a graph of ten nodes."""
    values: dict[str, Any] = {
        **{name: getattr(CASE, name) for name in Case.__slots__},
        "point": "converted",
        "output": "logits",
        "status": "measured",
        "sqnr_db": 30.0,
        "sqnr_min_db": 20.0,
        "max_abs_err": 0.25,
        "cosine": 0.5,
        "ref_rms": 1.0,
        "numel": 100,
        "task_metric": 0.9,
        "quantize_nodes": 2,
        "dequantize_nodes": 3,
        "slice_nodes": 0,
        "nodes": 10,
    }
    return OutputRow(**{**values, **changes})


def no_number(status: str, **changes: Any) -> OutputRow:
    """An output whose status leaves no SQNR: failed (then nothing was measured), not finite, mismatched, empty."""
    names = ["sqnr_db", "sqnr_min_db", "max_abs_err", "cosine", "task_metric"]
    if status.startswith(FAILED):
        names += ["ref_rms", "numel", "quantize_nodes", "dequantize_nodes", "slice_nodes", "nodes"]
    return output_row(**{**dict.fromkeys(names), "status": status, **changes})


def repaired_row(**changes: Any) -> OutputRow:
    """The same output under a fix that the installed release needs."""
    return output_row(**{"variant": "+fix", "fix_state": "needed", **changes})


def quantizer_row(**changes: Any) -> QuantizerRow:
    """An unsigned per-tensor activation quantizer of range [0, 2.55] that clips nothing."""
    values: dict[str, Any] = {
        **{name: getattr(CASE, name) for name in Case.__slots__},
        "point": "converted",
        "quantizer": "conv1:conv2d:0:input",
        "status": "quantized",
        "role": "activation",
        "mode": "static",
        "dtype": "uint8",
        "granularity": "per_tensor",
        "quant_min": 0,
        "quant_max": 255,
        "scale": 0.01,
        "zero_point": 0,
        "lo": 0.0,
        "hi": 2.55,
        "observed_lo": 0.0,
        "observed_hi": 2.5,
        "clip_fraction": 0.0,
        "utilisation": 0.5,
        "sqnr_db": 40.0,
        "sqnr_min_db": 40.0,
    }
    return QuantizerRow(**{**values, **changes})


def lost_edge(**changes: Any) -> QuantizerRow:
    """An edge that the flow annotated and that has no quantizer in the converted graph."""
    names = ("quant_min", "quant_max", "scale", "zero_point", "lo", "hi", "observed_lo", "observed_hi")
    absent = dict.fromkeys((*names, "clip_fraction", "utilisation", "sqnr_db", "sqnr_min_db"))
    empty = dict.fromkeys(("mode", "dtype", "granularity"), "")
    return quantizer_row(**{**absent, **empty, "status": "unquantized", "cause": "unquantized", **changes})


def with_nan(row: R, field: str) -> R:
    """A copy with NaN where no constructor would take it."""
    copy = type(row)(**{item.name: getattr(row, item.name) for item in fields(row)})
    object.__setattr__(copy, field, float("nan"))
    return copy


def by_key(rows: Iterable[R]) -> dict[tuple[str, ...], R]:
    """Rows by key."""
    return {row.key: row for row in rows}


def outputs_of(rows: Iterable[Row]) -> list[OutputRow]:
    """The output rows among `rows`."""
    return [row for row in rows if isinstance(row, OutputRow)]


def quantizers_of(rows: Iterable[Row]) -> list[QuantizerRow]:
    """The quantizer rows among `rows`."""
    return [row for row in rows if isinstance(row, QuantizerRow)]


def journal_entry(**changes: Any) -> dict[str, Any]:
    """One accept as the sidecar keeps it."""
    return {"because": "first", "subjects": ["resnet/small/trained"], "stack": {"torchao": "0.17"}, **changes}


def accepted(*rows: Row, **fields_: Any) -> Baseline:
    """A baseline of these rows."""
    return Baseline(by_key(outputs_of(rows)), by_key(quantizers_of(rows)), **fields_)


def run_of(folder: Path, *rows: Row, cases: Iterable[Case] | None = None, **changes: Any) -> Run:
    """A run that measured these rows; a complete, unfiltered gate run of their cases unless told otherwise.

    `any_suite` are the cases that some suite plans, by default those of the run.
    """
    planned = tuple(cases) if cases is not None else tuple(sorted({row.case for row in rows}))
    any_suite = tuple(changes.pop("any_suite", planned))
    plan = Plan(changes.pop("suite", "gate"), changes.pop("filtered", False), planned, any_suite)
    values: dict[str, Any] = {
        "seed": 0,
        "environment": {"cpu": "a cpu", "stack": {"torchao": "0.18"}, "pins": {"OMP_NUM_THREADS": "1"}},
        "started": "2026-01-31T12:00:00+00:00",
        "status": COMPLETE,
    }
    return Run(folder, plan, **{**values, **changes}, outputs=outputs_of(rows), quantizers=quantizers_of(rows))


def workspace_at(root: Path, settings: Settings | None = None) -> Workspace:
    """A workspace with its three folders below `root`."""
    return Workspace(root, root / "models", root / "baselines", root / "reports", settings or Settings())


def settings_from(**table: Any) -> Settings:
    """Settings as a `[tool.sqnr]` table would give them."""
    return parse_settings(table, Path("pyproject.toml"))
