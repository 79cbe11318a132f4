"""Which generic measure shows that a row is damaged. No rule knows a particular defect.

A quantizer is held to two things. First to what a correct one with its qparams makes of the same values
(`harness.measure.expected`), of all and of the clipped and the others apart: a row that is far from that is `numerics`,
whatever its qparams are. Then to what the same number of codes could do with bounds fitted to the observed range,
uniform rounding noise of step^2 / 12: what its qparams lose against that is put down to the larger term of the expected
noise, clipping or rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from harness.measure.decibels import db
from harness.measure.expected import Expected, Part
from harness.records import Cause, Granularity, OutputRow, Point, QuantizerRow, QuantizerStatus, Role, Status

CONTROL_DB = 100.0
"""Least SQNR of a graph in which nothing is quantized yet."""
NOTABLE_LOSS_DB = 10.0
"""A quantizer that loses less is a choice: symmetric codes for data of one sign alone cost 6 dB."""
HARMLESS_DB = 40.0
"""A quantizer as good as this hurts nobody, however coarse: 8 bits do no better than about 50 dB."""
AXIS_GAP_DB = 10.0
"""A weight's worst output channel this far below the whole, and scales along another axis: the axis is wrong."""
LOWERING_LOSS_DB = 3.0
"""What lowering may lose against the converted graph before it is asked why."""
FAR_DB = 1.0
"""A quantizer this far from its expected SQNR does not do what its qparams say: none of the gate's is 0.2 dB off."""
RESOLUTION_DB = 80.0
"""Where both are better, float32 arithmetic decides: values that lie on codes are restored to within its last bits."""


def quantizer_cause(
    row: QuantizerRow, mean_square: float | None, output_axis: int | None, expected: Expected | None = None
) -> str:
    """Why a quantizer hurts, or nothing.

    `mean_square` is that of its input, `output_axis` its op's output channels, `expected` the noise that its
    `expected_db` comes from, in parts.
    """
    if row.status == QuantizerStatus.NONFINITE:
        return Cause.NONFINITE
    if _wrong_axis(row, output_axis):
        return Cause.AXIS
    expected = expected or Expected()
    if _unexpected(row, expected):
        return Cause.NUMERICS
    loss = _loss_db(row, mean_square)
    return _explain(row, expected) if loss is not None and loss > NOTABLE_LOSS_DB else ""


def _unexpected(row: QuantizerRow, expected: Expected) -> bool:
    """Whether a quantizer is far from its prediction, over all elements or over the clipped or the other ones alone.

    Where clipping makes most of the noise, a kernel that is off by ten codes moves the whole by less than 0.001 dB.
    """
    if row.expected_db is None:
        return False
    return _far(row.expected_db, row.sqnr_db) or _apart(expected.inside) or _apart(expected.outside)


def _apart(part: Part) -> bool:
    expected_db = db(part.signal, part.expected)
    return expected_db is not None and _far(expected_db, db(part.signal, part.measured))


def _far(expected_db: float, sqnr_db: float | None) -> bool:
    """Better is as wrong: then its codes are not those it declares."""
    if sqnr_db is None:
        return True  # finite values and qparams, and no number comes of them
    if min(expected_db, sqnr_db) >= RESOLUTION_DB:
        return False
    return not abs(sqnr_db - expected_db) <= FAR_DB


def _wrong_axis(row: QuantizerRow, output_axis: int | None) -> bool:
    if row.role != Role.WEIGHT or row.granularity != Granularity.PER_CHANNEL or row.axis == output_axis:
        return False
    known = output_axis is not None and row.sqnr_db is not None and row.sqnr_min_db is not None
    return known and row.sqnr_db - row.sqnr_min_db > AXIS_GAP_DB  # type: ignore[operator]


def _loss_db(row: QuantizerRow, mean_square: float | None) -> float | None:
    """SQNR of bounds fitted to the observed range, less the measured one; None where there is nothing to explain."""
    if row.dtype.startswith("float"):
        return None  # steps of a float type grow with the value
    numbers = (row.observed_lo, row.observed_hi, row.quant_min, row.quant_max, row.sqnr_db, mean_square)
    if any(value is None for value in numbers):
        return None
    low, high, quant_min, quant_max, sqnr_db, power = (float(value or 0.0) for value in numbers)
    low, high = min(low, 0.0), max(high, 0.0)  # as observers do: 0 must have a code
    if not (high > low and quant_max > quant_min and power > 0 and sqnr_db < HARMLESS_DB):
        return None
    step = (high - low) / (quant_max - quant_min)
    return 10 * math.log10(12 * power / step**2) - sqnr_db


def _explain(row: QuantizerRow, expected: Expected) -> Cause:
    """What bad qparams do: the range is too wide, or too narrow, or in the wrong place."""
    if expected.rounding >= expected.clipping:
        return Cause.STEP_SIZE
    observed = max(row.observed_hi or 0.0, 0.0) - min(row.observed_lo or 0.0, 0.0)
    return Cause.ZERO_POINT if (row.hi or 0.0) - (row.lo or 0.0) >= observed else Cause.CLIPPING


def output_cause(row: OutputRow, quantizers: Iterable[QuantizerRow]) -> str:
    """Why an output of a float, prepared or converted graph is damaged, or nothing, by the quantizers behind it."""
    if row.status in (Status.NONFINITE_ACTUAL, Status.NONFINITE_REFERENCE):
        return Cause.NONFINITE
    if row.point in (Point.FLOAT, Point.PREPARED):
        whole = row.sqnr_db is None or row.sqnr_db >= CONTROL_DB
        return "" if whole else Cause.FOLDING if row.point == Point.PREPARED else Cause.NUMERICS
    return _worst(quantizers)


def lowered_cause(
    row: OutputRow, quantizers: Iterable[QuantizerRow], converted: OutputRow | None, before: Iterable[QuantizerRow]
) -> str:
    """The same of a lowered graph. What lowering lost is not put down to a quantizer that was as bad `before` it."""
    quantizers = list(quantizers)
    if converted is None or converted.sqnr_db is None or row.sqnr_db is None:
        return output_cause(row, quantizers)
    if converted.sqnr_db - row.sqnr_db <= LOWERING_LOSS_DB:
        return output_cause(row, quantizers)
    old = {(quantizer.quantizer, quantizer.cause) for quantizer in before}
    return _worst(one for one in quantizers if (one.quantizer, one.cause) not in old) or Cause.NUMERICS


def _worst(quantizers: Iterable[QuantizerRow]) -> str:
    """Cause of the quantizer with the lowest SQNR of those that have one; an edge without a quantizer comes last."""
    hurt = [row for row in quantizers if row.cause]
    ranked = sorted(hurt, key=lambda row: (row.cause == Cause.UNQUANTIZED, row.sqnr_db or -math.inf, row.quantizer))
    return ranked[0].cause if ranked else ""
