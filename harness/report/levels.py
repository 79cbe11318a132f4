"""SQNR of each output before and after, at the last point of its flow: what the bars of a report show."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from harness.files import storable
from harness.records import RELEASED, Case
from harness.report.groups import Group
from harness.report.order import natural, point_order, variant_order

COLUMNS = ["title", "label", "before", "after", "noise_db"]


def level_frame(groups: Iterable[Group]) -> pd.DataFrame:
    """A line for each case and output: `title` (model and output), `label` (flow and variant), `before`, `after`, dB.

    `noise_db` is the accepted noise floor. NaN where there is no number: nothing accepted, failed, not measured.
    """
    last: dict[tuple[Case, str], Group] = {}
    for group in groups:
        for pair in group.outputs:
            key = (group.case, pair.verdict.name)
            if key not in last or point_order(group.point) > point_order(last[key].point):
                last[key] = group
    lines = []
    for case, output in sorted(last, key=_order):
        pair = next(pair for pair in last[case, output].outputs if pair.verdict.name == output)
        variant = "" if case.variant == RELEASED else f" {case.variant}"
        lines.append(
            (
                storable(f"{case.model}/{case.size}/{case.weights} {output}"),
                storable(f"{case.flow}{variant}"),
                pair.old and pair.old.sqnr_db,
                pair.new and pair.new.sqnr_db,
                pair.old and pair.old.noise_db,
            )
        )
    return pd.DataFrame(lines, columns=COLUMNS).astype({"before": float, "after": float, "noise_db": float})


def _order(key: tuple[Case, str]) -> tuple[object, ...]:
    case, output = key
    return natural(case.model), case.size, case.weights, output, natural(case.flow), variant_order(case.variant)
