"""The judgement as markdown, for a pull request or a file; needs the extra `report`."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.judge import Judgement
from harness.report import phrases
from harness.report.terminal import MEANING
from harness.store import Run
from harness.verdicts import Outcome

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 100


def available() -> bool:
    """Whether the extra `report` is installed."""
    return all(find_spec(name) is not None for name in ("jinja2", "tabulate"))


def cell(text: object) -> str:
    """Text that stays inside a markdown table cell and is not taken for HTML or a link."""
    escaped = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\\", "\\\\")
    for sign in "|`*_[]":
        escaped = escaped.replace(sign, "\\" + sign)
    return " ".join(escaped.split())


def render(run: Run, judgement: Judgement) -> str:
    """Markdown of a judged run. Raises `UsageError` if the extra is not installed."""
    if not available():
        raise UsageError("the markdown report needs jinja2 and tabulate: pip install 'sqnr-harness[report]'")
    import jinja2

    from harness.report.frames import bounds_frame, coverage_frame, fix_frame, idle_fixes, sqnr_matrix

    loader = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"), autoescape=False, trim_blocks=True, lstrip_blocks=True
    )
    loader.filters["cell"] = cell
    bad = [verdict for verdict in judgement.verdicts if verdict.outcome is not Outcome.OK]
    counts = Counter(verdict.outcome for verdict in judgement.verdicts)
    return loader.get_template("report.md.j2").render(
        run=run,
        symbol="✅" if judgement.exit_code == 0 else "❌",
        meaning=MEANING[judgement.exit_code],
        counts=", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]) or "no rows",
        notes=judgement.notes,
        notable=[
            {
                "sign": phrases.SYMBOLS[verdict.outcome],
                "outcome": verdict.outcome.value,
                "where": f"{verdict.case} {verdict.label}",
                "what": phrases.verdict(verdict).removeprefix(f"{verdict.case} {verdict.label}: "),
            }
            for verdict in bad[:MOST_ROWS]
        ],
        hidden=max(0, len(bad) - MOST_ROWS),
        command=phrases.accept_command(bad),
        matrix=_table(sqnr_matrix(run.outputs), index=True) or "No rows.",
        fixes=_table(fix_frame(run.outputs), index=False),
        idle=idle_fixes(run.outputs),
        bounds=_table(bounds_frame(run.quantizers), index=False),
        coverage=_table(coverage_frame(run.quantizers), index=False) or "No quantizers.",
        environment=_environment(run),
    )


def _table(frame: pd.DataFrame, *, index: bool) -> str:
    """A markdown table with every cell and heading escaped, and numbers as they were rounded; empty if no rows."""
    if frame.empty:
        return ""
    escaped = frame.map(cell).rename(index=cell, columns=cell)
    text: str = escaped.to_markdown(index=index, disable_numparse=True)
    return text


def _environment(run: Run) -> list[tuple[str, str]]:
    flat = [(key, str(value)) for key, value in run.environment.items() if not isinstance(value, dict)]
    return flat + [
        (name, str(value)) for group in ("stack", "pins") for name, value in run.environment.get(group, {}).items()
    ]
