"""A history's file: what is none is named and left alone, and nothing is lost where it cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from harness import history
from harness.errors import ExitCode, TableError, UsageError
from tests.stored_runs import stored


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "history.parquet"


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _text(file: Path) -> None:
    file.write_text("run_id,run\n")


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)
    file.write_bytes(content)


def _with_schema(number: bytes) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        table = parquet.read_table(file)
        parquet.write_table(table.replace_schema_metadata({b"sqnr_history_schema": number}), file)

    return change


def _without_a_column(file: Path) -> None:
    parquet.write_table(parquet.read_table(file).drop_columns(["nodes"]), file)


def _foreign(file: Path) -> None:
    parquet.write_table(pyarrow.table({"a": [1]}), file)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_truncated, "cannot be read as parquet"),
        (_empty, "cannot be read as parquet"),
        (_text, "cannot be read as parquet"),
        (_flipped, "cannot be read as parquet"),
        (_with_schema(b"2"), "schema 2, this version reads 3"),
        (_with_schema(b"\xff"), "this version reads 3"),
        (_without_a_column, "its columns are not those of schema 3"),
        (_foreign, "no history of runs"),
    ],
)
def test_a_file_that_is_no_history_is_named_and_left_as_it_was(
    file: Path, spoil: Callable[[Path], None], said: str
) -> None:
    history.append(file, [stored(1)])
    spoil(file)
    before = file.read_bytes()
    for use in (history.read, history.known_ids, lambda path: history.append(path, [stored(2)])):
        with pytest.raises(TableError, match=said) as caught:
            use(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert "\n" not in str(caught.value)
    assert file.read_bytes() == before
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_folder_that_cannot_be_made_is_one_clean_error(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written") as caught:
        history.append(tmp_path / "reports" / "history.parquet", [stored(1)])
    assert str(tmp_path / "reports") in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to the superuser")
def test_a_read_only_folder_is_one_clean_error_and_loses_nothing(file: Path) -> None:
    history.append(file, [stored(1)])
    before = file.read_bytes()
    file.parent.chmod(0o555)
    try:
        with pytest.raises(UsageError, match="cannot be written"):
            history.append(file, [stored(2)])
    finally:
        file.parent.chmod(0o755)
    assert file.read_bytes() == before


def test_a_full_disk_is_one_clean_error_and_loses_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.append(file, [stored(1)])
    before = file.read_bytes()

    def full(_handle: int) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(UsageError, match="cannot be written: No space left"):
            history.append(file, [stored(2)])
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir() if not path.name.endswith(".lock")] == [file.name]
    assert history.append(file, [stored(2)]) == 1


def test_who_waits_too_long_for_another_process_is_told_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_LOCK_SECONDS", 0.05)
    with history._locked(file), pytest.raises(UsageError, match=r"another process has held the history"):
        history.append(file, [stored(1)])


def test_without_pyarrow_the_extra_to_install_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pyarrow.*: pip install 'sqnr-harness\[report\]'"):
        history.append(file, [stored(1)])
