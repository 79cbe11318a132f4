"""What GitHub Actions is told: annotations that no name can break out of, and the job's summary."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.judge import Judgement
from harness.records import Row
from harness.report import github
from harness.store import Run
from tests.judgements import EVERY, hostile, judged, nothing, one_of_each
from tests.rows import no_number, output_row, quantizer_row
from tests.waivers import waived

Made = tuple[Run, Judgement]
COMMAND = re.compile(r"::(error|warning) title=([^:,\r\n]*)::([^\r\n]*)")


def parse(line: str) -> tuple[str, str, str]:
    """Kind, title and message of a workflow command, as the runner reads them: `%25` is decoded last."""
    match = COMMAND.fullmatch(line)
    assert match is not None, line
    kind, title, message = match.groups()
    for code, sign in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        title = title.replace(code, sign)
        message = message if code in ("%3A", "%2C") else message.replace(code, sign)
    return kind, title, message


def announced(made: Made, markdown: str = "", **environ: str) -> list[str]:
    """The lines written for a judgement."""
    lines: list[str] = []
    github.announce(*made, markdown, environ, lines.append)
    return lines


def worse(count: int) -> Made:
    """As many models that lost more the higher their number, from 2 dB on."""
    names = [f"m{number:02}" for number in range(count)]
    new = [output_row(model=name, sqnr_db=28.0 - number) for number, name in enumerate(names)]
    return judged([output_row(model=name) for name in names], new)


# Annotations


def test_outside_github_nothing_is_said() -> None:
    assert announced(one_of_each(), "text") == []
    assert announced(one_of_each(), "text", GITHUB_ACTIONS="false") == []


def test_a_regression_is_an_error_with_its_numbers_its_bounds_and_the_likely_cause() -> None:
    made = judged([output_row(), quantizer_row(hi=1.0)], [output_row(sqnr_db=24.0), quantizer_row(hi=2.0)])
    (line,) = announced(made, GITHUB_ACTIONS="true")
    assert parse(line) == (
        "error",
        "regressed: resnet/small/trained x86-static converted",
        "logits 30.00 → 24.00 dB (-6.00)\n"
        "1 range moved: conv1:conv2d:0:input [0, 1] → [0, 2]\n"
        "likely cause: the range of conv1:conv2d:0:input is 2 times as wide",
    )


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (output_row(), output_row(sqnr_db=1.0), "error"),
        (output_row(), output_row(numel=1), "error"),
        (output_row(), no_number("failed:lower", error="boom"), "error"),
        (output_row(), None, "error"),
        (output_row(), output_row(sqnr_db=40.0), "warning"),
        (None, output_row(), "warning"),
    ],
)
def test_what_fails_the_gate_is_an_error_and_what_makes_baselines_stale_a_warning(
    old: Row | None, new: Row | None, kind: str
) -> None:
    (line,) = github.commands(*judged([old] if old else [], [new] if new else []))
    assert parse(line)[0] == kind


def test_what_is_waived_is_a_warning_with_the_reason() -> None:
    made = waived(judged([output_row()], [output_row(sqnr_db=1.0)]), "logits")
    ((kind, title, message),) = map(parse, github.commands(*made))
    assert (kind, title.split(":")[0]) == ("warning", "regressed")
    assert message.endswith("\nwaived: issue 7")


def test_as_accepted_needs_no_annotation_and_nothing_measured_is_an_error() -> None:
    assert github.commands(*judged([output_row()], [output_row()])) == []
    assert github.commands(*nothing()) == ["::error title=sqnr::nothing was measured"]


def test_ten_of_a_kind_are_shown_worst_first() -> None:
    shown = [parse(line) for line in github.commands(*worse(10))]
    assert [title.split()[1].split("/")[0] for _, title, _ in shown] == [f"m{number:02}" for number in range(9, -1, -1)]


def test_of_more_than_ten_the_tenth_line_says_how_many_are_left_because_github_shows_no_eleventh() -> None:
    shown = [parse(line) for line in github.commands(*worse(25))]
    assert len(shown) == github.MOST_ANNOTATIONS == 10
    assert shown[0][1].startswith("regressed: m24/")
    assert shown[-1][2].startswith("16 more row groups")  # 25 - 9


def test_errors_and_warnings_are_counted_apart_and_the_worst_warning_comes_first() -> None:
    run, _ = worse(12)
    better = [output_row(model=f"b{number:02}") for number in range(12)]
    made = judged(
        [*(output_row(model=f"m{number:02}") for number in range(12)), *better],
        [*run.outputs, *(output_row(model=row.model, sqnr_db=40.0) for row in better), output_row(model="new")],
    )
    kinds = [parse(line)[0] for line in github.commands(*made)]
    assert (kinds.count("error"), kinds.count("warning")) == (10, 10)
    assert parse(github.commands(*made)[10])[1].startswith("improved: ")


# Names


@pytest.mark.parametrize("make", EVERY)
def test_every_annotation_is_one_command(make: Callable[[], Made]) -> None:
    for line in github.commands(*make()):
        parse(line)


@pytest.mark.parametrize(
    "name",
    [
        "x\n::set-output name=a::b",
        "x\r::error::b",
        "x%0A::warning::b",
        "x::y,file=z",
        "x, title=y",
        "100%",
        "x\u2028::a::b",
    ],
)
def test_no_name_begins_another_command_or_property(name: str) -> None:
    made = judged([output_row(model=name, output=name)], [output_row(model=name, output=name, sqnr_db=1.0)])
    (line,) = github.commands(*made)
    _, title, message = parse(line)
    shown = " ".join(name.split())
    assert title == f"regressed: {shown}/small/trained x86-static converted"
    assert message.startswith(f"{shown} 30.00 → 1.00 dB")


def test_an_error_of_a_stage_that_looks_like_a_command_is_text() -> None:
    error = "boom\n::add-mask::secret\x1b[0m\ud800"
    made = judged([output_row()], [no_number("failed:lower", error=error)])
    ((_, _, message),) = map(parse, github.commands(*made))
    assert message.endswith(r"likely cause: failed:lower: boom ::add-mask::secret\x1b[0m\ud800")


def test_long_names_are_cut() -> None:
    name = "x" * 3_000
    old = [output_row(model=name, output=f"{number}{name}") for number in range(50)]
    new = [output_row(model=name, output=row.output, sqnr_db=1.0, sqnr_min_db=1.0) for row in old]
    (line,) = github.commands(*judged(old, new))
    _, title, message = parse(line)
    assert len(title) <= 255  # GitHub's limit
    assert len(message) < 4_000
    assert "and 45 more outputs" in message


# The summary


def test_the_report_is_appended_to_the_jobs_summary(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before", encoding="utf-8")
    assert announced(hostile(), "# report ✅\ud800", GITHUB_STEP_SUMMARY=str(summary)) == []
    assert summary.read_text(encoding="utf-8") == "before\n# report ✅\\ud800\n"


def test_a_summary_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    announced(nothing(), "# report", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == "# report\n"


def test_a_report_that_would_not_fit_is_left_out_and_said_so(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_bytes(b"x" * (1024 * 1024 - 10))
    (line,) = announced(nothing(), "y" * 10, GITHUB_STEP_SUMMARY=str(summary))
    assert re.fullmatch(r"note: the job summary was not written: .*1048566 bytes and 11 more.* 1048576 at most", line)
    assert summary.stat().st_size == 1024 * 1024 - 10


def test_a_summary_that_cannot_be_written_is_one_line_and_the_annotations_follow(tmp_path: Path) -> None:
    lines = announced(worse(1), "text", GITHUB_STEP_SUMMARY=str(tmp_path), GITHUB_ACTIONS="true")
    assert len(lines) == 2
    assert lines[0] == f"note: the job summary was not written: {tmp_path}: Is a directory"
    assert parse(lines[1])[0] == "error"


def test_without_markdown_no_summary_is_written(tmp_path: Path) -> None:
    announced(nothing(), "", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert not (tmp_path / "summary.md").exists()
