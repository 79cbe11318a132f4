"""What GitHub Actions shows of a judged run: the job's summary, and an annotation for each of the worst row groups.

The limits and the escapes are those of GitHub's workflow commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from harness.errors import ExitCode
from harness.judge import Judgement
from harness.report import phrases
from harness.report.changes import Change, changes
from harness.report.deltas import shortened
from harness.report.groups import groups
from harness.report.text import spoken, visible
from harness.store import Run
from harness.verdicts import WORST_FIRST, Outcome

MOST_ANNOTATIONS = 10
"""Of each kind; GitHub shows no more of a step."""
SUMMARY_BYTES = 1024 * 1024
"""A step's summary that is larger is not shown at all."""

_STALE = (Outcome.IMPROVED, Outcome.NEW)
_MOST_TITLE, _MOST_OUTPUTS, _MOST_PHRASE = 200, 5, 400


def announce(
    run: Run, judgement: Judgement, markdown: str, environ: Mapping[str, str], write: Callable[[str], object]
) -> None:
    """Append `markdown` to the job's summary and `write` one workflow command a line; nothing outside GitHub.

    `environ` says where: GITHUB_STEP_SUMMARY and GITHUB_ACTIONS. A summary that cannot be written is one line of
    `write`, never an error: it changes no verdict.
    """
    _announce(markdown, environ, write, lambda: commands(run, judgement))


def announce_error(error: str, markdown: str, environ: Mapping[str, str], write: Callable[[str], object]) -> None:
    """The same for a run that could not be judged."""
    _announce(markdown, environ, write, lambda: [_command("error", "sqnr", [error])])


def _announce(
    markdown: str,
    environ: Mapping[str, str],
    write: Callable[[str], object],
    lines: Callable[[], list[str]],
) -> None:
    summary = environ.get("GITHUB_STEP_SUMMARY")
    if summary and markdown:
        problem = _append(Path(summary), markdown)
        if problem:
            write(f"note: the job summary was not written: {spoken(problem)}")
    if environ.get("GITHUB_ACTIONS") == "true":
        for line in lines():
            write(line)


def _append(path: Path, markdown: str) -> str:
    """Append to a summary; gives why that could not be done, or nothing."""
    content = markdown.encode("utf-8", "backslashreplace") + b"\n"
    try:
        held = path.stat().st_size if path.exists() else 0
        if held + len(content) > SUMMARY_BYTES:
            return f"{path}: {held} bytes and {len(content)} more, GitHub takes {SUMMARY_BYTES} at most"
        with path.open("ab") as file:
            file.write(b"\n" + content if held else content)
    except (OSError, ValueError) as error:
        return f"{path}: {getattr(error, 'strerror', None) or error}"
    return ""


def commands(run: Run, judgement: Judgement) -> list[str]:
    """Workflow commands, worst first: errors for what fails the gate, warnings for what is waived, improved or new."""
    if judgement.exit_code is ExitCode.NOTHING_MEASURED or not judgement.before.name:
        return [_command("error", "sqnr", [phrases.meaning(judgement), *judgement.notes])]
    found = sorted(changes(groups(run, judgement)), key=lambda change: WORST_FIRST.index(change.outcome))
    firm = [change for change in found if not change.waived and change.outcome not in _STALE]
    rest = [change for change in found if change.waived or change.outcome in _STALE]
    return [*_of_kind("error", firm), *_of_kind("warning", rest)]


def _of_kind(kind: str, found: list[Change]) -> list[str]:
    """The worst changes; where they are too many, the last of the lines that GitHub shows says how many are left."""
    shown = found if len(found) <= MOST_ANNOTATIONS else found[: MOST_ANNOTATIONS - 1]
    lines = [_command(kind, _title(change), _message(change)) for change in shown]
    if len(shown) < len(found):
        more = f"{len(found) - len(shown)} more row groups: see the job's summary, or verdict.json in the run's folder"
        lines.append(_command(kind, "sqnr", [more]))
    return lines


def _title(change: Change) -> str:
    return f"{change.outcome}: {shortened(str(change.case), _MOST_TITLE - 40)} {change.point}"


def _message(change: Change) -> list[str]:
    left = len(change.outputs) - _MOST_OUTPUTS
    lines = [
        *map(str, change.outputs[:_MOST_OUTPUTS]),
        f"and {left} more outputs" if left > 0 else "",
        change.quantizers,
        f"likely cause: {change.cause}" if change.cause else "",
        change.alike,
        f"waived: {change.waived}" if change.waived else "",
    ]
    return [line for line in lines if line]


def _command(kind: str, title: str, lines: Iterable[str]) -> str:
    """One workflow command; what users named stays inside its property or message."""
    message = "\n".join(shortened(visible(line), _MOST_PHRASE) for line in lines)
    return f"::{kind} title={_property(visible(title))}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
