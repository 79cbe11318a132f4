"""What `--bundle` does: a replay bundle for each failing row of a judged run."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from harness import bundle
from harness.errors import SqnrError, in_a_line
from harness.judge import Judgement
from harness.located import file_stem
from harness.records import Case, OutputRow
from harness.report import phrases
from harness.report.terminal import console, print_line
from harness.report.text import spoken
from harness.store import Run
from harness.verdicts import FAILING


def write_bundles(run: Run, judgement: Judgement, *, as_json: bool) -> None:
    """Write a bundle into the run's folder for each failing row, and say where, unless a program reads along.

    A verdict is worth more: what keeps a bundle from being written is said on standard error, not raised.
    """
    folders = []
    try:
        for folder, row, because in failing(run, judgement):
            folders.append(bundle.write(folder, row, run.quantizers, bundle.facts_of(run, row.case), because))
    except Exception as error:
        reason = str(error) if isinstance(error, SqnrError) else in_a_line(error)
        print(f"sqnr: not every failing row has a bundle: {spoken(reason)}", file=sys.stderr)
    if folders and not as_json:
        count = "1 bundle" if len(folders) == 1 else f"{len(folders)} bundles, the first"
        print_line(console(), f"{count}: {folders[0]}")


def failing(run: Run, judgement: Judgement) -> list[tuple[Path, OutputRow, list[str]]]:
    """The output rows that fail and are not waived, each with the folder of its bundle and what is wrong with it.

    Where only quantizers of a graph fail, the first output of that graph stands for them: its bundle holds them all. A
    row that is missing has nothing to be measured again.
    """
    rows = {row.key: row for row in run.outputs}
    first: dict[tuple[Case, str], OutputRow] = {}
    for row in sorted(run.outputs, key=lambda row: row.key):
        first.setdefault((row.case, row.point), row)
    bad = [verdict for verdict in judgement.verdicts if verdict.outcome in FAILING and not verdict.waived]
    wrong: dict[tuple[str, ...], list[str]] = {}
    graphs = set()
    for verdict in bad:
        if verdict.kind == "output" and verdict.key in rows:
            wrong.setdefault(verdict.key, []).append(phrases.verdict(verdict))
            graphs.add((verdict.case, verdict.point))
    for verdict in bad:
        graph = verdict.case, verdict.point
        if verdict.kind == "quantizer" and graph not in graphs and graph in first:
            wrong.setdefault(first[graph].key, []).append(phrases.verdict(verdict))
    taken: set[str] = set()
    found = []
    for key, because in wrong.items():
        stem = file_stem(rows[key].case, rows[key].point, rows[key].output)
        if stem in taken:  # two names may be alike once what file systems do not take is out of them
            stem = f"{stem}-{hashlib.sha256(repr(key).encode()).hexdigest()[:8]}"
        taken.add(stem)
        found.append((run.folder / bundle.FOLDER / stem, rows[key], because))
    return found
