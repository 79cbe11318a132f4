"""verdict.json: valid JSON for programs, as its schema says, with every row that is not ok."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from harness.errors import (
    ConfigError,
    ExitCode,
    InterruptedRunError,
    NoBaselineError,
    NothingMeasuredError,
    SqnrError,
    TableError,
)  # fmt: skip
from harness.judge import Before, Judgement
from harness.report import verdict_json
from harness.store import Run
from harness.verdicts import Outcome
from tests.judgements import EVERY, HOSTILE, hostile, judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row, repaired_row
from tests.waivers import waived

Made = tuple[Run, Judgement]
VALIDATOR = jsonschema.Draft202012Validator(verdict_json.schema())


def load(made: Made) -> dict[str, Any]:
    """The parsed text; NaN and Infinity, which JSON does not know, are an error."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    content: dict[str, Any] = json.loads(verdict_json.render(*made), parse_constant=refuse)
    VALIDATOR.validate(content)
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


def test_it_names_what_the_run_is_judged_by() -> None:
    run, judgement = one_of_each()
    assert load((run, judgement))["base"] == "baseline linux-x86_64"
    assert load((run, replace(judgement, before=Before())))["base"] == ""


def test_rows_of_one_case_and_point_share_a_likely_cause() -> None:
    old = [output_row(), output_row(point="lowered"), quantizer_row(hi=1.0)]
    new = [output_row(sqnr_db=1.0), output_row(point="lowered"), quantizer_row(hi=2.0)]
    assert [item["cause"] for item in load(judged(old, new))["verdicts"]] == [
        "the range of conv1:conv2d:0:input is 2 times as wide"
    ] * 2


def test_a_waived_row_says_why_and_is_counted() -> None:
    content = load(waived(judged([output_row()], [output_row(sqnr_db=1.0)]), "logits"))
    assert (content["waived"], content["verdicts"][0]["waived"]) == (1, "issue 7")


# The schema


def test_the_schema_is_one_and_ends_with_the_version_of_the_format() -> None:
    schema = verdict_json.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:sqnr-harness:verdict:{verdict_json.SCHEMA}"
    assert schema["$defs"]["schema"]["const"] == verdict_json.SCHEMA


def test_every_object_of_ours_is_closed_and_every_property_has_a_title() -> None:
    def objects(part: Any) -> Any:
        if isinstance(part, dict):
            if "properties" in part:
                yield part
            for inner in part.values():
                yield from objects(inner)

    definitions = verdict_json.schema()["$defs"]
    found = list(objects(verdict_json.schema()))
    assert len(found) == 7
    for part in found:
        if "stack" not in part["properties"]:  # the environment is as some other version may have recorded it
            assert part["additionalProperties"] is False
            assert sorted(part["required"]) == sorted(part["properties"])
        for name, value in part["properties"].items():
            referred = definitions.get(value.get("$ref", "").rpartition("/")[2], {})
            assert "title" in value or "title" in referred or referred == definitions["count"], name


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("x"), TableError("x"), NoBaselineError("x"), NothingMeasuredError("x"), InterruptedRunError("x"),
        SqnrError("a\ud800"),
    ],
)  # fmt: skip
def test_a_run_that_could_not_be_judged_says_why_in_the_same_schema(error: SqnrError) -> None:
    run, _ = nothing()
    content = json.loads(verdict_json.render_error(run, error))
    VALIDATOR.validate(content)
    assert (content["error"], content["exit_code"]) == (str(error), int(error.exit_code))


def test_every_code_that_a_judgement_can_end_with_is_in_the_schema() -> None:
    run, judgement = one_of_each()
    for code in (
        ExitCode.OK, ExitCode.REGRESSED, ExitCode.STALE, ExitCode.INCOMPLETE, ExitCode.NOTHING_MEASURED
    ):  # fmt: skip
        assert load((run, replace(judgement, exit_code=code)))["outcome"] == code.name.lower()


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another version": lambda content: content.update(schema=1),
    "an unknown property": lambda content: content.update(extra=1),
    "no base": lambda content: content.pop("base"),
    "an unknown exit code": lambda content: content.update(exit_code=7),
    "judged and an error": lambda content: content.update(error="x"),
    "a negative count": lambda content: content["counts"].update(ok=-1),
    "an unknown outcome": lambda content: content["counts"].update(good=1),
    "an ok row": lambda content: content["verdicts"][0].update(outcome="ok"),
    "a verdict without a point": lambda content: content["verdicts"][0].pop("point"),
    "an unknown point": lambda content: content["verdicts"][0].update(point="fused"),
    "an unknown kind": lambda content: content["verdicts"][0].update(kind="layer"),
    "a loss in words": lambda content: content["verdicts"][0].update(loss_db="6 dB"),
    "a finding without a field": lambda content: content["verdicts"][0]["findings"][0].pop("field"),
    "a negative tolerance": lambda content: content["verdicts"][0]["findings"][0].update(allowed=-0.5),
    "a value that is a list": lambda content: content["verdicts"][0]["findings"][0].update(new=[1.0]),
    "coverage without names": lambda content: next(iter(content["coverage"].values())).pop("in_float"),
    "a version that is a number": lambda content: content["environment"]["stack"].update(torchao=0.18),
    "notes in one text": lambda content: content.update(notes="x"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_schema_refuses(wrong: str) -> None:
    content = load(judged([output_row()], [output_row(sqnr_db=1.0), quantizer_row(role="weight")]))
    broken = deepcopy(content)
    WRONG[wrong](broken)
    assert VALIDATOR.is_valid(content)
    assert not VALIDATOR.is_valid(broken)
