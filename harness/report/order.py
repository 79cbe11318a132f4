"""Names in tables: the order in which reports list them, and what pandas can hold of them."""

from __future__ import annotations

import re

from harness.records import RELEASED, Point

_DIGITS = re.compile(r"([0-9]+)")
_POINTS = {str(point): place for place, point in enumerate(Point)}


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key by which `layer2` comes before `layer10`.

    Numbers compare by their count of digits first, so that no text is too long to be one.
    """
    parts = _DIGITS.split(name)
    return tuple(
        (len(digits := part.lstrip("0")), digits) if place % 2 else (0, part) for place, part in enumerate(parts)
    )


def variant_order(variant: str) -> tuple[int, tuple[tuple[int, str], ...]]:
    """Sort key of variants: released, then single fixes, then combinations."""
    return (0 if variant == RELEASED else max(1, variant.count("+")), natural(variant))


def point_order(point: str) -> int:
    """Place of a point in a case, from `float` to `lowered`; unknown ones last."""
    return _POINTS.get(point, len(_POINTS))
