"""Judgements of made-up runs, for the reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.baseline import Baseline
from harness.compare import exit_code
from harness.judge import Judgement
from harness.records import Row
from harness.store import Run
from tests.judging import judge_all
from tests.rows import no_number, output_row, quantizer_row, run_of

ODD = "<script>|"
HOSTILE = (ODD, "a|b", "[link](http://x)", "*bold*", "`code`", "two\nlines", "back\\slash", "[red]", "\u202eright")


def judged(old: Iterable[Row], new: Iterable[Row], notes: tuple[str, ...] = ()) -> tuple[Run, Judgement]:
    """A run of `new` judged against a baseline of `old`."""
    before, after = list(old), list(new)
    verdicts = judge_all(before, after)
    run = run_of(Path("reports/20260131-120000-gate"), *after)
    return run, Judgement(tuple(verdicts), exit_code(verdicts), Baseline(), notes)


def nothing() -> tuple[Run, Judgement]:
    """No row on either side."""
    return judged([], [])


def all_failed() -> tuple[Run, Judgement]:
    """Every point of two models failed, and so there are no quantizers."""
    good = [output_row(model=model) for model in ("resnet", "vit")]
    bad = [no_number("failed:export", model=m, numel=None, ref_rms=None, error="boom") for m in ("resnet", "vit")]
    return judged(good, bad)


def all_none() -> tuple[Run, Judgement]:
    """Rows without a single number."""
    absent = dict.fromkeys(("scale", "zero_point", "lo", "hi", "clip_fraction", "sqnr_db", "sqnr_min_db", "axis"))
    rows = [no_number("empty", numel=None, ref_rms=None), quantizer_row(status="unquantized", role="weight", **absent)]
    return judged([], rows)


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
