"""JUnit XML: a suite for each case, a test for each row group, in the grammar that CI systems read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.judge import Judgement
from harness.records import Row
from harness.report import junit
from harness.store import Run
from tests.judgements import EVERY, HOSTILE, hostile, judged, nothing, one_of_each
from tests.rows import case, no_number, output_row, quantizer_row, repaired_row
from tests.waivers import waived

etree = pytest.importorskip("lxml.etree")
SCHEMA = etree.XMLSchema(etree.parse(str(Path(__file__).parents[1] / "data" / "junit.xsd")))

Made = tuple[Run, Judgement]


def parsed(made: Made) -> Any:
    """The root element, whose grammar has been checked."""
    root = etree.fromstring(junit.render(*made).encode("utf-8"))
    SCHEMA.assertValid(root)
    return root


def only_test(old: Sequence[Row], new: Sequence[Row]) -> Any:
    """The one test case of a judgement."""
    (test,) = parsed(judged(old, new)).iter("testcase")
    return test


# The grammar


@pytest.mark.parametrize("make", EVERY)
def test_every_judgement_gives_a_file_of_the_common_grammar(make: Callable[[], Made]) -> None:
    assert parsed(make()).tag == "testsuites"


def test_so_does_a_waived_one_and_one_that_took_hours() -> None:
    run, judgement = waived(one_of_each(), "regressed", "nan", "changed", "failed", "missing")
    run.seconds = 12345.6789
    assert parsed((run, judgement)).get("time") == "12345.679"


SUITE = '<testsuite name="a" tests="0" failures="0" errors="0"'


@pytest.mark.parametrize(
    "text",
    [
        '<testsuites skipped="0"/>',
        '<testsuite name="a" tests="0" failures="0"/>',
        f'{SUITE} time="0.1234"/>',
        f"{SUITE}><testcase/></testsuite>",
        f'{SUITE}><testcase name="a"><properties/></testcase></testsuite>',
        f'{SUITE}><properties><property name="a"/></properties></testsuite>',
        f"{SUITE}><other/></testsuite>",
    ],
)
def test_the_grammar_refuses_what_is_not_in_it(text: str) -> None:
    assert not SCHEMA.validate(etree.fromstring(text))
    assert SCHEMA.validate(etree.fromstring(f"{SUITE}/>"))


# Suites and tests


def test_a_case_is_a_suite_and_each_of_its_points_a_test() -> None:
    rows = [output_row(point=point, status="exact", sqnr_db=160.0) for point in ("float", "prepared", "converted")]
    rows += [output_row(variant="+fix"), output_row(model="vit")]
    found = {
        suite.get("name"): [test.get("name") for test in suite.iter("testcase")] for suite in parsed(judged([], rows))
    }
    assert found == {
        "resnet/small/trained x86-static": ["float", "prepared", "converted"],
        "resnet/small/trained x86-static +fix": ["converted"],
        "vit/small/trained x86-static": ["converted"],
    }


def test_the_class_is_the_case_with_dots() -> None:
    assert only_test([], [repaired_row()]).get("classname") == "resnet.small.trained.x86-static.+fix"


def test_decibels_are_exact_properties_of_the_suite_and_absent_where_there_are_none() -> None:
    rows = [output_row(sqnr_db=0.1 + 0.2, sqnr_min_db=-1e-7), no_number("mismatch", point="lowered")]
    (suite,) = parsed(judged([], rows))
    assert [(item.get("name"), item.get("value")) for item in suite.iter("property")] == [
        ("converted logits sqnr_db", "0.30000000000000004"),
        ("converted logits sqnr_min_db", "-1e-07"),
    ]


def test_the_run_is_timed_as_a_whole_and_dated_in_utc() -> None:
    run, judgement = one_of_each()
    run.seconds = 1.5
    root = parsed((run, judgement))
    assert (root.get("name"), root.get("time")) == ("sqnr gate", "1.5")
    assert [(suite.get("time"), suite.get("timestamp")) for suite in root] == [("0.0", "2026-01-31T12:00:00")]
    assert {test.get("time") for test in root.iter("testcase")} == {"0.0"}


# Results


def test_as_accepted_passes_without_a_word() -> None:
    assert len(only_test([output_row()], [output_row()])) == 0


@pytest.mark.parametrize(
    ("old", "new", "tag", "kind", "message"),
    [
        (
            output_row(),
            output_row(sqnr_db=24.0),
            "failure",
            "regressed",
            "SQNR 24.00 dB, baseline 30.00 dB, allowed drop",
        ),
        (output_row(), output_row(numel=1), "failure", "changed", "numel 1, baseline 100"),
        (output_row(), no_number("failed:lower", error="boom"), "error", "failed", "failed:lower: boom"),
        (output_row(), None, "error", "missing", "in the baseline, not measured"),
    ],
)
def test_what_is_worse_is_a_failure_and_what_is_not_known_an_error(
    old: Row, new: Row | None, tag: str, kind: str, message: str
) -> None:
    (result,) = only_test([old], [new] if new else [])
    assert (result.tag, result.get("type")) == (tag, kind)
    assert f"{case()} converted logits: {message}" in result.get("message")
    assert result.text == result.get("message")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ([output_row()], output_row(sqnr_db=40.0), "SQNR 40.00 dB, baseline 30.00"),
        ([], output_row(), "new, not in the"),
    ],
)
def test_better_and_new_pass_and_say_so(old: list[Row], new: Row, text: str) -> None:
    (output,) = only_test(old, [new])
    assert output.tag == "system-out"
    assert text in output.text


def test_the_message_is_the_worst_finding_and_the_text_has_all_of_them() -> None:
    ((result,),) = parsed(one_of_each()).iter("testcase")
    lines = result.text.splitlines()
    assert [line.split("converted ")[1].split(":")[0] for line in lines] == [
        "nan", "regressed", "changed", "failed", "missing", "improved", "new"
    ]  # fmt: skip
    assert result.get("message") == lines[0]


def test_quantizers_are_findings_of_their_group() -> None:
    (result,) = only_test([output_row(), quantizer_row(hi=1.0)], [output_row(), quantizer_row(hi=2.0)])
    assert (result.tag, result.get("type")) == ("failure", "changed")
    assert "conv1:conv2d:0:input: upper bound 2, baseline 1" in result.text


def test_a_group_that_is_waived_is_skipped_with_the_reason() -> None:
    made = waived(judged([output_row()], [output_row(sqnr_db=1.0)]), "logits")
    ((result,),) = parsed(made).iter("testcase")
    assert (result.tag, result.get("message"), result.get("type")) == ("skipped", "issue 7", "regressed")
    assert "SQNR 1.00 dB" in result.text


def test_a_waived_row_beside_one_that_counts_comes_after_it() -> None:
    old = [output_row(output=name) for name in "ab"]
    made = waived(judged(old, [output_row(output="a", sqnr_db=1.0), output_row(output="b", numel=1)]), "a")
    ((result,),) = parsed(made).iter("testcase")
    assert (result.tag, result.get("type")) == ("failure", "changed")
    first, second = result.text.splitlines()
    assert first.endswith("converted b: numel 1, baseline 100")
    assert second.endswith("(waived: issue 7)")


# Counts


def test_counts_are_those_of_the_tests() -> None:
    levels = {"ok": 30.0, "worse": 1.0, "waived": 1.0, "better": 40.0}
    old = [output_row(output=name, model=name) for name in (*levels, "gone")]
    new = [output_row(output=name, model=name, sqnr_db=level) for name, level in levels.items()]
    root = parsed(waived(judged(old, new), "waived"))
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["5", "1", "1"]
    counts = {
        suite.get("name").split("/")[0]: [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
        for suite in root
    }
    assert counts == {
        "ok": ["1", "0", "0", "0"],
        "better": ["1", "0", "0", "0"],
        "worse": ["1", "1", "0", "0"],
        "gone": ["1", "0", "1", "0"],
        "waived": ["1", "0", "0", "1"],
    }


def test_without_rows_there_are_no_suites() -> None:
    root = parsed(nothing())
    assert (len(root), root.get("tests")) == (0, "0")


# Names


def test_names_come_back_as_they_are_but_for_what_is_not_seen() -> None:
    (suite,) = parsed(hostile())
    names = {item.get("name") for item in suite.iter("property")}
    shown = {name.replace("\n", " ").replace("\u202e", "\\u202e") for name in HOSTILE}
    assert names == {f"converted {name} {field}" for name in shown for field in ("sqnr_db", "sqnr_min_db")}


@pytest.mark.parametrize(
    ("sign", "shown"), [("\x00", r"\x00"), ("\x1b", r"\x1b"), ("\ud800", r"\ud800"), ("\uffff", r"\uffff")]
)
def test_characters_that_xml_has_no_place_for_are_escaped(sign: str, shown: str) -> None:
    (result,) = only_test([output_row()], [no_number("failed:lower", error=f"a{sign}b")])
    assert f"failed:lower: a{shown}b" in result.text
    (suite,) = parsed(judged([], [output_row(model=sign, output=sign)]))
    assert suite.get("name") == f"{shown}/small/trained x86-static"


def test_two_cases_that_look_alike_stay_two_suites() -> None:
    assert len(parsed(judged([], [output_row(model="a b"), output_row(model="a\nb")]))) == 2
