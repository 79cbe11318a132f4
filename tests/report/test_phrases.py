"""Numbers as people read them, and verdicts as one line."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report import phrases
from harness.verdicts import Finding, Outcome, Verdict
from tests.judging import judge
from tests.rows import case, no_number, output_row, quantizer_row, repaired_row


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("sqnr_db", 24.096, "24.10 dB"),
        ("sqnr_db", -4.3, "-4.30 dB"),
        ("noise_db", 0.0, "0.00 dB"),
        ("sqnr_db", 9999.99, "9999.99 dB"),
        ("sqnr_db", 10000.0, "1.00e+04 dB"),
        ("sqnr_db", -1e300, "-1.00e+300 dB"),
        ("task_metric", 1e300, "1.00e+302 %"),
        ("task_metric", 0.97222, "97.22 %"),
        ("clip_fraction", 0.001, "0.10 %"),
        ("hi", 0.5833333333, "0.583333"),
        ("hi", 1e-9, "1e-09"),
        ("numel", 1797, "1797"),
        ("axis", 0, "0"),
        ("status", "failed:export", "failed:export"),
        ("dtype", "", "none"),
        ("quantize_nodes", 12, "12"),
        ("fix_state", "not installed", "not installed"),
        ("fix_state", "", "none"),
        ("sqnr_db", None, "none"),
    ],
)
def test_numbers_are_rounded_with_their_unit(field: str, value: Any, text: str) -> None:
    assert phrases.number(field, value) == text


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("sqnr_db", 31.7, 24.1, 0.5), "SQNR 24.10 dB, baseline 31.70 dB, allowed drop 0.50 dB"),
        (Finding("sqnr_min_db", 20, None, 1.5), "worst SQNR none, baseline 20.00 dB, allowed drop 1.50 dB"),
        (Finding("task_metric", 0.9, 0.8, 0.01), "top-1 80.00 %, baseline 90.00 %, allowed drop 1.00 %"),
        (Finding("hi", 1.0, 0.5833333, 1e-3), "upper bound 0.583333, baseline 1, allowed change 0.001 of its size"),
        (Finding("clip_fraction", 0.0, 0.5, 1e-3), "clipped share 50.00 %, baseline 0.00 %, allowed rise 0.10 %"),
        (Finding("max_abs_err", 1.0, 2.0, 0.5), "largest error 2, baseline 1, allowed rise 0.50 dB"),
        (Finding("axis", 0, 1), "axis 1, baseline 0"),
        (Finding("quantize_nodes", 7, 8), "quantize nodes 8, baseline 7"),
        (Finding("dequantize_nodes", 8, None), "dequantize nodes none, baseline 8"),
        (Finding("fix_state", "needed", "upstreamed"), "fix upstreamed, baseline needed"),
        (Finding("sqnr_db", 30.0, 9.9, limit=10.0), "SQNR 9.90 dB, must be at least 10.00 dB"),
    ],
)
def test_a_finding_says_what_is_what_was_and_what_is_allowed(finding: Finding, text: str) -> None:
    assert phrases.finding(finding) == text


def test_a_verdict_says_where_and_what() -> None:
    assert phrases.verdict(judge(output_row(sqnr_db=31.7), output_row(sqnr_db=24.1))) == (
        "resnet/small/trained x86-static converted logits: SQNR 24.10 dB, baseline 31.70 dB, allowed drop 0.50 dB"
    )


def test_a_verdict_names_the_variant_and_the_point() -> None:
    assert phrases.verdict(judge(None, repaired_row(point="lowered", sqnr_db=9.9))) == (
        "resnet/small/trained x86-static +fix lowered logits: SQNR 9.90 dB, must be at least 10.00 dB"
    )
    moved = judge(*(quantizer_row(variant="+fix", point="lowered", quantizer="a", hi=hi) for hi in (1.0, 0.5)))
    assert phrases.verdict(moved).startswith("resnet/small/trained x86-static +fix lowered a: upper bound 0.5,")


def test_a_fix_that_upstream_has_released_is_told_as_a_change_of_the_fix() -> None:
    text = phrases.verdict(judge(repaired_row(), repaired_row(fix_state="upstreamed")))
    assert text.endswith("+fix converted logits: fix upstreamed, baseline needed")


def test_a_waived_verdict_says_so() -> None:
    verdict = Verdict(case(), "output", "converted", "logits", Outcome.MISSING, waived="issue 7")
    assert phrases.verdict(verdict).endswith(": in the baseline, not measured (waived: issue 7)")


def test_a_row_on_one_side_only_says_on_which() -> None:
    assert phrases.verdict(judge(None, output_row())).endswith("converted logits: new, not in the baseline")
    assert phrases.verdict(judge(output_row(), None)).endswith("in the baseline, not measured")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (quantizer_row(axis=0), quantizer_row(axis=None)),
        (quantizer_row(axis=None), quantizer_row(axis=0)),
        (quantizer_row(), quantizer_row(lo=None)),
        (output_row(point="float", sqnr_db=160.0), output_row(point="float", sqnr_db=160.0, ref_rms=None)),
        (output_row(numel=None), output_row()),
    ],
)
def test_a_row_that_lost_or_gained_one_field_is_not_called_a_quantizer_gone_or_added(old: Any, new: Any) -> None:
    verdict = judge(old, new)
    assert verdict.outcome is Outcome.CHANGED
    assert "quantizer gone" not in phrases.verdict(verdict)
    assert "quantizer added" not in phrases.verdict(verdict)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5833333333, "0.5833333"),
        (-4.3, "-4.3"),
        (1.0, "1"),
        (float("nan"), "nan"),
        (2, "2"),
        ("RuntimeError: [63]", "RuntimeError: [63]"),
        (None, ""),
    ],
)
def test_what_a_probe_measured(value: Any, text: str) -> None:
    assert phrases.probe_value(value) == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (None, "-"),
        (output_row(sqnr_db=30.004), "30.00 dB"),
        (no_number("failed:export"), "failed:export"),
        (quantizer_row(lo=-1.0, hi=0.123456789), "[-1, 0.123457]"),
        (quantizer_row(status="unquantized", lo=None, hi=None), "unquantized"),
    ],
)
def test_a_rows_leading_value(row: Any, text: str) -> None:
    assert phrases.row_value(row) == text


def test_a_row_is_named_by_its_case_point_and_output_or_quantizer() -> None:
    assert phrases.row_name(output_row()) == "resnet/small/trained x86-static converted logits"
    quantizer = quantizer_row(variant="+fix", point="lowered", quantizer="a")
    assert phrases.row_name(quantizer) == "resnet/small/trained x86-static +fix lowered a"
