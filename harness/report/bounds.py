"""Range bounds as numeric tables: what each quantizer can represent, what it saw, and which bounds a fix moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from harness.files import storable
from harness.records import RELEASED, QuantizerRow, QuantizerStatus
from harness.report.order import natural, point_order, variant_order

MOVED = 0.01
"""A range moved if either bound did by more than this share of the larger released bound."""

_KEY = ["model", "size", "weights", "flow", "variant", "point", "quantizer"]
_TEXT = ["status", "role"]
_NUMBERS = ["zero_point", "lo", "hi", "observed_lo", "observed_hi", "clip_fraction", "sqnr_db"]
_ORDERS: dict[str, Callable[[str], Any]] = {"variant": variant_order, "point": point_order}


def range_frame(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """A line for each quantized row, quantizers in natural order.

    `bound` is the range bound: `hi` of a symmetric quantizer (zero point 0), else the largest representable magnitude,
    max(|lo|, |hi|). `absmax` is the largest observed magnitude; both are in the tensor's own units. `clip_fraction` is
    a share in [0, 1], `sqnr_db` the quantizer's own error in dB. NaN where the row has none.
    """
    frame = _frame(rows)
    frame = frame[frame["status"] == QuantizerStatus.QUANTIZED]
    columns = [*_KEY, "role", "bound", "absmax", "clip_fraction", "sqnr_db"]
    return _sorted(frame)[columns]


def moved_ranges(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """Quantizers whose range a variant moved by over 1 % of the larger released bound, or added, or took away.

    A line for each, with `status`, `lo`, `hi`, `bound`, `sqnr_db` of the variant, and the same as released with the
    suffix `_released`; NaN on the side that has no quantizer. `absmax` is the largest observed magnitude.
    """
    frame = _frame(rows)
    released = frame["variant"] == RELEASED
    where = [name for name in _KEY if name != "variant"]
    pairs = frame[~released].merge(frame[released], on=where, suffixes=("", "_released"))
    change = np.maximum((pairs["lo_released"] - pairs["lo"]).abs(), (pairs["hi_released"] - pairs["hi"]).abs())
    both = pairs[["lo", "hi", "lo_released", "hi_released"]].notna().all(axis=1)
    moved = change > MOVED * np.maximum(pairs["lo_released"].abs(), pairs["hi_released"].abs())
    moved = moved.where(both, pairs["status"] != pairs["status_released"])
    pairs["absmax"] = pairs["absmax"].fillna(pairs["absmax_released"])
    return _sorted(pairs[moved.astype(bool)])


def moved_bounds(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """The largest magnitudes that `moved_ranges` are about: `absmax` observed, bounds as `released` and `repaired`."""
    frame = moved_ranges(rows).rename(columns={"bound_released": "released", "bound": "repaired"})
    return frame[[*_KEY, "absmax", "released", "repaired"]]


def _frame(rows: Iterable[QuantizerRow]) -> pd.DataFrame:
    """Rows as columns, with `bound` and `absmax`; of two rows with one key the last."""
    names = [*_KEY, *_TEXT, *_NUMBERS]
    columns = dict(zip(names, zip(*map(attrgetter(*names), rows), strict=True), strict=False)) or dict.fromkeys(
        names, ()
    )
    texts = {name: pd.Series(map(storable, columns[name]), dtype=str) for name in (*_KEY, *_TEXT)}
    numbers = {name: pd.Series(columns[name], dtype=float) for name in _NUMBERS}
    frame = pd.DataFrame(texts | numbers).drop_duplicates(_KEY, keep="last")
    widest = np.maximum(frame["lo"].abs(), frame["hi"].abs())
    frame["bound"] = widest.where((frame["zero_point"] != 0) | widest.isna(), frame["hi"])
    frame["absmax"] = np.maximum(frame["observed_lo"].abs(), frame["observed_hi"].abs())
    return frame


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the order of its keys; each name is looked at once, however many rows have it."""
    places = pd.DataFrame(index=frame.index)
    for name in _KEY:
        ranked = sorted(frame[name].unique(), key=_ORDERS.get(name, natural))
        places[name] = frame[name].map({value: place for place, value in enumerate(ranked)})
    return frame.loc[places.sort_values(_KEY).index].reset_index(drop=True)
