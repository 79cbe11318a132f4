"""Writing baselines when something is in the way: a full disk, a folder, another accept."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from harness import baseline as baselines
from harness.errors import UsageError
from tests.rows import accepted, journal_entry, output_row

RESNET, VIT = output_row(), output_row(model="vit")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "baselines" / "linux-x86_64"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# A write that fails half way


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that fills up: writing more than `size` bytes into one file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_leaves_the_old_baseline_whole(folder: Path) -> None:
    old = accepted(RESNET, VIT, accepted=[journal_entry()])
    baselines.write(folder, old)
    many = [output_row(model="vit", output=f"output {i}") for i in range(1000)]  # about 100 bytes each
    new = accepted(replace(RESNET, sqnr_db=31.0), *many, accepted=[journal_entry(), journal_entry(because="more")])
    with files_of_at_most(10_000), pytest.raises(UsageError, match=r"vit\.outputs\.csv: cannot be written"):
        baselines.write(folder, new)
    assert baselines.read(folder) == old
    assert len(names(folder)) == 3


def test_a_folder_in_place_of_a_table_leaves_the_old_baseline_whole(folder: Path) -> None:
    old = accepted(RESNET, accepted=[journal_entry()])
    baselines.write(folder, old)
    obstacle = folder / "vit.outputs.csv"
    obstacle.mkdir()
    new = accepted(replace(RESNET, sqnr_db=31.0), VIT, accepted=[journal_entry(), journal_entry(because="more")])
    with pytest.raises(UsageError, match=r"vit\.outputs\.csv: cannot be written"):
        baselines.write(folder, new)
    obstacle.rmdir()
    assert baselines.read(folder) == old


def test_a_file_in_place_of_the_folder_is_one_clean_error(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        baselines.write(folder, accepted(RESNET))
    with pytest.raises(UsageError, match="cannot be written"):
        baselines.lock(folder)


# Two at once


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_LOCK_SECONDS", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_second_accept_gives_up_while_the_first_holds_the_baselines(folder: Path) -> None:
    with baselines.lock(folder), pytest.raises(UsageError, match="another accept has held the baselines"):
        baselines.lock(folder)


@pytest.mark.usefixtures("impatient")
def test_the_lock_is_free_after_release_and_another_platforms_was_never_taken(folder: Path) -> None:
    held = baselines.lock(folder)
    baselines.lock(folder.parent / "linux-aarch64").release()
    held.release()
    baselines.lock(folder).release()


def test_accepts_at_the_same_time_come_one_after_the_other_and_none_is_lost(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET))

    def accept(number: int) -> None:
        with baselines.lock(folder):
            present = baselines.read(folder)
            row = output_row(output=f"output {number}")
            present.outputs[row.key] = row
            present.accepted.append(journal_entry(because=str(number)))
            baselines.write(folder, present)

    in_threads(accept, 8)
    result = baselines.read(folder)
    assert len(result.outputs) == 9
    assert sorted(entry["because"] for entry in result.accepted) == list("01234567")


def in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_lock_file_is_no_table_and_does_not_lie_among_them(folder: Path) -> None:
    baselines.write(folder, accepted(RESNET))
    with baselines.lock(folder):
        assert names(folder) == ["environment.json", "resnet.outputs.csv"]
        assert baselines.read(folder).outputs == accepted(RESNET).outputs
