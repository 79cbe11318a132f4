"""Reading and judging the committed baselines, beside what the csv module alone and pandas take for the same files.

Only ratios are asserted, of medians of rounds that alternate, so that all meet the same load.
"""

from __future__ import annotations

import csv
import datetime
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness import baseline as baselines
from harness.compare import Rows, compare
from harness.settings import Settings, parse_settings
from harness.verdicts import Verdict

pytestmark = pytest.mark.bench

FOLDER = Path(__file__).parents[2] / "baselines" / "linux-x86_64"
TODAY = datetime.date(2026, 1, 31)
ROUNDS = 5
ATTEMPTS = 3
MOST_READING = 7.0
"""Times what the csv module takes to split lines into cells: some 4.5. Checking each cell by itself takes 15."""
MOST_JUDGING = 6.0
"""In the same unit, without reading: some 3. What is worked out anew for each row, such as a set, makes it 25."""
OVERRIDDEN = {"override": [{"flow": "x86-*", "reason": "as a workspace has it", "tolerance": {"floor_db": 7.0}}]}


def by_csv_alone() -> int:
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.csv")]
    return sum(1 for text in texts for _ in csv.reader(io.StringIO(text, newline=""), strict=True))


def by_pandas() -> int:
    return sum(len(pd.read_csv(path)) for path in FOLDER.glob("*.csv"))


def read() -> Rows:
    accepted = baselines.read(FOLDER)
    return Rows(accepted.outputs, accepted.quantizers)


def judged(rows: Rows, settings: Settings) -> list[Verdict]:
    return compare(
        baseline=rows, measured=rows, in_scope=lambda _case: True, settings=settings, suite="gate", today=TODAY
    )


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """The lowest of a few medians."""
    found = []
    for _ in range(ATTEMPTS):
        rounds = [(_seconds(ours), _seconds(theirs)) for _ in range(ROUNDS)]
        found.append(statistics.median(mine for mine, _ in rounds) / statistics.median(other for _, other in rounds))
    print(f"ours / theirs = {', '.join(f'{one:.2f}' for one in found)}")
    return min(found)


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.fixture(scope="module")
def rows() -> Rows:
    return read()


def test_checked_rows_take_at_most_seven_times_what_splitting_lines_takes() -> None:
    assert ratio(read, by_csv_alone) <= MOST_READING


@pytest.mark.parametrize("table", [{}, OVERRIDDEN], ids=["defaults", "with an override"])
def test_judging_every_row_takes_at_most_six_times_what_splitting_lines_takes(
    rows: Rows, table: dict[str, object]
) -> None:
    settings = parse_settings(table, Path("pyproject.toml"))
    assert len(judged(rows, settings)) == len(rows.outputs) + len(rows.quantizers)
    assert ratio(lambda: judged(rows, settings), by_csv_alone) <= MOST_JUDGING


@pytest.mark.benchmark(group="reading the committed baselines", min_rounds=ROUNDS)
@pytest.mark.parametrize("function", [read, by_csv_alone, by_pandas])
def test_time_of_reading(benchmark: BenchmarkFixture, function: Callable[[], object]) -> None:
    benchmark(function)


@pytest.mark.benchmark(group="judging the committed baselines", min_rounds=ROUNDS)
def test_time_of_judging(benchmark: BenchmarkFixture, rows: Rows) -> None:
    benchmark(judged, rows, Settings())
