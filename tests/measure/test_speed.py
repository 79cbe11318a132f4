"""Ratios of times taken side by side: what is compared with what, and what a bad round is worth."""

from __future__ import annotations

import gc
from itertools import accumulate

import pytest

from harness.measure.speed import Ratio, interleaved, ratio


def test_a_program_that_takes_half_the_time_is_twice_as_fast_without_any_doubt() -> None:
    assert ratio(before=[2.0, 4.0, 8.0], after=[1.0, 2.0, 4.0]) == Ratio(2.0, 2.0, 2.0)


def test_a_machine_that_slows_down_in_the_middle_changes_nothing() -> None:
    """3 rounds at full speed, 3 at a fifth of it, and which of them a median falls into does not matter."""
    before = [3.0] * 3 + [15.0] * 3
    assert ratio(before=before, after=[seconds / 3 for seconds in before]) == Ratio(3.0, 3.0, 3.0)


def test_the_value_is_the_median_of_the_rounds_quotients() -> None:
    """Quotients 1, 2, 9: the quotient of the medians, 6 / 3, happens to agree; with 10 for 6 it is 10 / 3."""
    assert ratio(before=[3.0, 6.0, 9.0], after=[3.0, 3.0, 1.0]).value == 2.0
    assert ratio(before=[3.0, 10.0, 18.0], after=[3.0, 5.0, 2.0]).value == 2.0


def test_one_round_in_which_the_machine_was_elsewhere_moves_neither_value_nor_interval() -> None:
    """The median of 21 draws is the outlier's only if it is drawn 11 times: its share is 1/21, never in 1999."""
    assert ratio(before=[2.0] * 21, after=[1.0] * 20 + [50.0]) == Ratio(2.0, 2.0, 2.0)


def test_the_interval_is_that_of_the_median_of_draws() -> None:
    """Half the quotients 1, half 3: a draw's median is 1, 2 or 3, and either end has far more than 2.5 %.

    Of 20 draws more than 10 are ones in 41 % of all resamples.
    """
    assert ratio(before=[1.0, 3.0] * 10, after=[1.0] * 20) == Ratio(2.0, 1.0, 3.0)


def test_more_rounds_make_the_interval_narrower() -> None:
    """Quotients spread evenly over 1 to 2: the median's interval is as wide as 1 over the root of their number."""

    def width(rounds: int) -> float:
        spread = [1 + place / rounds for place in range(rounds)]
        found = ratio(before=spread, after=[1.0] * rounds)
        assert found.lower < found.value < found.upper
        return found.upper - found.lower

    assert width(25) / width(400) == pytest.approx(4, rel=0.25)


@pytest.mark.parametrize(("before", "after"), [([1.0, 2.0], [1.0]), ([1.0], [1.0]), ([], [])])
def test_rounds_that_are_no_pairs_or_too_few_are_an_error(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match=f"{len(before)} rounds before and {len(after)} after"):
        ratio(before=before, after=after)


def test_every_round_calls_each_program_once_and_begins_with_the_next() -> None:
    called: list[str] = []
    programs = {name: lambda name=name: called.append(name) for name in "abc"}
    interleaved(programs, rounds=3, warmup=1)
    assert ["".join(called[start : start + 3]) for start in range(0, 12, 3)] == ["abc", "bca", "cab", "abc"]


def test_seconds_are_those_between_two_looks_at_the_clock_and_warm_up_is_not_kept() -> None:
    """Calls last 5 and 7 in the warm-up, then (b first) 2 and 3, then 1 and 4; between them the clock stands."""
    ticks = accumulate([0, 5, 0, 7, 0, 2, 0, 3, 0, 1, 0, 4])
    seconds = interleaved({"a": int, "b": int}, rounds=2, warmup=1, timer=lambda: float(next(ticks)))
    assert seconds == {"a": [3.0, 1.0], "b": [2.0, 4.0]}


def test_no_garbage_is_collected_meanwhile_and_collecting_goes_on_also_after_an_error() -> None:
    seen: list[bool] = []

    def fail() -> None:
        seen.append(gc.isenabled())
        raise RuntimeError("a kernel refused")

    with pytest.raises(RuntimeError, match="a kernel refused"):
        interleaved({"a": fail}, rounds=2, warmup=0)
    assert (seen, gc.isenabled()) == ([False], True)
