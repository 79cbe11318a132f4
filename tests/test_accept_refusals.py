"""What is not turned into a baseline: failed, partial, foreign and hopeless rows, and what was not named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.accept import Request, check_acceptable
from harness.baseline import Baseline
from harness.environment import ISAS
from harness.errors import AcceptRefusedError, ExitCode, UsageError
from harness.records import QuantizerRow, Row
from harness.store import INTERRUPTED, RUNNING, Run
from harness.verdicts import NEVER_GOOD
from tests.rows import lost_edge, no_number, output_row, quantizer_row, run_of

ALL = Request("better observer")
RESNET, VIT, WEIGHT = output_row(), output_row(model="vit"), quantizer_row()


def run(*rows: Row, **changes: Any) -> Run:
    return run_of(Path("reports/20260131-gate"), *rows, **changes)


def refusal(which: Run, request: Request = ALL) -> str:
    with pytest.raises(AcceptRefusedError) as caught:
        check_acceptable(which, request, Baseline())
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_good_run_is_accepted_without_naming_rows() -> None:
    check_acceptable(run(RESNET, VIT, WEIGHT), ALL, Baseline())


@pytest.mark.parametrize("because", ["", "   ", "\n"])
def test_a_reason_is_required_even_for_named_rows(because: str) -> None:
    assert "--because" in refusal(run(RESNET), Request(because, models=("resnet",)))


@pytest.mark.parametrize("status", [INTERRUPTED, RUNNING])
def test_a_run_that_did_not_finish_is_refused_until_rows_are_named(status: str) -> None:
    partial = run(RESNET, status=status)
    assert f"is {status}, not complete; name what to accept" in refusal(partial)
    check_acceptable(partial, Request("r", models=("resnet",)), Baseline())


def test_a_filtered_run_is_refused_until_rows_are_named() -> None:
    filtered = run(RESNET, filtered=True)
    assert "measured a selection of 1 cases, not a whole suite" in refusal(filtered)
    check_acceptable(filtered, Request("r", flows=("x86-static",)), Baseline())
    check_acceptable(filtered, Request("r", rows=("resnet/*",)), Baseline())


def test_a_failed_row_is_refused_and_the_message_gives_the_command_that_names_it() -> None:
    broken = no_number("failed:convert", error="unsupported op")
    key = "resnet/small/trained/x86-static/released/converted/logits"
    message = refusal(run(broken, VIT))
    assert "is failed:convert: unsupported op (1 such rows)" in message
    assert f"--row '{key}'" in message
    check_acceptable(run(broken, VIT), Request("known upstream failure", rows=(key,)), Baseline())


def test_naming_the_model_does_not_sweep_a_failed_row_along() -> None:
    broken = no_number("failed:convert")
    assert "failed:convert" in refusal(run(broken), Request("r", models=("resnet",)))


def test_a_failed_row_elsewhere_does_not_keep_a_good_one_from_being_accepted() -> None:
    check_acceptable(run(no_number("failed:convert"), VIT), Request("r", models=("vit",)), Baseline())


@pytest.mark.parametrize("status", sorted(NEVER_GOOD))
def test_what_can_never_be_good_is_refused_even_when_named(status: str) -> None:
    bad = run(no_number(status), VIT)
    assert f"is {status} (1 such rows)" in refusal(bad)
    assert status in refusal(bad, Request("r", rows=("resnet/*",)))
    check_acceptable(bad, Request("r", models=("vit",)), Baseline())


@pytest.mark.parametrize(
    ("bad", "status"),
    [(lost_edge(variant="+fix"), "unquantized"), (lost_edge(status="nonfinite", cause="nonfinite"), "nonfinite")],
)
def test_a_quantizer_that_can_never_be_good_is_refused_even_when_named(bad: QuantizerRow, status: str) -> None:
    key = "/".join(bad.key)
    measured = run(RESNET, VIT, bad)
    for request in (ALL, Request("r", rows=(key,)), Request("r", models=("resnet",))):
        message = refusal(measured, request)
        assert f"converted conv1:conv2d:0:input is {status} (1 such rows): this fails whatever" in message
    check_acceptable(measured, Request("r", models=("vit",)), Baseline())


@pytest.mark.parametrize(
    "row",
    [lost_edge(), lost_edge(role="weight", cause=""), lost_edge(variant="+fix", role="weight", cause="")],
    ids=["edge of released code", "weight never annotated", "weight no variant annotates"],
)
def test_a_place_without_a_quantizer_that_no_fix_is_to_blame_for_can_be_accepted(row: QuantizerRow) -> None:
    check_acceptable(run(RESNET, row), ALL, Baseline())


def test_a_variant_whose_fix_cannot_be_told_is_refused_as_any_failure() -> None:
    broken = no_number("failed:lower", variant="+fix", fix_state="unknown", error="SeamMovedError: gone")
    assert "x86-static +fix converted logits is failed:lower: SeamMovedError: gone" in refusal(run(RESNET, broken))


def test_a_pattern_that_fits_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no measured or accepted model named 'resnett'; did you mean resnet"):
        check_acceptable(run(RESNET), Request("r", models=("resnett",)), Baseline())
    assert "fits --row bert/*" in refusal(run(RESNET), Request("r", rows=("bert/*",)))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"platform": "plan9-mips"}, "was measured on plan9-mips"),
        ({"pins": {"ATEN_CPU_CAPABILITY": "", "MKL_CBWR": "COMPATIBLE"}}, "without its pins (ATEN_CPU_CAPABILITY)"),
        ({"pins": ISAS["sse4"]}, "without its pins (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA); run it without --no-pin"),
    ],
)
def test_a_run_that_is_no_measure_for_this_platform_is_refused(environment: dict[str, Any], message: str) -> None:
    measured = run(RESNET)
    measured.environment = environment
    assert message in refusal(measured, ALL)


def test_a_failure_the_baseline_knows_need_not_be_named_again() -> None:
    broken = no_number("failed:convert")
    check_acceptable(run(broken, VIT), ALL, Baseline({broken.key: broken}))


def test_a_quantizer_row_can_be_named_alone() -> None:
    check_acceptable(run(RESNET, WEIGHT), Request("r", rows=("*/conv1*",)), Baseline())
    check_acceptable(run(RESNET, WEIGHT), Request("r", rows=("*/converted/conv1*",)), Baseline())
    assert "fits --row */lowered/conv1*" in refusal(run(RESNET, WEIGHT), Request("r", rows=("*/lowered/conv1*",)))
