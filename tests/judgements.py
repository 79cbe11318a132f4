"""Judgements of made-up runs, for the reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from harness.compare import Rows, exit_code
from harness.judge import Before, Judgement
from harness.records import Row
from harness.store import Run
from tests.judging import judge_all
from tests.rows import (
    by_key,
    lost_edge,
    no_number,
    output_row,
    outputs_of,
    quantizer_row,
    quantizers_of,
    repaired_row,
    run_of,
)

ODD = "<script>|"
HOSTILE = (ODD, "a|b", "[link](http://x)", "*bold*", "`code`", "two\nlines", "back\\slash", "[red]", "\u202eright")


def judged(old: Iterable[Row], new: Iterable[Row], notes: tuple[str, ...] = ()) -> tuple[Run, Judgement]:
    """A run of `new` judged against a baseline of `old`."""
    old, new = list(old), list(new)
    verdicts = judge_all(old, new)
    before = Before("baseline linux-x86_64", Rows(by_key(outputs_of(old)), by_key(quantizers_of(old))))
    run = run_of(Path("reports/20260131-120000-gate"), *new)
    return run, Judgement(tuple(verdicts), exit_code(verdicts), before, notes)


def nothing() -> tuple[Run, Judgement]:
    """No row on either side."""
    return judged([], [])


def all_failed() -> tuple[Run, Judgement]:
    """Every point of two models failed, and so there are no quantizers."""
    good = [output_row(model=model) for model in ("resnet", "vit")]
    bad = [no_number("failed:export", model=model, error="boom") for model in ("resnet", "vit")]
    return judged(good, bad)


def all_none() -> tuple[Run, Judgement]:
    """Rows without a single number."""
    return judged([], [no_number("empty", numel=None, ref_rms=None), lost_edge(role="weight", cause="")])


def one_of_each() -> tuple[Run, Judgement]:
    """Two rows that are not finite or worse, one of each other outcome, one ok."""
    names = ("ok", "improved", "regressed", "changed", "missing")
    old = {name: output_row(output=name) for name in names}
    new = [
        old["ok"],
        output_row(output="improved", sqnr_db=40.0),
        output_row(output="regressed", sqnr_db=24.0),
        output_row(output="changed", numel=1),
        output_row(output="new"),
        no_number("failed:export", output="failed", error="boom"),
        no_number("nonfinite_actual", output="nan"),
    ]
    return judged(old.values(), new)


def hostile() -> tuple[Run, Judgement]:
    """Outputs and quantizers with names that mean something to markdown, HTML, a terminal or a reader."""
    old = [output_row(output=name) for name in HOSTILE] + [quantizer_row(quantizer=n, role="weight") for n in HOSTILE]
    bad = [output_row(output=name, sqnr_db=1.0) for name in HOSTILE]
    gone = [quantizer_row(quantizer=name, role="weight", status="unquantized") for name in HOSTILE]
    return judged(old, [*bad, *gone], notes=(f"expired: {ODD}",))


def hostile_fixes() -> tuple[Run, Judgement]:
    """For each such name a fix that gains 10 dB and doubles a range bound, one that idles, and one that fails."""
    rows: list[Row] = []
    for name in HOSTILE:
        rows += [output_row(output=name, sqnr_db=20.0), quantizer_row(quantizer=name, hi=1.0)]
        rows += [repaired_row(output=name), quantizer_row(quantizer=name, variant="+fix", hi=2.0)]
        rows += [output_row(output=name, variant=f"+idle {name}", fix_state="inert")]
        rows += [no_number("failed:lower", output=name, variant=f"+broken {name}", fix_state="unknown", error=name)]
    return judged(rows, rows)


EVERY: tuple[Callable[[], tuple[Run, Judgement]], ...] = (
    nothing, all_failed, all_none, one_of_each, hostile, hostile_fixes
)  # fmt: skip
"""All of the above."""
