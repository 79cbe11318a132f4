"""The judgement as JUnit XML, for the test pages of CI systems; needs the extra `report`.

A test suite for each case, with its decibels as properties; in it a test case for each point. The grammar is that of
Jenkins' junit-10, which also has no `skipped` at the root and no properties in a test case.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness import extra
from harness.judge import Judgement
from harness.records import Case, OutputRow
from harness.report import phrases
from harness.report.groups import Group, groups
from harness.report.order import point_order
from harness.report.text import visible
from harness.store import Run
from harness.verdicts import WORST_FIRST, Outcome, Verdict

if TYPE_CHECKING:
    import junitparser

_FAILURES = (Outcome.REGRESSED, Outcome.CHANGED)
_ERRORS = (Outcome.FAILED, Outcome.MISSING)
_STARTED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}")


def render(run: Run, judgement: Judgement) -> str:
    """XML text of a judged run. Raises `UsageError` if the extra is not installed.

    `regressed` and `changed` are failures, `failed` and `missing` errors, what is waived is skipped; `improved` and
    `new` pass and say so. Only the run as a whole is timed, in seconds.
    """
    extra.require("the JUnit report", "junitparser")
    from junitparser import JUnitXml

    root = JUnitXml(name=visible(f"sqnr {run.plan.suite}"))
    measured: dict[Case, list[OutputRow]] = {}
    for row in run.outputs:
        measured.setdefault(row.case, []).append(row)
    by_case: dict[Case, list[Group]] = {}
    for group in groups(run, judgement):
        by_case.setdefault(group.case, []).append(group)
    for case, members in sorted(by_case.items()):
        # Its own method for this compares each suite with all before it, and merges those that look alike.
        root.append(_suite(run, case, members, measured.get(case, [])))  # type: ignore[no-untyped-call]
    root.update_statistics()  # type: ignore[no-untyped-call]
    root.time = round(run.seconds, 3)
    del root._elem.attrib["skipped"]  # junitparser sets it, junit-10 does not know it
    text = io.BytesIO()
    root.write(text, pretty=True)
    return text.getvalue().decode("utf-8")


def _suite(run: Run, case: Case, members: list[Group], rows: list[OutputRow]) -> junitparser.TestSuite:
    from junitparser import TestSuite

    suite = TestSuite(visible(case))
    started = _STARTED.match(run.started)
    if started is not None:
        suite.timestamp = started[0]
    for row in sorted(rows, key=lambda row: (point_order(row.point), row.output)):
        for field, value in (("sqnr_db", row.sqnr_db), ("sqnr_min_db", row.sqnr_min_db)):
            if value is not None:
                suite.add_property(visible(f"{row.point} {row.output} {field}"), repr(float(value)))
    suite.add_testcases([_test(case, group) for group in sorted(members, key=lambda group: point_order(group.point))])
    return suite


def _test(case: Case, group: Group) -> junitparser.TestCase:
    from junitparser import Error, Failure, Skipped, TestCase

    words = (case.model, case.size, case.weights, case.flow, case.variant)
    test = TestCase(visible(group.point), visible(".".join(words)), 0.0)
    if not group.notable:
        return test
    lines = [visible(phrases.verdict(verdict)) for verdict in _worst_first(group.notable)]
    text, kind = "\n".join(lines), group.outcome.value
    if not group.waived and group.outcome not in (*_FAILURES, *_ERRORS):
        test.system_out = text
        return test
    result = (
        Skipped(visible(group.waived), kind)
        if group.waived
        else Failure(lines[0], kind)
        if group.outcome in _FAILURES
        else Error(lines[0], kind)
    )
    result.text = text
    test.result = result
    return test


def _worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return sorted(verdicts, key=lambda verdict: (bool(verdict.waived), WORST_FIRST.index(verdict.outcome)))
