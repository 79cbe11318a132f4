"""Rows as pandas tables, rounded for reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import pandas as pd

from harness.judge import coverage
from harness.records import OutputRow, Point, QuantizerRow

_MOST_COLUMNS = 12
_CASE = ["model", "size", "weights", "flow", "variant"]


def outputs_frame(rows: Iterable[OutputRow], point: Point) -> pd.DataFrame:
    """One line a case and output at one point, with the numbers people ask for first."""
    columns = [*_CASE, "output", "status", "sqnr_db", "sqnr_min_db", "max_abs_err", "cosine", "task_metric", "error"]
    frame = pd.DataFrame([asdict(row) for row in rows if row.point == point], columns=columns)
    return frame.sort_values([*_CASE, "output"], ignore_index=True)


def sqnr_matrix(rows: Iterable[OutputRow], point: Point = Point.CONVERTED) -> pd.DataFrame:
    """SQNR in dB as text: a line for each flow (and variant), a column for each model and output; status if none."""
    frame = outputs_frame(rows, point)
    if frame.empty:
        return pd.DataFrame()
    plain = frame["variant"] == "released"
    frame["line"] = frame["flow"].where(plain, frame["flow"] + " " + frame["variant"])
    frame["column"] = frame["model"] + "/" + frame["size"] + " " + frame["output"]
    text = frame["sqnr_db"].map(lambda value: f"{value:.1f}", na_action="ignore").astype(object)
    frame["value"] = text.where(frame["sqnr_db"].notna(), frame["status"])
    matrix = frame.pivot(index="line", columns="column", values="value").fillna("").rename_axis(None)
    return matrix if len(matrix.columns) <= _MOST_COLUMNS else matrix.transpose().rename_axis(None)


def coverage_frame(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """Quantized over quantizable weights of each case, and how many are left in float."""
    by_case: dict[tuple[str, ...], list[QuantizerRow]] = {}
    for row in rows:
        by_case.setdefault((row.model, row.size, row.weights, row.flow, row.variant), []).append(row)
    lines = []
    for key, members in sorted(by_case.items()):
        covered = coverage(members)
        lines.append([*key, covered.quantized, covered.quantizable, ", ".join(covered.rest)])
    return pd.DataFrame(lines, columns=[*_CASE, "quantized", "quantizable", "in float"])
