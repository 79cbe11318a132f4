"""Two runs sample by sample: deltas a reader can redo, and when a sample has collapsed."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console

from harness.measure.bootstrap import Array
from harness.paired import Paired, Sample, pair
from harness.report.samples import print_samples, render, sentence
from harness.settings import Tolerance
from tests.paired_sets import ROW, SET, changed, levels, quiet


def of(base: Array, head: Array) -> Paired | None:
    return pair(ROW, Tolerance(), base=base, head=head)


def collapsed(base: Array, head: Array) -> list[int]:
    found = of(base, head)
    return [] if found is None else [sample.index for sample in found.collapsed]


# Deltas


def test_median_and_worst_are_of_the_same_samples_in_both() -> None:
    found = of(levels(40, 30, 35, 38, 36), levels(40, 29, 36, 38, 33))
    assert found is not None
    assert (found.samples, found.moved) == (5, 3)
    assert found.median_db == 0  # of 0, -1, +1, 0, -3
    assert found.worst == Sample(4, pytest.approx(36), pytest.approx(33))
    assert found.worst.delta_db == pytest.approx(-3)


def test_the_change_of_the_whole_is_that_of_the_sums() -> None:
    """Noise 1e-2 + 1e-2 becomes 1e-2 + 2e-2: 3 / 2 of it."""
    found = of(np.array([[1, 1], [0.01, 0.01]]), np.array([[1, 1], [0.01, 0.02]]))
    assert found is not None
    assert found.change_db == pytest.approx(-10 * math.log10(1.5))
    assert found.interval_db == pytest.approx((-10 * math.log10(2), 0), abs=1e-9)  # sample 1 twice; sample 0 twice


def test_equal_samples_have_not_moved() -> None:
    assert of(levels(40, 30), levels(40, 30)) is None


def test_above_80_db_on_both_sides_a_difference_is_rounding() -> None:
    assert of(levels(140, 81), levels(120, 90)) is None
    found = of(levels(140, 90), levels(79, 90))
    assert found is not None
    assert (found.moved, found.worst.index) == (1, 0)


def test_a_sample_without_a_signal_has_no_sqnr_and_is_left_out() -> None:
    base, head = levels(40, 40, 40), levels(40, 40, 39)
    base[0, 0] = head[0, 0] = 0
    found = of(base, head)
    assert found is not None
    assert (found.samples, found.left_out, found.worst.index) == (2, 1, 2)


def test_other_samples_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="2 samples cannot be paired with 3"):
        of(levels(40, 40), levels(40, 40, 40))


# Collapse


def test_one_sample_that_fell_among_hundreds_that_did_not_has_collapsed() -> None:
    assert collapsed(levels(*SET), changed(s77=5.0)) == [77]


def test_it_is_found_where_a_bad_sample_hides_it_from_the_worst() -> None:
    """sqnr_min_db stays at 4 dB, and the mean as it was."""
    found = of(quiet(changed(s0=4.0), 77), quiet(changed(s0=4.0, s77=5.0), 77))
    assert found is not None
    assert [sample.index for sample in found.collapsed] == [77]
    assert found.change_db == pytest.approx(0, abs=0.01)


def test_a_drop_within_the_allowance_is_none() -> None:
    """From 30 dB, the lowest there was, to 28.6."""
    assert collapsed(levels(*SET), changed(s0=28.6)) == []
    assert collapsed(levels(*SET), changed(s0=28.4)) == [0]


def test_a_drop_that_ends_where_other_samples_always_were_is_none() -> None:
    """From 49 to 29 dB, where the lowest are at 30."""
    assert collapsed(levels(*SET), changed(s19=29.0)) == []


def test_a_drop_that_ends_there_hides_no_other_that_does_not_go_as_far() -> None:
    """s19 fell by 20 dB to 29; s0 by 10, to 20."""
    assert collapsed(levels(*SET), changed(s19=29.0, s0=20.0)) == [0]


def test_a_drop_as_far_as_others_rose_is_noise() -> None:
    """s0 fell by 6 dB, to 24. Had the others risen by 2 and not by 4, it would stand alone: 6 > 2 x 2 + 1.5."""
    assert collapsed(levels(*SET), changed(s0=24.0, s1=35.0, s2=36.0, s3=37.0)) == []
    assert collapsed(levels(*SET), changed(s0=24.0, s1=33.0, s2=34.0, s3=35.0)) == [0]


def test_of_two_hundred_the_two_that_rose_furthest_are_passed_over() -> None:
    assert collapsed(levels(*SET), changed(s0=24.0, s1=35.0, s2=36.0)) == [0]


def test_one_sample_that_was_repaired_hides_no_other_also_in_a_small_set() -> None:
    """s3 of 5 rose by 22 dB and s1 fell by 42: a rise counts as 11 at most, and 42 > 2 x 11 + 1.5."""
    assert collapsed(levels(30, 30, 31, 8, 32), levels(30, -12, 31, 30, 32)) == [1]


def test_a_sample_that_became_exact_hides_no_other() -> None:
    """From 30 to 160 dB, beside one that fell by 60."""
    head = levels(30, -30, 31, 30, 32)
    head[1, 3] = 0
    assert collapsed(levels(30, 30, 31, 30, 32), head) == [1]


def test_where_exactness_was_lost_it_counts_from_80_db() -> None:
    """160 dB stands for exact; above 80 nothing is judged. To 79 dB is a drop of 1, to 78 one of 2."""
    base = levels(*[160] * 10)
    assert collapsed(base, levels(79, *[160] * 9)) == []
    assert collapsed(base, levels(78, *[160] * 9)) == [0]


@pytest.mark.parametrize("fallen", [1, 99, 100, 101, 199, 200])
def test_however_many_fall_none_of_them_makes_it_usual(fallen: int) -> None:
    """By 40 dB. From half of the set on, the median delta is the fall itself."""
    head = changed(**{f"s{at}": level - 40 for at, level in enumerate(SET[:fallen])})
    assert sorted(collapsed(levels(*SET), head)) == list(range(fallen))


def test_a_collapse_of_most_samples_that_are_quiet_shows_though_mean_and_worst_stay() -> None:
    """120 of 200 fall by 30 dB, to 0 at the least; s199 has -20 dB in both runs."""
    few = range(120)
    head = changed(s199=-20.0, **{f"s{at}": SET[at] - 30 for at in few})
    found = of(quiet(changed(s199=-20.0), *few), quiet(head, *few))
    assert found is not None
    assert sorted(sample.index for sample in found.collapsed) == list(few)
    assert found.change_db == pytest.approx(0, abs=0.01)


def test_in_a_set_of_one_or_two_it_is_what_fell_below_the_worst() -> None:
    assert collapsed(levels(40), levels(-20)) == [0]
    assert collapsed(levels(40), levels(38.6)) == []
    assert collapsed(levels(40, 41), levels(-20, 41)) == [0]
    assert collapsed(levels(40, 45), levels(40, 39)) == []
    assert collapsed(levels(30, 8), levels(-12, 30)) == [0]


def test_what_all_samples_gained_hides_no_collapse() -> None:
    better = levels(*(level + 10 for level in SET))
    better[:, 3] = levels(20.0)[:, 0]
    assert collapsed(levels(*SET), better) == [3]


def test_several_collapse_the_worst_first() -> None:
    assert collapsed(levels(*SET), changed(s3=9.0, s4=5.0)) == [4, 3]


# What is written


def test_a_sentence_names_three_and_counts_the_rest() -> None:
    found = of(levels(*SET), changed(s1=5.0, s2=6.0, s3=7.0, s4=8.0))
    assert found is not None
    assert sentence(found) == (
        "resnet/small/trained x86-static converted logits: 4 of 200 samples collapsed: sample 1 31.00 -> 5.00 dB; "
        "sample 2 32.00 -> 6.00 dB; sample 3 33.00 -> 7.00 dB; and 1 more"
    )


def test_the_csv_holds_every_output_exactly() -> None:
    found = of(levels(40, 40, 40), levels(40, 40, 39))
    assert found is not None
    header, line = render([found]).splitlines()
    cells = dict(zip(header.split(","), line.split(","), strict=True))
    assert [cells[name] for name in ("model", "output", "samples", "moved")] == ["resnet", "logits", "3", "1"]
    assert float(cells["worst_db"]) == found.worst.delta_db
    assert (cells["left_out"], cells["worst_sample"], cells["collapsed"]) == ("0", "2", "")


def test_the_table_says_how_many_samples_were_left_out() -> None:
    base, head = levels(40, 40, 40), levels(40, 40, 39)
    base[0, 0] = head[0, 0] = 0
    found = of(base, head)
    assert found is not None
    text = io.StringIO()
    print_samples(Console(file=text, width=200), [found])
    assert "2, 1 left out" in text.getvalue()
    assert "left out are those with noise and no signal" in text.getvalue()
    assert dict(zip(*(line.split(",") for line in render([found]).splitlines()), strict=True))["left_out"] == "1"
