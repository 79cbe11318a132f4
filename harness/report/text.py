"""Names and errors of users, made safe to look at wherever they are shown."""

from __future__ import annotations

import html
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are not seen, or that move what stands after them."""


def visible(text: object) -> str:
    """One line in which white space is a blank, and characters that are not seen stand as escapes, U+202E say."""
    return revealed(" ".join(str(text).split()))


def spoken(text: object) -> str:
    """`visible` text for standard output and standard error, which GitHub reads too.

    It takes `##[` anywhere in a line for a command, and `::` at the beginning of one: a line of ours begins otherwise.
    """
    return visible(text).replace("##[", "## [")


def for_programs(text: str) -> str:
    """JSON text for standard output. GitHub looks for `##[` in every line; JSON has another spelling for it."""
    return text.replace("##[", "##\\u005b")


def revealed(line: str) -> str:
    """A line as it is, but for characters that are not seen."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(_escape(sign) if unicodedata.category(sign) in _HIDDEN else sign for sign in line)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def plain(text: object) -> str:
    """`visible` text for a place that takes HTML or, as plotly's labels, a subset of it."""
    return html.escape(visible(text), quote=False)


def counted(number: int, noun: str) -> str:
    """So many of something, in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
