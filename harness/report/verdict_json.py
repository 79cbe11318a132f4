"""verdict.json: the judgement for programs. Numbers are exact; what is not finite is null.

verdict.schema.json, beside this file, says what each property is.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from importlib.resources import files
from typing import Any

from harness import __version__
from harness.errors import SqnrError
from harness.judge import Judgement, coverage
from harness.records import QuantizerRow
from harness.report.causes import likely_cause
from harness.report.changes import siblings
from harness.report.groups import groups
from harness.store import Run
from harness.verdicts import Outcome, Verdict

SCHEMA = 2
"""Raised when a property changes its meaning or goes; the schema's `$id` ends with it."""


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of everything that this module renders."""
    text = (files("harness.report") / "verdict.schema.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def render(run: Run, judgement: Judgement) -> str:
    """JSON text; `verdicts` holds every row that is not `ok`, worst first."""
    counts = Counter(verdict.outcome for verdict in judgement.verdicts)
    by_case: dict[str, list[QuantizerRow]] = defaultdict(list)
    for row in run.quantizers:
        by_case[str(row.case)].append(row)
    found = groups(run, judgement)
    by_point = siblings(found)
    causes = {(group.case, group.point): likely_cause(group, by_point[group.case]) for group in found}
    covered = {case: coverage(rows) for case, rows in sorted(by_case.items())}
    content = {
        "schema": SCHEMA,
        "harness": __version__,
        "run": run.name,
        "suite": run.plan.suite,
        "base": judgement.before.name,
        "exit_code": int(judgement.exit_code),
        "outcome": judgement.exit_code.name.lower(),
        "counts": {outcome.value: counts[outcome] for outcome in Outcome},
        "waived": sum(1 for verdict in judgement.verdicts if verdict.waived),
        "notes": list(judgement.notes),
        "environment": run.environment,
        "coverage": {
            case: {"quantized": c.quantized, "quantizable": c.quantizable, "in_float": list(c.rest)}
            for case, c in covered.items()
        },
        "verdicts": [
            _verdict(verdict, causes[verdict.case, verdict.point])
            for verdict in judgement.verdicts
            if verdict.outcome is not Outcome.OK
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def render_error(run: Run, error: SqnrError) -> str:
    """JSON text for a run that could not be judged: no baselines, or unreadable ones."""
    content = {
        "schema": SCHEMA,
        "harness": __version__,
        "run": run.name,
        "suite": run.plan.suite,
        "exit_code": int(error.exit_code),
        "outcome": error.exit_code.name.lower(),
        "error": str(error),
    }
    return json.dumps(content, indent=1) + "\n"


def _verdict(verdict: Verdict, cause: str) -> dict[str, Any]:
    case = verdict.case
    return {
        "model": case.model,
        "size": case.size,
        "weights": case.weights,
        "flow": case.flow,
        "variant": case.variant,
        "kind": verdict.kind,
        "point": verdict.point,
        "name": verdict.name,
        "outcome": verdict.outcome.value,
        "waived": verdict.waived,
        "error": verdict.error,
        "cause": cause,
        "loss_db": verdict.loss_db if math.isfinite(verdict.loss_db) else None,
        "findings": [
            {"field": f.field, "old": f.old, "new": f.new, "allowed": f.allowed, "limit": f.limit}
            for f in verdict.findings
        ],
    }
