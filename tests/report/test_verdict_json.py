"""verdict.json: valid JSON for programs, with every row that is not ok."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.judge import Judgement
from harness.report import verdict_json
from harness.store import Run
from harness.verdicts import Outcome
from tests.judgements import EVERY, HOSTILE, hostile, judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row, repaired_row

Made = tuple[Run, Judgement]


def load(made: Made) -> dict[str, Any]:
    """The parsed text; NaN and Infinity, which JSON does not know, are an error."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    content: dict[str, Any] = json.loads(verdict_json.render(*made), parse_constant=refuse)
    return content


@pytest.mark.parametrize("make", EVERY)
def test_it_is_json_and_lists_every_row_that_is_not_ok(make: Callable[[], Made]) -> None:
    run, judgement = make()
    listed = [(item["kind"], item["name"], item["outcome"]) for item in load((run, judgement))["verdicts"]]
    assert listed == [(v.kind, v.name, v.outcome.value) for v in judgement.verdicts if v.outcome is not Outcome.OK]


def test_it_counts_each_outcome_and_gives_the_exit_code_and_its_name() -> None:
    content = load(one_of_each())
    assert content["counts"] == {
        "ok": 1, "improved": 1, "regressed": 2, "changed": 1, "new": 1, "missing": 1, "failed": 1
    }  # fmt: skip
    assert (content["exit_code"], content["outcome"]) == (1, "regressed")
    assert (content["run"], content["suite"]) == ("20260131-120000-gate", "gate")


def test_an_infinite_loss_is_null() -> None:
    (item,) = load(judged([output_row()], [no_number("nonfinite_actual")]))["verdicts"]
    assert item["loss_db"] is None
    assert item["findings"] == [
        {"field": "status", "old": "measured", "new": "nonfinite_actual", "allowed": None, "limit": None}
    ]


def test_numbers_are_exact() -> None:
    (item,) = load(judged([output_row(sqnr_db=30.0)], [output_row(sqnr_db=0.1 + 0.2)]))["verdicts"]
    assert item["findings"] == [
        {"field": "sqnr_db", "old": 30.0, "new": 0.30000000000000004, "allowed": 0.5, "limit": None}
    ]


def test_a_verdict_names_its_case() -> None:
    (item,) = load(judged([output_row()], []))["verdicts"]
    assert [item[name] for name in ("model", "size", "weights", "flow", "variant")] == [
        "resnet", "small", "trained", "x86-static", "released"
    ]  # fmt: skip


def test_a_variants_verdict_names_the_point_and_what_its_fix_did() -> None:
    (item,) = load(judged([repaired_row(point="lowered")], [repaired_row(point="lowered", fix_state="inert")]))[
        "verdicts"
    ]
    assert (item["variant"], item["point"], item["name"], item["outcome"]) == ("+fix", "lowered", "logits", "changed")
    assert item["findings"] == [{"field": "fix_state", "old": "needed", "new": "inert", "allowed": None, "limit": None}]


def test_a_broken_floor_is_given_as_a_limit() -> None:
    (item,) = load(judged([], [repaired_row(sqnr_db=4.0)]))["verdicts"]
    (finding,) = item["findings"]
    assert (finding["old"], finding["new"], finding["limit"], item["loss_db"]) == (None, 4.0, 10.0, 6.0)


def test_nothing_measured_is_exit_code_5() -> None:
    content = load(nothing())
    assert (content["exit_code"], content["verdicts"], content["coverage"]) == (5, [], {})


def test_coverage_counts_weights_and_names_those_left_in_float() -> None:
    weights = [quantizer_row(quantizer=name, role="weight") for name in "ab"]
    rest = quantizer_row(quantizer="c", role="weight", status="unquantized")
    content = load(judged([], [*weights, rest, quantizer_row(quantizer="d", role="activation")]))
    assert content["coverage"] == {
        "resnet/small/trained x86-static": {"quantized": 2, "quantizable": 3, "in_float": ["c"]}
    }


def test_odd_names_come_through_as_they_are() -> None:
    names = {item["name"] for item in load(hostile())["verdicts"] if item["kind"] == "quantizer"}
    assert names == set(HOSTILE)
