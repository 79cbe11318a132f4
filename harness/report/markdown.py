"""The judgement as markdown, for a pull request or a file; needs the extra `report`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from harness import extra
from harness.errors import ExitCode
from harness.judge import Judgement
from harness.located import Located
from harness.report import culprits, phrases
from harness.report.advice import advice
from harness.report.changes import Change, changes
from harness.report.deltas import MOST_NAME, shortened
from harness.report.environments import settings
from harness.report.groups import groups
from harness.report.text import visible
from harness.store import Run
from harness.verdicts import Outcome

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 60_000
"""A GitHub comment holds 65,536 characters; what the parts below may take adds up to less than this."""

_MOST_NOTES, _MOST_CHANGES, _MOST_CULPRITS = 4_000, 24_000, 4_000
_MOST_FIXES, _MOST_BOUNDS, _MOST_MATRIX, _MOST_COVERAGE, _MOST_ENVIRONMENT = 7_000, 5_000, 5_000, 3_000, 3_000
_MOST_KERNELS = 2_000
_MOST_OUTPUTS, _MOST_BLAMED = 5, 3
_MOST_CELL = 240
_SIGNS = {ExitCode.OK: "✅", ExitCode.STALE: "⚠️"}
_REFERENCE = re.compile(r"@(?=\w)|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.)|:(?=(?:100|1234):)", re.IGNORECASE)
"""Where GitHub would see a person, an issue, an address, or (in `conv2d:100:input`) a picture."""
_MARKER = re.compile(r"[^\w.+-]", re.ASCII)


def marker(suite: str) -> str:
    """The first line of each report of a suite: a bot that finds it in a comment replaces that comment."""
    return f"<!-- sqnr-harness:{_MARKER.sub('-', suite)[:100]} -->"


def cell(text: object) -> str:
    """Text that stays inside a markdown table cell and is not taken for HTML, a link, a person or an issue."""
    escaped = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\\", "\\\\")
    for sign in "|`*_[]~":
        escaped = escaped.replace(sign, "\\" + sign)
    return _REFERENCE.sub(r"\g<0>&#8203;", escaped).replace("$", "&#36;")


def item(text: object) -> str:
    """As `cell`, for a line of its own: what would begin a heading or a list does not."""
    return re.sub(r"^(\d*)([#+=.)-])", r"\1\\\2", cell(text))


def code(text: object) -> str:
    """One line of code, whatever backticks it holds."""
    line = visible(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def render(run: Run, judgement: Judgement, located: Sequence[Located] = ()) -> str:
    """Markdown of a judged run and of what was located in it, of less than `MOST_BYTES` bytes.

    Raises `UsageError` if the extra is not installed.
    """
    extra.require("the markdown report", "jinja2")
    import jinja2

    from harness.report.frames import bounds_frame, coverage_frame, fix_frame, idle_fixes, sqnr_table
    from harness.report.kernels import TITLE, kernel_frame

    loader = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"), autoescape=False, trim_blocks=True, lstrip_blocks=True
    )
    fixes, idle = fix_frame(run.outputs), [f"- {item(shortened(line, 200))}" for line in idle_fixes(run.outputs)]
    return loader.get_template("report.md.j2").render(
        marker=marker(run.plan.suite),
        symbol=_SIGNS.get(judgement.exit_code, "❌"),
        meaning=phrases.meaning(judgement),
        run=code(shortened(run.name)),
        suite=code(shortened(run.plan.suite)),
        base=cell(shortened(judgement.before.name)),
        counts=_counts(judgement),
        notes=_fitted([], map(_note, judgement.notes), len(judgement.notes), _MOST_NOTES, "notes: see `verdict.json`"),
        changes=_changes(run, judgement),
        advice=_advice(run, judgement),
        culprits=_fitted([], map(_located, located), len(located), _MOST_CULPRITS, "outputs: see `located/`"),
        fixes=_table(fixes, _MOST_FIXES, "`outputs.csv`"),
        idle=_fitted([], idle, len(idle), 1_000, "fixes that idle: see `outputs.csv`"),
        bounds=_table(bounds_frame(run.quantizers), _MOST_BOUNDS, "`quantizers.csv`"),
        matrix=_table(sqnr_table(run.outputs), _MOST_MATRIX, "`outputs.csv`"),
        kernels=_table(kernel_frame(run.outputs), _MOST_KERNELS, "`outputs.csv`"),
        kernels_title=TITLE,
        coverage=_coverage(coverage_frame(run.quantizers)),
        environment=_environment(run, judgement),
    )


def render_error(suite: str, error: str) -> str:
    """Markdown of a run that could not be judged: the same marker, so that it takes the place of an older report."""
    return f"{marker(suite)}\n# ❌ Numerical accuracy: the run could not be judged\n\n{cell(error)}\n"


def _counts(judgement: Judgement) -> str:
    counts = Counter(verdict.outcome for verdict in judgement.verdicts)
    waived = sum(1 for verdict in judgement.verdicts if verdict.waived)
    text = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]) or "no rows"
    return f"{text}; {waived} of them waived" if waived else text


def _note(note: str) -> str:
    return f"- {item(shortened(note, _MOST_CELL))}"


def _changes(run: Run, judgement: Judgement) -> str:
    """What is not as accepted, worst first."""
    found = changes(groups(run, judgement))
    head = _head(["", "case", "point", "outputs", "range bounds", "likely cause"])
    return _fitted(head, map(_change, found), len(found), _MOST_CHANGES, "row groups: see `verdict.json`")


def _change(change: Change) -> str:
    told = [cell(delta) for delta in change.outputs[:_MOST_OUTPUTS]]
    told += [f"and {len(change.outputs) - _MOST_OUTPUTS} more"] if len(change.outputs) > _MOST_OUTPUTS else []
    waived = f"waived: {change.waived}" if change.waived else ""
    return _line(
        [
            f"{change.sign} {change.outcome}{', waived' if waived else ''}",
            _lines(str(change.case), change.alike),
            cell(change.point),
            "<br>".join(told),
            cell(change.quantizers),
            _lines(change.cause, waived),
        ]
    )


def _located(located: Located) -> str:
    """An output and its first culprits, as a list in a list."""
    told = [culprits.text(located, one) for one in located.culprits[:_MOST_BLAMED]]
    more = len(located.culprits) - len(told)
    told += [f"and {more} more"] if more > 0 else []
    lines = [f"  - {item(shortened(line, 2 * _MOST_CELL))}" for line in (*told, *culprits.remarks(located))]
    return "\n".join([f"- {item(shortened(culprits.headline(located), 2 * _MOST_CELL))}", *lines])


def _lines(*texts: str) -> str:
    """One cell with a line for each text that is not empty."""
    return "<br>".join(cell(shortened(text, _MOST_CELL)) for text in texts if text)


def _advice(run: Run, judgement: Judgement) -> str:
    told = advice(run, judgement)
    note = [cell(told.lines[-1])] if told.note else []
    return "\n\n".join([f"If intended: {code(told.command)}", *note] if told.command else note)


def _coverage(frame: pd.DataFrame) -> str:
    """How many cases quantize every weight, and the others one by one; a variant as its released code is not told."""
    if frame.empty:
        return "No quantizers."
    partial = frame[frame["quantized"] < frame["quantizable"]]
    whole = (
        f"{len(frame) - len(partial)} of {len(frame)} cases quantize every weight that an integer kernel could take."
    )
    told = partial.drop_duplicates([name for name in frame.columns if name != "variant"], keep="last")
    told = told.assign(**{"in float": [_cut(names) for names in told["in float"]]})
    return "\n\n".join(filter(None, (whole, _table(told, _MOST_COVERAGE, "`quantizers.csv`"))))


def _cut(names: str) -> str:
    """The beginning of a list of names."""
    return names if len(names) <= MOST_NAME else f"{names[: MOST_NAME - 1]}…"


def _environment(run: Run, judgement: Judgement) -> str:
    found = settings(run, judgement)
    lines = [_line(["≠" if it.differs else "", *map(_short, (it.what, it.now, it.before))]) for it in found]
    head = _head(["", "what", "this run", "judged by"])
    return _fitted(head, lines, len(lines), _MOST_ENVIRONMENT, "facts: see `run.json`")


def _table(frame: pd.DataFrame, budget: int, where: str) -> str:
    """A table of a frame's columns, as much of it as fits; empty if there are no rows."""
    lines = (_line(map(_short, values)) for values in frame.itertuples(index=False, name=None))
    return _fitted(_head(map(_short, frame.columns)), lines, len(frame), budget, f"lines: see {where}")


def _short(value: object) -> str:
    return cell(shortened(str(value)))


def _head(names: Iterable[str]) -> list[str]:
    cells = list(names)
    return [_line(cells), _line(["---"] * len(cells))]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))


def _fitted(head: Sequence[str], lines: Iterable[str], count: int, budget: int, rest: str) -> str:
    """As many of `count` lines as fit below `head` into `budget` bytes, then how many more there are of what, where."""
    shown = list(_while_they_fit(lines, budget - sum(map(_size, head))))
    parts = ["\n".join([*head, *shown])] if shown else []
    if len(shown) < count:
        more = "more " if shown else ""
        parts.append(f"{count - len(shown)} {more}{rest} in the run's folder.")
    return "\n\n".join(parts)


def _while_they_fit(lines: Iterable[str], budget: int) -> Iterator[str]:
    for line in lines:
        budget -= _size(line) + 1
        if budget < 0:
            return
        yield line
