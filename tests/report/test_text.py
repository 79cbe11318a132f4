"""Names of users, made safe to look at."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import Case
from harness.report.text import plain, revealed, spoken, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layer1.0.conv1:conv2d.input", "layer1.0.conv1:conv2d.input"),
        ("two\r\n\tlines  and\u00a0blanks ", "two lines and blanks"),
        ("größer × μ 模型 🙂", "größer × μ 模型 🙂"),
        ("right\u202eleft", "right\\u202eleft"),
        ("\u200bzero\u200dwidth\ufeff", "\\u200bzero\\u200dwidth\\ufeff"),
        ("bell\x07 escape\x1b[31m nul\x00 del\x7f", "bell\\x07 escape\\x1b[31m nul\\x00 del\\x7f"),
        ("lone\ud800 \udfff", "lone\\ud800 \\udfff"),
        ("private\ue000 tag\U000e0041", "private\\ue000 tag\\U000e0041"),
        ("line\u2028paragraph\u2029", "line paragraph"),
        ("", ""),
    ],
)
def test_a_name_is_a_line_in_which_all_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_anything_has_a_name() -> None:
    assert visible(Case("a\u202e", "small", "trained", "flow")) == "a\\u202e/small/trained flow"
    assert visible(1.5) == "1.5"


def test_a_line_of_a_log_keeps_its_indentation() -> None:
    assert revealed("    raise  X\u202e") == "    raise  X\\u202e"


def test_for_html_the_signs_of_markup_are_escaped_too() -> None:
    assert plain('<b>&amp;"\n\u202e') == '&lt;b&gt;&amp;amp;" \\u202e'


@given(st.text())
def test_nothing_hidden_is_left_and_what_is_shown_stays(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(sign) for sign in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert visible(shown) == shown
    shown.encode("utf-8")


@given(st.text())
def test_plain_text_holds_no_tag(text: str) -> None:
    assert not set("<>") & set(plain(text))


def test_what_is_spoken_is_no_command_to_github() -> None:
    assert spoken("a\n::error::b ##[error]c") == "a ::error::b ## [error]c"
