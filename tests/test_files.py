"""Writing files: the old content or the new, and the permissions that people set."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.files import replace_all, write_atomically


@pytest.fixture
def umask() -> Iterator[None]:
    """New files are readable by their owner and group alone."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    """0666 without 0027."""
    write_atomically(tmp_path / "new.csv", "a")
    assert mode(tmp_path / "new.csv") == 0o640


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("kept", [0o600, 0o664, 0o755, 0o444])
def test_a_file_keeps_its_permissions(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "old.csv"
    file.write_text("old")
    file.chmod(kept)
    write_atomically(file, "new")
    assert (file.read_text(), mode(file)) == ("new", kept)


def test_a_link_stays_one_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_where_one_content_cannot_be_stored_every_file_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=f"{tmp_path / 'folder'}: cannot be written: Is a directory"):
        replace_all({tmp_path / "a": "new", tmp_path / "folder": "new"})
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]


def test_where_one_cannot_be_put_in_its_place_those_before_it_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def refuse_b(path: Path, target: Path) -> Path:
        if target.name == "b":
            raise PermissionError(1, "Operation not permitted")
        return replace(path, target)

    for name in "abc":
        (tmp_path / name).write_text("old")
    monkeypatch.setattr(Path, "replace", refuse_b)
    with pytest.raises(UsageError, match=f"{tmp_path / 'b'}: cannot be written: Operation not permitted"):
        replace_all({tmp_path / name: "new" for name in "abc"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "old", "c": "old"}


def test_a_name_as_long_as_the_system_takes_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), "a")
    assert [len(path.name) for path in tmp_path.iterdir()] == [255]


def test_what_utf8_cannot_say_is_written_as_an_escape(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "\udcff\n")
    assert (tmp_path / "a").read_bytes() == b"\\udcff\n"
