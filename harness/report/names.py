"""Names of what was measured, as long as they must be to be told apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

Subject = tuple[str, str, str]
"""Model, size, weights."""


def subject_names(subjects: Iterable[Subject]) -> dict[Subject, str]:
    """`model/size` of each subject, and the weights too where a model of one size was measured with several."""
    subjects = list(subjects)
    weights = defaultdict(set)
    for model, size, kind in subjects:
        weights[model, size].add(kind)
    return {
        (model, size, kind): f"{model}/{size}" + (f"/{kind}" if len(weights[model, size]) > 1 else "")
        for model, size, kind in subjects
    }
