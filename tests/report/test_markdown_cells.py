"""Names in the markdown report: each in its place, whatever it means to markdown, HTML or GitHub."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from harness.report import markdown
from tests.judgements import EVERY, HOSTILE, judged, nothing
from tests.report.markdown_text import LONG, TAGS, Made, split, tables
from tests.rows import no_number, output_row


@pytest.mark.parametrize("make", EVERY)
def test_every_row_of_every_table_has_as_many_cells_as_its_header(make: Callable[[], Made]) -> None:
    found = list(tables(markdown.render(*make())))
    assert found
    for table in found:
        assert len({len(cells) for cells in table}) == 1


@pytest.mark.parametrize("make", EVERY)
def test_names_make_no_tags_links_or_emphasis(make: Callable[[], Made]) -> None:
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown.render(*make()))
    assert set(re.findall(r"<([a-z][\w-]*)", html)) <= TAGS


@pytest.mark.parametrize("text", [*HOSTILE, LONG, "a\\|b", "trailing\\", "$x$", "~~gone~~"])
def test_a_cell_is_one_line_and_shows_the_text(text: str) -> None:
    cell = markdown.cell(text)
    assert len(split(f"| {cell} | next |")) == 2
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(f"| {cell} | b |\n|---|---|\n")
    shown = re.findall("<th>(.*?)</th>", html)[0].replace("\u200b", "").replace("&quot;", '"')
    plain = text.replace("\n", " ").replace("\u202e", "\\u202e")
    assert shown == plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@pytest.mark.parametrize("text", ["@everyone", "a@b.example", "#123", "o/r#7", "GH-5", "http://x", "www.x.example"])
def test_a_name_pings_nobody_and_refers_to_nothing(text: str) -> None:
    cell = markdown.cell(text)
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.", cell.replace("&#8203;", "\u200b"))


def test_the_hundredth_occurrence_of_an_operator_is_no_picture() -> None:
    assert ":100:" not in markdown.cell("conv:conv2d:100:input")
    assert markdown.cell("conv:conv2d:99:input") == "conv:conv2d:99:input"


def test_characters_that_are_not_seen_stand_as_escapes_and_half_a_pair_can_be_written() -> None:
    text = markdown.render(*judged([output_row()], [no_number("failed:lower", error="a\u202eb\ud800\x1b")]))
    assert r"a\\u202eb\\ud800\\x1b" in text
    assert not {"\u202e", "\x1b"} & set(text.encode("utf-8").decode("utf-8"))


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "1. a", "12) a", "=== a", "> a"])
def test_a_note_begins_no_heading_and_no_list_of_its_own(text: str) -> None:
    run, judgement = nothing()
    html = MarkdownIt("commonmark").render(
        markdown.render(run, replace(judgement, notes=(text,))).split("<details>")[0]
    )
    assert f"<li>{text.replace('>', '&gt;')}</li>" in html


def test_a_name_that_looks_like_a_number_is_not_rounded() -> None:
    text = markdown.render(*judged([], [output_row(output="1e3")]))
    assert "1e3 30.00 dB, new" in text
