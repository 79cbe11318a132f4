"""Row groups: the rows of one case at one point, with what became of them as one thing."""

from __future__ import annotations

from dataclasses import replace

from harness.judge import Judgement
from harness.report.groups import Group, groups
from harness.store import Run
from harness.verdicts import Outcome
from tests.judgements import judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row
from tests.waivers import waived


def only(made: tuple[Run, Judgement]) -> Group:
    (group,) = groups(*made)
    return group


def test_rows_of_one_case_and_point_are_a_group_and_every_row_is_in_one() -> None:
    rows = [output_row(point=point) for point in ("float", "converted", "lowered")]
    rows += [output_row(model="vit"), output_row(variant="+fix")]
    found = groups(*judged([], [*rows, quantizer_row()]))
    assert sorted((group.case.model, group.case.variant, group.point) for group in found) == [
        ("resnet", "+fix", "converted"),
        ("resnet", "released", "converted"),
        ("resnet", "released", "float"),
        ("resnet", "released", "lowered"),
        ("vit", "released", "converted"),
    ]
    assert sum(len(group.verdicts) for group in found) == 6


def test_without_rows_there_are_no_groups() -> None:
    assert groups(*nothing()) == []


def test_each_row_is_paired_with_its_accepted_one_and_an_absent_side_is_none() -> None:
    old = [output_row(output="both"), output_row(output="gone"), quantizer_row(hi=1.0)]
    new = [output_row(output="both", sqnr_db=31.0), output_row(output="come"), quantizer_row(hi=2.0)]
    group = only(judged(old, new))
    sides = {
        pair.verdict.name: (pair.old and pair.old.sqnr_db, pair.new and pair.new.sqnr_db) for pair in group.outputs
    }
    assert sides == {"both": (30.0, 31.0), "gone": (30.0, None), "come": (None, 30.0)}
    assert [(pair.old and pair.old.hi, pair.new and pair.new.hi) for pair in group.quantizers] == [(1.0, 2.0)]


def test_an_output_and_a_quantizer_of_one_name_are_two_rows() -> None:
    group = only(judged([], [output_row(output="x"), quantizer_row(quantizer="x")]))
    assert (len(group.outputs), len(group.quantizers)) == (1, 1)
    assert [verdict.kind for verdict in group.verdicts] == ["output", "quantizer"]


def test_notable_are_the_rows_that_are_not_ok_and_the_worst_of_them_is_the_groups_outcome() -> None:
    group = only(one_of_each())
    assert "ok" not in [verdict.name for verdict in group.notable]
    assert len(group.notable) == 7
    assert group.outcome is Outcome.REGRESSED


def test_a_group_as_accepted_is_ok_and_nothing_in_it_is_waived() -> None:
    group = only(judged([output_row()], [output_row()]))
    assert (group.outcome, group.notable, group.waived) == (Outcome.OK, (), "")


def test_a_waived_row_does_not_decide_while_another_counts() -> None:
    old = [output_row(output="a"), output_row(output="b")]
    made = judged(old, [output_row(output="a", sqnr_db=1.0), output_row(output="b", sqnr_db=40.0)])
    group = only(waived(made, "a"))
    assert (group.outcome, group.waived) == (Outcome.IMPROVED, "")


def test_a_group_whose_every_notable_row_is_waived_is_waived_with_the_reason_and_keeps_its_outcome() -> None:
    made = judged([output_row(), quantizer_row()], [output_row(sqnr_db=1.0), quantizer_row()])
    group = only(waived(made, "logits"))
    assert (group.outcome, group.waived) == (Outcome.REGRESSED, "issue 7")


def test_the_worst_group_comes_first_and_waived_ones_last() -> None:
    points = ("float", "prepared", "converted", "lowered")
    old = [output_row(point=point, model=model, sqnr_db=130.0) for point in points for model in ("a", "b")]
    new = [row for row in old if row.model == "b" or row.point == "float"]
    new = [replace(row, sqnr_db=1.0) if row.model == "b" and row.point != "float" else row for row in new]
    run, judgement = judged(old, new)
    verdicts = (
        replace(v, waived="w") if v.point == "lowered" and v.case.model == "b" else v for v in judgement.verdicts
    )
    found = groups(run, replace(judgement, verdicts=tuple(verdicts)))
    assert [(group.outcome.value, bool(group.waived)) for group in found] == [
        ("regressed", False),
        ("regressed", False),
        ("missing", False),
        ("missing", False),
        ("missing", False),
        ("ok", False),
        ("ok", False),
        ("regressed", True),
    ]


def test_within_an_outcome_the_largest_loss_comes_first() -> None:
    losses = {"small": 29.0, "all": None, "large": 10.0}
    old = [output_row(model=model) for model in losses]
    new = [
        output_row(model=model, sqnr_db=level) if level else no_number("nonfinite_actual", model=model)
        for model, level in losses.items()
    ]
    assert [group.case.model for group in groups(*judged(old, new))] == ["all", "large", "small"]
