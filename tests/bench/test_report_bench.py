"""Every report of a nightly-sized run, and of 5,000 quantizers with a history of 10,000 rows.

Sizes are asserted as they are, times only as ratios to what reading the committed baselines takes, of medians of
rounds that alternate, so that all meet the same load.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness import baseline as baselines
from harness.compare import Rows, compare, exit_code
from harness.judge import Before, Judgement
from harness.records import Row
from harness.report.html import page
from harness.report.html.timeline import Timeline, timeline
from harness.settings import Settings
from harness.steps import find_steps
from harness.store import Run
from harness.verbs.reporting import write_reports
from tests.histories import frame_of, series
from tests.judging import TODAY
from tests.rows import by_key, output_row, outputs_of, quantizer_row, quantizers_of, run_of

FOLDER = Path(__file__).parents[2] / "baselines" / "linux-x86_64"
ROUNDS = 3
MOST_BYTES = 6_000_000
MOST_RENDERING = 15.0
"""Times what reading and checking the committed baselines takes: some 5."""

Made = tuple[Run, Judgement]


def judged(old: list[Row], new: list[Row]) -> Made:
    before = Rows(by_key(outputs_of(old)), by_key(quantizers_of(old)))
    verdicts = compare(
        baseline=before, measured=Rows(by_key(outputs_of(new)), by_key(quantizers_of(new))),
        in_scope=lambda _case: True, settings=Settings(), suite="nightly", today=TODAY,
    )  # fmt: skip
    return run_of(Path("reports/nightly"), *new), Judgement(
        tuple(verdicts), exit_code(verdicts), Before("baseline linux-x86_64", before)
    )


@pytest.fixture(scope="module")
def nightly() -> Made:
    """The committed rows of full size, of which each tenth output loses 3 dB and each tenth range is half as wide."""
    accepted = baselines.read(FOLDER)
    old: list[Row] = [row for row in (*accepted.outputs.values(), *accepted.quantizers.values()) if row.size == "full"]
    new = list(old)
    for place in range(0, len(old), 10):
        row = new[place]
        if row.sqnr_db is not None:
            new[place] = replace(row, sqnr_db=row.sqnr_db - 3.0)
    assert len(new) > 9000
    return judged(old, new)


@pytest.fixture(scope="module")
def large() -> Made:
    """5,000 quantizers of one case, all of which moved."""
    old: list[Row] = [quantizer_row(quantizer=f"encoder.layer{n}:conv2d.input", hi=1.0 + n / 1000) for n in range(5000)]
    return judged([output_row(), *old], [output_row(sqnr_db=20.0), *(replace(row, hi=0.5) for row in old)])


@pytest.fixture(scope="module")
def history() -> pd.DataFrame:
    """10,000 rows: 200 outputs over 50 runs, of which half drop once."""
    return frame_of(*(series([40.0] * 25 + [40.0 - number % 2] * 25, output=f"head{number}") for number in range(200)))


def drawn(history: pd.DataFrame) -> Timeline:
    return timeline(history, find_steps(history))


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def test_the_page_of_a_nightly_run_is_under_six_megabytes(nightly: Made) -> None:
    assert len(page.render(*nightly).encode()) < MOST_BYTES


def test_the_page_of_five_thousand_quantizers_and_a_long_history_is_under_six_megabytes(
    large: Made, history: pd.DataFrame
) -> None:
    assert len(page.render(*large, drawn(history)).encode()) < MOST_BYTES


@pytest.mark.bench
def test_all_reports_take_at_most_fifteen_times_what_reading_the_baselines_takes(nightly: Made, tmp_path: Path) -> None:
    rounds = [
        (_seconds(lambda: write_reports(*nightly, tmp_path)), _seconds(lambda: baselines.read(FOLDER)))
        for _ in range(ROUNDS)
    ]
    found = statistics.median(mine for mine, _ in rounds) / statistics.median(other for _, other in rounds)
    print(f"ours / theirs = {found:.1f}")
    assert found <= MOST_RENDERING


@pytest.mark.bench
@pytest.mark.benchmark(group="reports", min_rounds=ROUNDS)
def test_time_of_all_reports_of_a_nightly_run(benchmark: BenchmarkFixture, nightly: Made, tmp_path: Path) -> None:
    benchmark(write_reports, *nightly, tmp_path)


@pytest.mark.bench
@pytest.mark.benchmark(group="reports", min_rounds=ROUNDS)
def test_time_of_the_page_of_a_nightly_run(benchmark: BenchmarkFixture, nightly: Made) -> None:
    benchmark(page.render, *nightly)


@pytest.mark.bench
@pytest.mark.benchmark(group="reports", min_rounds=ROUNDS)
def test_time_of_all_reports_of_five_thousand_quantizers_and_a_long_history(
    benchmark: BenchmarkFixture, large: Made, history: pd.DataFrame, tmp_path: Path
) -> None:
    benchmark(lambda: write_reports(*large, tmp_path, drawn(history)))
