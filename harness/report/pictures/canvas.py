"""What all pictures share: the style, text that cannot break out of it, names of files, and writing them."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.files import replace_all
from harness.report.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, RULE = "#1a1a1a", "#5f5f5f", "#d5d5d5"
_LONGEST_PART, _WIDEST_TITLE = 40, 72
_NEEDLESS = re.compile(rb"""[ \t]+(?=\n)| transform="rotate\(-0 [^"]*"|\n *<!--.*?-->""")
"""Blanks at ends of lines, turns by no angle, and each text again as a comment: half of a large heat map."""
_STYLE: Mapping[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # as wide, where the first is missing
    "font.size": 9.0,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "svg.fonttype": "none",  # text can be searched, and read aloud
    "svg.hashsalt": "sqnr",  # the same picture gives the same file
    "path.simplify": True,
}


@contextmanager
def style() -> Iterator[None]:
    """The style of all pictures, whatever the user's matplotlibrc says."""
    import matplotlib

    with warnings.catch_warnings(), matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the SVG has the letter all the same
        yield


def short(text: str, most: int = 48) -> str:
    """Text in one line of visible characters, with its middle left out past `most` of them."""
    line = visible(text)
    tail = most // 2
    return line if len(line) <= most else f"{line[: most - tail - 1]}…{line[-tail:]}"


def stem(*parts: str, taken: set[str]) -> str:
    """A file name from `parts` that every file system takes, not in `taken` whatever the case; added to it."""
    name = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part)[:_LONGEST_PART].strip("-.") or "x" for part in parts)
    unique, count = name, 1
    while unique.casefold() in taken:
        count += 1
        unique = f"{name}-{count}"
    taken.add(unique.casefold())
    return unique


def extent(figure: Figure, axes: Axes) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of axes with all their labels, as shares of the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    box = axes.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    if box is None:
        return (0.0, 0.0, 1.0, 1.0)
    left, bottom, right, top = figure.transFigure.inverted().transform(box).ravel()
    return (left, bottom, right, top)


def headline(figure: Figure, x: float, y: float, title: str, subtitle: str) -> None:
    """Title, and the subtitle below it, from (x, y) up, as shares of the figure."""
    line = 0.22 / figure.get_size_inches()[1]
    lines = "\n".join(textwrap.wrap(title, _WIDEST_TITLE, break_on_hyphens=False))
    figure.text(x, y + line, lines, fontsize=13, fontweight="bold", va="bottom")
    figure.text(x, y, subtitle, color=FAINT, va="bottom")


def save(figure: Figure, folder: Path, name: str, title: str) -> list[Path]:
    """Write the SVG and the PNG, both on white, cropped to what is drawn; raises `UsageError` if that fails."""
    contents: dict[Path, str | bytes] = {}
    metadata = {"svg": {"Date": None, "Creator": None, "Title": title}, "png": {"Software": None}}
    for kind, tags in metadata.items():
        target = io.BytesIO()
        figure.savefig(
            target, format=kind, dpi=144, facecolor="white", bbox_inches="tight", pad_inches=0.15, metadata=tags
        )
        content = target.getvalue()
        contents[folder / f"{name}.{kind}"] = _NEEDLESS.sub(b"", content) if kind == "svg" else content
    replace_all(contents)
    return list(contents)
