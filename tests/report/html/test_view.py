"""What the page says of cases and failures, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records import Case, Row
from harness.report.groups import groups
from harness.report.html.view import CaseView, Failure, anchors, case_order, case_views, failures
from tests.judgements import judged
from tests.rows import case, no_number, output_row, quantizer_row

LONG = "x" * 10_000


def views(old: list[Row], new: list[Row]) -> dict[str, list[CaseView]]:
    found = groups(*judged(old, new))
    return case_views(found, anchors(group.case for group in found))


def failed(old: list[Row], new: list[Row], logs: Path | None = None) -> list[Failure]:
    run, judgement = judged(old, new)
    run.folder = logs or run.folder
    found = groups(run, judgement)
    return failures(run, found, anchors(group.case for group in found))


# Addresses


def test_an_address_reads_like_its_case() -> None:
    fixed = case(variant="+a+b")
    assert anchors([case(), fixed]) == {
        case(): "case-resnet-small-trained-x86-static",
        fixed: "case-resnet-small-trained-x86-static-with-a-with-b",
    }


@pytest.mark.parametrize(
    "names",
    [
        ("a b", "a-b", "a.b", "A B"),
        ("", " ", "+", "模型"),
        (LONG, LONG + "1", LONG + "2"),
        ("a", "a--1", "a--2", "a -1"),
        ('"><script>', "&quot;", "#", "%41"),
    ],
    ids=["signs", "none", "long", "numbered", "markup"],
)
def test_addresses_are_distinct_and_plain_whatever_the_names(names: tuple[str, ...]) -> None:
    found = anchors(case(model=name, flow=name) for name in names)
    assert len(found) == len(set(found.values())) == len(names)
    for address in found.values():
        assert set(address) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert address.startswith("case-")
        assert len(address) < 200


def test_a_case_has_one_address_however_often_it_is_named_and_in_whatever_order() -> None:
    cases = [case(flow="a b"), case(flow="a-b")]
    assert anchors(cases) == anchors([*reversed(cases), *cases])


# Cases


def test_cases_stand_by_model_in_natural_order_released_first() -> None:
    rows: list[Row] = [
        output_row(model="m10"), output_row(model="m2", variant="+b"), output_row(model="m2", variant="+a+b"),
        output_row(model="m2"), output_row(model="m2", flow="x86-dynamic"),
    ]  # fmt: skip
    found = views(rows, rows)
    assert list(found) == ["m2/small/trained", "m10/small/trained"]
    assert [(view.flow, view.variant) for view in found["m2/small/trained"]] == [
        ("x86-dynamic", "released"), ("x86-static", "released"), ("x86-static", "+b"), ("x86-static", "+a+b")
    ]  # fmt: skip
    assert sorted([Case("m10", "s", "t", "f"), Case("m2", "s", "t", "f")], key=case_order)[0].model == "m2"


def test_a_case_is_as_bad_as_its_worst_point_and_is_told_by_its_last() -> None:
    old: list[Row] = [output_row(point=point) for point in ("lowered", "converted")]
    [[view]] = views(old, [output_row(point="lowered", sqnr_db=29.9), output_row(sqnr_db=10.0)]).values()
    assert (view.sign, view.outcome, view.headline) == ("✗", "regressed", "logits 29.90 dB")
    assert [(level.point, level.outcome) for level in view.levels] == [("converted", "regressed"), ("lowered", "ok")]


def test_a_level_says_before_after_and_the_accepted_noise_floor() -> None:
    [[view]] = views([output_row(noise_db=0.0625)], [output_row(sqnr_db=24.5, cause="clipping")]).values()
    [level] = view.levels
    assert (level.before, level.after, level.delta, level.noise) == ("30.00 dB", "24.50 dB", "-5.50", "0.062")
    assert (level.worst, level.error, level.accuracy, level.cause) == ("20.00 dB", "0.25", "90.00 %", "clipping")


def test_a_level_without_a_number_says_why() -> None:
    old: list[Row] = [output_row(status="exact", sqnr_db=160.0)]
    [[view]] = views(old, [no_number("nonfinite_actual")]).values()
    [level] = view.levels
    assert (level.before, level.after, level.delta, level.accuracy) == ("exact", "nonfinite_actual", "", "")


def test_an_output_that_vanished_is_told_by_what_it_was() -> None:
    [[view]] = views([output_row(), output_row(output="boxes")], [output_row()]).values()
    assert [(level.output, level.before, level.after) for level in view.levels] == [
        ("boxes", "30.00 dB", "-"), ("logits", "30.00 dB", "30.00 dB")
    ]  # fmt: skip


def test_findings_are_those_of_outputs_and_then_of_quantizers_with_what_is_allowed() -> None:
    names = [f"q{number}" for number in range(29)]
    old = [quantizer_row(quantizer=name, hi=2.0) for name in names]
    new = [quantizer_row(quantizer=name, hi=1.0) for name in names]
    [[view]] = views([output_row(), *old], [output_row(sqnr_db=20.0), *new]).values()
    assert view.findings[:2] == (
        "✗ converted logits: SQNR 20.00 dB, baseline 30.00 dB, allowed drop 0.50 dB",
        "≠ converted q0: upper bound 1, baseline 2, allowed change 0.001 of its size",
    )
    assert (len(view.findings), view.more) == (25, 5)


# Failures


def test_points_and_variants_that_failed_alike_are_one_failure() -> None:
    new = [
        no_number("failed:lower", point=point, variant=variant, error="boom")
        for point in ("lowered", "converted") for variant in ("+a", "released")
    ]  # fmt: skip
    [failure] = failed([], [*new])
    assert (failure.case, failure.others) == ("resnet/small/trained x86-static", ("+a",))
    assert (failure.points, failure.stage, failure.error) == ("converted, lowered", "lower", "boom")
    assert failure.anchor == "case-resnet-small-trained-x86-static"


def test_other_stages_errors_and_flows_are_failures_of_their_own() -> None:
    new = [
        no_number("failed:lower", output="a", error="boom"),
        no_number("failed:lower", output="b", error="bang"),
        no_number("failed:export", output="c", error="boom"),
        no_number("failed:lower", flow="x86-dynamic", error="boom"),
    ]
    assert [(failure.case.split()[-1], failure.stage, failure.error) for failure in failed([], [*new])] == [
        ("x86-dynamic", "lower", "boom"),
        ("x86-static", "export", "boom"),
        ("x86-static", "lower", "bang"),
        ("x86-static", "lower", "boom"),
    ]


def test_known_failures_come_last() -> None:
    known: list[Row] = [no_number("failed:lower", model="a", error="as ever")]
    found = failed(known, [*known, no_number("failed:lower", model="b", error="boom")])
    assert [(failure.known, failure.error) for failure in found] == [(False, "boom"), (True, "as ever")]


def test_a_failure_comes_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "000-resnet-small.log").write_text("first\n  second\n", encoding="utf-8")
    [failure] = failed([], [no_number("failed:lower", error="boom")], tmp_path)
    assert failure.log == ("first", "  second")


def test_outputs_that_are_not_finite_are_no_failed_stage() -> None:
    assert failed([output_row()], [no_number("nonfinite_actual")]) == []
