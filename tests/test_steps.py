"""Steps in a history: which run is the first bad one, by how much, and what is none."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import permutations

import pytest

from harness import history
from harness.errors import UsageError
from harness.steps import Step, StepKind, find_steps
from tests.histories import START, frame_of, series
from tests.rows import CASE

TWELVE_THEN_LOWER = [40.0] * 8 + [38.0] * 4


def steps_of(*lines: list[dict], allowed_db: float = 0.5) -> list[Step]:
    return find_steps(frame_of(*lines), allowed_db)


def told(steps: list[Step]) -> list[tuple[str, str, float | None]]:
    """Kind, first run, change of each."""
    return [(step.kind.value, step.run, step.change_db) for step in steps]


# A drop


def test_forty_then_thirty_eight_from_run_nine_is_a_drop_of_two_in_run_nine() -> None:
    [step] = steps_of(series(TWELVE_THEN_LOWER))
    assert (step.kind, step.run, step.run_id, step.before) == (StepKind.DROP, "run09", f"{9:016x}", "run08")
    assert (step.old_db, step.new_db, step.change_db) == (40.0, 38.0, -2.0)
    assert (step.case, step.point, step.output) == (CASE, "converted", "logits")
    assert (step.status, step.platform, step.pinned) == ("measured", "linux-x86_64", True)
    assert (step.started - START).days == 8


def test_the_other_way_round_is_a_rise() -> None:
    assert told(steps_of(series(TWELVE_THEN_LOWER[::-1]))) == [("rise", "run05", 2.0)]


def test_runs_may_lie_in_any_order() -> None:
    lines = series(TWELVE_THEN_LOWER)
    random.Random(0).shuffle(lines)
    assert told(steps_of(lines)) == [("drop", "run09", -2.0)]


def test_a_drop_in_the_very_last_run_is_found() -> None:
    assert told(steps_of(series([40.0] * 11 + [39.0]))) == [("drop", "run12", -1.0)]


def test_two_runs_are_enough() -> None:
    assert told(steps_of(series([40.0, 39.25]))) == [("drop", "run02", -0.75)]


def test_one_bad_run_between_good_ones_is_a_drop_and_a_rise() -> None:
    assert told(steps_of(series([40.0] * 5 + [39.25] + [40.0] * 5))) == [
        ("drop", "run06", -0.75),
        ("rise", "run07", 0.75),
    ]


def test_a_ladder_is_a_step_at_each_rung() -> None:
    assert told(steps_of(series([40.0, 40.0, 39.0, 39.0, 38.0, 38.0]))) == [
        ("drop", "run05", -1.0),
        ("drop", "run03", -1.0),
    ]


def test_levels_are_means_so_noise_on_both_sides_leaves_the_change() -> None:
    """40 +- 0.1 and 38 +- 0.1, in turns."""
    noisy = [level + sign for level, sign in zip(TWELVE_THEN_LOWER, [0.1, -0.1] * 6, strict=True)]
    [step] = steps_of(series(noisy))
    assert step.run == "run09"
    assert (step.old_db, step.new_db) == (pytest.approx(40.0), pytest.approx(38.0))


def test_a_slow_drift_is_a_step_where_it_adds_up_to_more_than_is_allowed() -> None:
    """0.1 dB a run, 2 dB in all: no single run loses 0.5 dB, and every step that is told is over 0.5 dB."""
    steps = steps_of(series([40.0 - 0.1 * index for index in range(21)]))
    assert 1 <= len(steps) <= 3
    assert all(step.kind is StepKind.DROP and step.change_db is not None and step.change_db < -0.5 for step in steps)
    assert sum(step.change_db or 0.0 for step in steps) > -2.0


# No step


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_tenth_is_no_step(seed: int) -> None:
    rng = random.Random(seed)
    assert steps_of(series([40.0 + rng.uniform(-0.1, 0.1) for _ in range(50)])) == []


@pytest.mark.parametrize(
    "values",
    [
        [],
        [40.0],
        [40.0] * 20,
        [40.0, 39.5],  # what is allowed is allowed
        [40.0 - 0.02 * index for index in range(21)],  # a drift of 0.4 dB in all
        [40.0] * 10 + [39.6] * 10,
        ["failed:lower"] * 5,
        ["zero_signal"] * 5,
    ],
)
def test_what_stays_within_the_allowance_is_no_step(values: list) -> None:
    assert steps_of(series(values)) == []


def test_above_80_db_on_both_sides_a_difference_is_rounding() -> None:
    assert steps_of(series([160.0] * 4 + [120.0] * 4 + [81.0] * 4)) == []


def test_from_above_80_db_to_below_is_a_drop_from_the_level_just_before() -> None:
    assert told(steps_of(series([160.0] * 4 + [82.0] * 4 + [79.0] * 4))) == [("drop", "run09", -3.0)]


# Failures


def test_failed_then_recovered_are_two_steps_and_the_level_is_the_same() -> None:
    failed, recovered = steps_of(series([40.0, 40.0, "failed:lower", "failed:lower", 40.0]))
    assert (failed.kind, failed.run, failed.before, failed.status) == ("failed", "run03", "run02", "failed:lower")
    assert (failed.old_db, failed.new_db, failed.change_db) == (40.0, None, None)
    assert (recovered.kind, recovered.run, recovered.before, recovered.status) == (
        *("recovered", "run05", "run04", "measured"),
    )
    assert (recovered.old_db, recovered.new_db) == (None, 40.0)


def test_who_recovers_lower_than_before_has_dropped_too() -> None:
    steps = steps_of(series([40.0, 40.0, "nonfinite_actual", 38.0, 38.0]))
    assert told(steps) == [("failed", "run03", None), ("drop", "run04", -2.0), ("recovered", "run04", None)]
    assert steps[1].before == "run02"


def test_the_levels_beside_a_failure_are_those_of_the_segments_and_no_mean_over_a_step() -> None:
    """Segments 39.05, 37.05 (37.0, 37.1 and, after the failure, 37.05), 45.0; the mean of all before it is 38.25."""
    steps = steps_of(series([39.0, 39.1, 39.05, 37.0, 37.1, "failed:convert", 37.05, 45.0]))
    assert [(step.kind.value, step.run, step.old_db, step.new_db) for step in steps] == [
        ("failed", "run06", pytest.approx(37.05), None),
        ("drop", "run04", pytest.approx(39.05), pytest.approx(37.05)),
        ("rise", "run08", pytest.approx(37.05), 45.0),
        ("recovered", "run07", None, pytest.approx(37.05)),
    ]


def test_the_levels_beside_a_failure_are_apart_above_80_db_too() -> None:
    steps = steps_of(series([160.0, 160.0, 120.0, "failed:lower", 120.0]))
    assert [(step.old_db, step.new_db) for step in steps] == [(120.0, None), (None, 120.0)]


def test_a_failure_in_the_first_or_the_last_run() -> None:
    assert told(steps_of(series(["failed:export", 40.0, "mismatch"]))) == [
        ("failed", "run03", None),
        ("recovered", "run02", None),
    ]


def test_a_run_that_did_not_measure_the_row_says_nothing_of_it() -> None:
    [step] = steps_of(series([40.0, None, None, 38.0, None]))
    assert (step.run, step.before) == ("run04", "run01")


def test_infinities_and_nan_are_no_level() -> None:
    steps = steps_of(series([40.0, float("inf"), float("nan"), -float("inf"), 40.0]))
    assert told(steps) == [("failed", "run02", None), ("recovered", "run05", None)]
    assert steps_of(series([float("nan")] * 4)) == []


# Series apart


def test_two_platforms_are_two_series() -> None:
    """In turns 40 and 35 dB would be steps all along; apart only one of them drops, in its last run."""
    arm = series([None, 35.0, None, 35.0, None, 34.0], platform="linux-aarch64")
    x86 = series([40.0, None, 40.0, None, 40.0, None])
    [step] = steps_of(x86, arm)
    assert (step.platform, step.run, step.before, step.change_db) == ("linux-aarch64", "run06", "run04", -1.0)


@pytest.mark.parametrize(
    "other", [{"pinned": False}, {"output": "<script>"}, {"variant": "+fix"}, {"point": "lowered"}]
)
def test_other_rows_and_unpinned_runs_are_other_series(other: dict) -> None:
    assert steps_of(series([40.0] * 4), series([30.0] * 4, **other)) == []
    [step] = steps_of(series([40.0] * 4), series([30.0] * 3 + [29.0], **other))
    for name, value in other.items():
        assert getattr(step.case, name, getattr(step, name, None)) == value


# Order, allowance, stack


def test_the_worst_comes_first() -> None:
    steps = steps_of(
        series([40.0, 45.0], output="better"),
        series([40.0, 39.0], output="worse"),
        series(["failed:lower", 40.0], output="recovered"),
        series([40.0, 30.0], output="worst"),
        series([40.0, "failed:lower"], output="failed"),
    )
    assert [step.output for step in steps] == ["failed", "worst", "worse", "better", "recovered"]


def test_runs_of_one_start_are_in_order_of_their_names_and_then_of_their_identities() -> None:
    """All at one moment: run01, then run02 with the lesser identity, run02 with the greater, run03."""
    names, ids = ["run01", "run02", "run02", "run03"], ["d", "a", "b", "c"]
    lines = series([40.0, 38.0, 36.0, 40.0], started=START, run=names, run_id=ids)
    expected = [("drop", "run02", -2.0), ("drop", "run02", -2.0), ("rise", "run03", 4.0)]
    for order in permutations(lines):
        steps = steps_of(list(order))
        assert told(steps) == expected
        assert [step.run_id for step in steps] == ["a", "b", "c"]


def test_the_allowance_may_depend_on_the_row() -> None:
    """A row whose noise is 0.5 dB is allowed 3 x 0.5 dB."""
    frame = frame_of(series([40.0, 39.0], output="noisy"), series([40.0, 39.0], output="quiet"))
    steps = find_steps(frame, lambda key: 1.5 if key[-1] == "noisy" else 0.5)
    assert [step.output for step in steps] == ["quiet"]
    keys: list[tuple[str, ...]] = []
    find_steps(frame, lambda key: keys.append(key) or 0.5)  # type: ignore[func-returns-value]
    assert ("resnet", "small", "trained", "x86-static", "released", "converted", "noisy") in keys


@pytest.mark.parametrize("allowed", [-0.1, float("nan")])
def test_an_allowance_below_nothing_is_an_error(allowed: float) -> None:
    with pytest.raises(ValueError, match="at least 0 is expected"):
        steps_of(series([40.0, 39.0]), allowed_db=allowed)


def test_an_allowance_of_nothing_finds_every_change_and_an_endless_one_none() -> None:
    assert told(steps_of(series([40.0, 40.0, 40.25]), allowed_db=0.0)) == [("rise", "run03", 0.25)]
    assert steps_of(series([40.0, -40.0]), allowed_db=float("inf")) == []


def test_a_step_names_the_packages_that_changed_with_it_and_no_others() -> None:
    """torchao moves with the drop and nncf comes; torch moved the run before."""
    changes = {
        "torchao": ["0.17.0"] * 8 + ["0.18.0"] * 4,
        "nncf": [""] * 8 + ["3.4.0"] * 4,
        "torch": ["2.13.0"] * 7 + ["2.14.1"] * 5,
    }
    [step] = steps_of(series(TWELVE_THEN_LOWER, **changes))
    assert step.stack_changes == ("torchao 0.17.0 -> 0.18.0", "nncf not installed -> 3.4.0")


# Nothing there, and what is loaded


def test_no_line_is_no_step() -> None:
    assert find_steps(history.empty()) == []


def test_without_ruptures_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    assert steps_of(series([40.0, 40.0])) == []
    with pytest.raises(UsageError, match=r"ruptures.*: pip install 'sqnr-harness\[report\]'"):
        steps_of(series([40.0, 39.0]))


def test_torch_is_not_loaded() -> None:
    script = (
        "import sys, harness.verbs.remembering, harness.report.history_frames, harness.steps, ruptures\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
