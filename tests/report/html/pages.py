"""Pages of made-up runs, what a parser finds in them, and names that mean something to HTML, plotly or a reader."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cached_property
from typing import Any
from unittest import mock

import lxml.html

from harness.judge import Judgement
from harness.records import Row
from harness.report.html import assets, page
from harness.report.html.timeline import Timeline
from harness.store import Run
from tests.judgements import judged
from tests.rows import no_number, output_row, quantizer_row

CASES = 30
"""Models of the report that the browser shows."""
CHANGES, QUANTIZERS = "#changes-table", "#quantizers-table"
LONG = "long" * 2500
HOSTILE = (
    "<script>alert(1)</script>",
    "<script>window.__pwned=1</script>",
    "</script><script>window.__pwned=1</script>",
    '"><img src=x onerror="window.__pwned=1">',
    "' onmouseover='window.__pwned=1' x='",
    "javascript:window.__pwned=1",
    '<a href="javascript:window.__pwned=1">link</a>',
    "</td></tr></table><h1>new</h1>",
    "<!-- comment",
    "&lt;b&gt;&amp;",
    "{{ 7 * 7 }}{% raw %}",
    "%{x}<extra></extra>",
    "two\r\nlines",
    "right\u202eleft\x1b[31m",
    "lone\ud800surrogate",
    "quotes \"'` $1 #",
    LONG,
)
_LIBRARIES = assets.libraries()


class Page:
    """A page as lxml reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = lxml.html.document_fromstring(
            text.encode("utf-8"), parser=lxml.html.HTMLParser(encoding="utf-8", huge_tree=True)
        )

    @cached_property
    def words(self) -> str:
        """The text of the body without its scripts, white space as blanks."""
        parts = self.tree.xpath("//body//text()[not(ancestor::script)]")
        return " ".join(" ".join(parts).split())

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        (packed,) = self.tree.xpath("//script[@id='packed-data']")
        content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed.text)))
        return content

    def section(self, name: str) -> str:
        """The text of one section."""
        (found,) = self.tree.xpath(f"//section[@id='{name}']")
        return words_of(found)

    def all(self, path: str) -> list[Any]:
        """What an XPath finds."""
        found: list[Any] = self.tree.xpath(path)
        return found


def words_of(element: Any) -> str:
    """The text of an element, blanks between those inside it."""
    return " ".join(" ".join(element.itertext()).split())


def rendered(found: tuple[Run, Judgement], history: Timeline | None = None) -> Page:
    """The page of a judged run; the libraries in it are packed once for all tests."""
    with mock.patch.object(assets, "libraries", return_value=_LIBRARIES):
        return Page(page.render(*found, history))


def rows_called(name: str) -> list[Row]:
    """A case in which everything is called `name`: 20 dB as released, 30 dB repaired, a failed point, a moved bound."""
    case = {"model": name, "flow": name}
    fixed = {**case, "variant": f"+{name}", "fix_state": "needed"}
    of_quantizer = {**case, "quantizer": name}
    return [
        output_row(**case, output=name, sqnr_db=20.0),
        output_row(**fixed, output=name),
        no_number("failed:lower", **fixed, point="lowered", output=name, error=name),
        quantizer_row(**of_quantizer, hi=1.0, share_group=name),
        quantizer_row(**of_quantizer, variant=f"+{name}", hi=2.0, role="weight"),
        quantizer_row(**{**of_quantizer, "quantizer": f"second {name}"}, hi=1.0),
        quantizer_row(**{**of_quantizer, "quantizer": f"second {name}"}, variant=f"+{name}", hi=2.0),
    ]


def called(*names: str) -> tuple[Run, Judgement]:
    """Cases of these names, each worse by 10 dB than accepted and with one range bound that moved."""
    old = [
        row
        for name in names
        for row in (
            output_row(model=name, flow=name, output=name),
            quantizer_row(model=name, flow=name, quantizer=name, hi=3.0),
        )
    ]
    new = [row for name in names for row in rows_called(name)]
    return judged(old, new, notes=tuple(f"expired: {name}" for name in names))


def hostile_names() -> tuple[Run, Judgement]:
    """Cases of all hostile names."""
    return called(*HOSTILE)


def cases_of_one_slug() -> tuple[Run, Judgement]:
    """Cases whose names differ in signs alone."""
    rows = [output_row(flow=flow) for flow in ("a b", "a-b", "a+b")]
    return judged([], [*rows, *(quantizer_row(flow=row.flow) for row in rows)])
