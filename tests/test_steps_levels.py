"""The segmentation behind the steps: no level is missed, and none is told that is not one; and its speed."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.steps import find_steps, levels
from tests.histories import frame_of, series


@given(
    st.lists(
        st.tuples(st.sampled_from([0.51, -0.51, 0.7, -0.7, 3.0, -3.0]), st.integers(1, 6)), min_size=1, max_size=7
    ),
    st.integers(1, 6),
)
def test_no_level_that_differs_from_the_next_by_more_than_is_allowed_is_missed(
    jumps: list[tuple[float, int]], first: int
) -> None:
    """The derivation of the penalty: any number of levels, of any number of runs each, without noise."""
    values, cuts = [40.0] * first, []
    for jump, runs in jumps:
        cuts.append(len(values))
        values += [values[-1] + jump] * runs
    assert levels(np.array(values), 0.5)[0] == cuts


@given(st.lists(st.floats(-60, 160), min_size=2, max_size=30))
def test_all_neighbouring_levels_differ_by_more_than_is_allowed(values: list[float]) -> None:
    cuts, means = levels(np.array(values), 0.5)
    assert all(abs(new - old) > 0.5 for old, new in pairwise(means))
    bounds = [0, *cuts, len(values)]
    assert means == pytest.approx([float(np.mean(values[a:b])) for a, b in pairwise(bounds)])


def test_ten_thousand_lines_take_under_two_seconds() -> None:
    """500 series of 20 runs, each with noise and a drop; 0.1 s where this was written."""
    rng = random.Random(0)
    lines = [
        series([40.0 - 2.0 * (run > index % 20) + rng.gauss(0, 0.1) for run in range(20)], flow=f"f{index}")
        for index in range(500)
    ]
    frame = frame_of(*lines)
    find_steps(frame_of(series([40.0, 39.0])))  # ruptures is loaded
    start = time.perf_counter()
    steps = find_steps(frame)
    assert time.perf_counter() - start < 2.0
    assert len(frame) == 10_000
    assert {int(step.run[3:]) for step in steps} == set(range(2, 21))
    assert len(steps) == 475  # but for the 25 whose drop would come after the last run
