"""Culprits in the pull request's comment: a short list that stays short, and names that stay names."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from harness.report import markdown
from tests.judgements import HOSTILE, judged, one_of_each
from tests.located_records import called, culprit, located
from tests.report.test_markdown_size import LONG, many_groups
from tests.rows import output_row


def section(text: str) -> str:
    """What stands below the heading, up to what is folded away."""
    return text.split("\n## Culprits\n\n")[1].split("\n<details>")[0].rstrip()


def test_each_output_has_its_figures_and_below_them_its_culprits() -> None:
    record = located(culprits=(culprit(alone_db=27.0),), layers=())
    assert section(markdown.render(*judged([], [output_row()]), [record])).splitlines() == [
        "- resnet/small/trained x86-static converted logits: 10.00 dB as it is; 40.00 dB with +fix; "
        "37.00 dB with the culprit alone put right, 90.0 % of the difference",
        r"  - conv1:conv2d.input: range \[-1, 1.7\] -&gt; \[0, 100\] explains 27.0 of 30.0 dB (clipping)",
    ]


def test_of_many_culprits_the_first_three_are_told_and_the_others_counted() -> None:
    lines = section(markdown.render(*one_of_each(), [located(culprits=(culprit(),) * 9)])).splitlines()
    assert (len(lines), lines[-1]) == (5, "  - and 6 more")


def test_where_nothing_was_located_nothing_is_said() -> None:
    assert "Culprits" not in markdown.render(*one_of_each())


def test_many_long_records_do_not_push_the_comment_over_its_size() -> None:
    text = markdown.render(*many_groups(), [called(LONG)] * 1_000)
    assert len(text.encode()) < markdown.MOST_BYTES
    told = section(text).splitlines()
    shown = sum(line.startswith("- ") for line in told)
    assert shown >= 1
    assert told[-1] == f"{1_000 - shown} more outputs: see `located/` in the run's folder."


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_is_markdown_or_html(name: str) -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    wild, tame = (
        [token.type for token in parser.parse(section(markdown.render(*one_of_each(), [called(one)])))]
        for one in (name, "name")
    )
    assert wild == tame
    inside = parser.parse(section(markdown.render(*one_of_each(), [called(name)])))
    kinds = {child.type for token in inside for child in token.children or ()}
    assert kinds <= {"text", "text_special", "softbreak"}
