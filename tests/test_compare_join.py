"""Joining two sides: each row gets one verdict; waivers, overrides, order, exit codes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compare import exit_code
from harness.errors import ExitCode
from harness.records import Row
from harness.verdicts import Outcome, Verdict
from tests.judging import CHANGED, FAILED, IMPROVED, MISSING, NEW, OK, REGRESSED, TODAY, fields_of, judge, judge_all
from tests.rows import case, no_number, output_row, quantizer_row, settings_from

YESTERDAY, TOMORROW = TODAY.replace(day=30), TODAY.replace(month=2, day=1)

ROWS = st.lists(
    st.builds(
        lambda make, name, **key: make(**{"output" if make is output_row else "quantizer": name, **key}),
        st.sampled_from([output_row, quantizer_row]),
        st.text(max_size=2),
        model=st.sampled_from(["resnet", "vit"]),
        variant=st.sampled_from(["released", "+a", "+a+b"]),
        point=st.sampled_from(["converted", "lowered"]),
    ),
    max_size=6,
    unique_by=lambda row: (type(row), row.key),
)


@given(ROWS, ROWS)
def test_a_row_on_either_side_always_yields_exactly_one_verdict(old: list[Row], new: list[Row]) -> None:
    verdicts = judge_all(old, new)
    expected = {(type(row), row.key) for row in (*old, *new)}
    assert len(verdicts) == len(expected)
    assert len({(verdict.case, verdict.kind, verdict.label) for verdict in verdicts}) == len(expected)


@given(ROWS)
def test_a_run_compared_with_itself_is_ok_throughout(rows: list[Row]) -> None:
    verdicts = judge_all(rows, rows)
    assert [verdict.outcome for verdict in verdicts] == [OK] * len(rows)
    assert exit_code(verdicts) == (ExitCode.OK if rows else ExitCode.NOTHING_MEASURED)


@given(ROWS, ROWS)
def test_the_order_of_the_rows_does_not_matter(old: list[Row], new: list[Row]) -> None:
    assert judge_all(old, new) == judge_all(old[::-1], new[::-1])


def test_baseline_rows_out_of_scope_are_left_alone_but_measured_ones_never_are() -> None:
    rows = [output_row(), quantizer_row()]
    assert judge_all(rows, [], in_scope=lambda _row: False) == []
    assert len(judge_all([], rows, in_scope=lambda _row: False)) == 2
    in_scope = judge_all([*rows, output_row(model="vit")], [], in_scope=lambda row: row.model == "vit")
    assert [(verdict.case.model, verdict.outcome) for verdict in in_scope] == [("vit", MISSING)]


def test_the_worst_comes_first() -> None:
    old = {name: output_row(output=name) for name in ("ok", "improved", "lost 1", "lost 9", "changed", "missing")}
    new = {
        "ok": old["ok"],
        "improved": replace(old["improved"], sqnr_db=40.0),
        "lost 1": replace(old["lost 1"], sqnr_db=29.0),
        "lost 9": replace(old["lost 9"], sqnr_db=21.0),
        "changed": replace(old["changed"], numel=1),
        "new": output_row(output="new"),
        "failed": no_number("failed:export", output="failed"),
        "nan": no_number("nonfinite_actual", output="nan"),
    }
    names = [verdict.name for verdict in judge_all(list(old.values()), list(new.values()))]
    assert names == ["nan", "lost 9", "lost 1", "changed", "failed", "missing", "improved", "new", "ok"]


def test_equally_bad_rows_are_in_the_order_of_their_cases() -> None:
    rows = [output_row(model=model, flow=flow) for model in ("vit", "bert") for flow in ("x86-static", "arm")]
    cases = [verdict.case for verdict in judge_all([], rows)]
    assert cases == sorted(cases)


# Overrides


def override(**item: Any) -> dict[str, Any]:
    return {"settings": settings_from(override=[{"reason": "jittery", **item}])}


@pytest.mark.parametrize(
    ("pattern", "outcome"),
    [
        ({"model": "resnet"}, OK),
        ({"model": "res*", "flow": "x86-*", "point": "converted", "output": "logits"}, OK),
        ({"model": "vit"}, REGRESSED),
        ({"output": "loss"}, REGRESSED),
        ({"point": "lowered"}, REGRESSED),
        ({"quantizer": "logits"}, REGRESSED),
    ],
)
def test_an_override_covers_the_rows_all_of_its_patterns_fit(pattern: dict[str, str], outcome: Outcome) -> None:
    options = override(tolerance={"sqnr_drop_db": 2.0}, **pattern)
    assert judge(output_row(sqnr_db=30.0), output_row(sqnr_db=28.0), **options).outcome is outcome


def test_an_override_goes_over_the_suite_and_a_later_one_over_an_earlier_one() -> None:
    items = [{"reason": "jittery", "tolerance": {"sqnr_drop_db": db}} for db in (9.0, 2.0)]
    options = {"settings": settings_from(override=items), "suite": "nightly"}
    assert judge(output_row(sqnr_db=30.0), output_row(sqnr_db=28.0), **options).outcome is OK
    assert judge(output_row(sqnr_db=30.0), output_row(sqnr_db=27.0), **options).outcome is REGRESSED


def test_an_override_leaves_the_other_tolerances_as_they_are() -> None:
    options = override(tolerance={"sqnr_drop_db": 20.0})
    verdict = judge(output_row(), output_row(sqnr_db=15.0, sqnr_min_db=10.0), **options)
    assert fields_of(verdict) == ["sqnr_min_db"]


def test_an_override_of_a_quantizer_covers_its_bounds_and_no_output() -> None:
    options = override(quantizer="conv1*", tolerance={"bound_rel": 0.5, "sqnr_drop_db": 9.0})
    assert judge(quantizer_row(hi=1.0), quantizer_row(hi=1.4), **options).outcome is OK
    assert judge(output_row(sqnr_db=30.0), output_row(sqnr_db=28.0), **options).outcome is REGRESSED


def test_an_override_of_a_point_covers_its_outputs_and_its_quantizers() -> None:
    options = override(point="low*", tolerance={"bound_rel": 0.5, "sqnr_drop_db": 9.0})
    for point, outcomes in (("lowered", [OK, OK]), ("converted", [CHANGED, REGRESSED])):
        bounds = judge(*(quantizer_row(point=point, hi=hi) for hi in (1.0, 1.4)), **options)
        level = judge(*(output_row(point=point, sqnr_db=db) for db in (30.0, 28.0)), **options)
        assert [bounds.outcome, level.outcome] == outcomes


@pytest.mark.parametrize(("until", "outcome"), [(YESTERDAY, REGRESSED), (TODAY, OK), (TOMORROW, OK)])
def test_an_override_applies_to_its_last_day_and_no_longer(until: Any, outcome: Outcome) -> None:
    options = override(until=until, tolerance={"sqnr_drop_db": 2.0})
    assert judge(output_row(sqnr_db=30.0), output_row(sqnr_db=28.0), **options).outcome is outcome


# Waivers

BROKEN = no_number("nonfinite_actual")


def waived(**item: Any) -> dict[str, Any]:
    return {"settings": settings_from(waive=[{"reason": "issue 7", **item}])}


def test_a_waived_row_keeps_its_outcome_shows_the_reason_and_does_not_fail() -> None:
    verdict = judge(output_row(), BROKEN, **waived(model="resnet"))
    assert (verdict.outcome, verdict.waived) == (REGRESSED, "issue 7")
    assert exit_code([verdict]) == ExitCode.OK


def test_what_is_not_waived_still_fails() -> None:
    verdicts = judge_all([], [BROKEN, replace(BROKEN, model="vit")], **waived(model="resnet"))
    assert [(verdict.case.model, verdict.waived) for verdict in verdicts] == [("resnet", "issue 7"), ("vit", "")]
    assert exit_code(verdicts) == ExitCode.REGRESSED


@pytest.mark.parametrize(("until", "reason"), [(YESTERDAY, ""), (TODAY, "issue 7"), (TOMORROW, "issue 7")])
def test_a_waiver_applies_to_its_last_day_and_no_longer(until: Any, reason: str) -> None:
    assert judge(output_row(), BROKEN, **waived(until=until)).waived == reason


def test_a_row_that_is_ok_is_not_marked_as_waived() -> None:
    assert judge(output_row(), output_row(), **waived(model="*")).waived == ""


def test_a_missing_row_can_be_waived_and_a_waived_improvement_is_not_stale() -> None:
    for verdict in (
        judge(output_row(), None, **waived(model="resnet")),
        judge(output_row(sqnr_db=30.0), output_row(sqnr_db=40.0), **waived(model="resnet")),
    ):
        assert exit_code([verdict]) == ExitCode.OK


# Exit codes

CODES = {OK: 0, REGRESSED: 1, CHANGED: 1, FAILED: 4, MISSING: 4, IMPROVED: 3, NEW: 3}


def verdicts_of(*outcomes: Outcome) -> list[Verdict]:
    return [Verdict(case(), "output", "converted", str(number), outcome) for number, outcome in enumerate(outcomes)]


@pytest.mark.parametrize(("outcome", "code"), CODES.items())
def test_each_outcome_has_its_exit_code(outcome: Outcome, code: int) -> None:
    assert exit_code(verdicts_of(outcome)) == code
    assert exit_code(verdicts_of(OK, outcome, OK)) == code


def test_no_verdict_at_all_means_that_nothing_was_measured() -> None:
    assert exit_code([]) == 5


@pytest.mark.parametrize(("one", "other"), itertools.permutations(CODES, 2))
def test_of_two_outcomes_a_regression_goes_before_a_gap_and_a_gap_before_staleness(
    one: Outcome, other: Outcome
) -> None:
    precedence = [1, 4, 3, 0]
    expected = min(CODES[one], CODES[other], key=precedence.index)
    assert exit_code(verdicts_of(one, other)) == expected
