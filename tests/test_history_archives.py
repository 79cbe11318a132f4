"""Runs in zip archives: found at any depth, read in memory, and never further than the limits."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from harness import history_sources
from harness.history_sources import collect
from tests.stored_runs import names, only_note, pack, save


@pytest.mark.parametrize("inside", ["", "a-run/", "reports/deep/a-run/", "./a-run/"])
def test_an_archive_holds_runs_at_any_depth(tmp_path: Path, inside: str) -> None:
    archive = pack(tmp_path / "zips" / "a-run.zip", save(tmp_path / "packed"), inside)
    assert names(archive) == ["a-run"]
    assert names(tmp_path / "zips") == ["a-run"]
    assert [path.name for path in (tmp_path / "zips").rglob("*")] == ["a-run.zip"]


def test_a_run_is_the_same_packed_and_unpacked(tmp_path: Path) -> None:
    folder = save(tmp_path / "reports" / "a")
    pack(tmp_path / "reports" / "artefacts" / "one.ZIP", folder, "a/")
    pack(tmp_path / "reports" / "two.zip", folder, "renamed/")
    assert len(names(tmp_path / "reports")) == 1


def test_several_runs_in_one_archive(tmp_path: Path) -> None:
    archive = pack(tmp_path / "ci.zip", save(tmp_path / "x"), "reports/x/")
    pack(archive, save(tmp_path / "y", row={"sqnr_db": 29.0}), "reports/y/")
    assert names(archive) == ["x", "y"]


@pytest.mark.parametrize("inside", ["../../a/", "/a/", "b/../../a/", "..\\..\\a/"])
def test_a_name_that_leads_out_of_the_archive_is_skipped(tmp_path: Path, inside: str) -> None:
    archive = pack(tmp_path / "in" / "deep" / "slip.zip", save(tmp_path / "packed"), inside)
    before = sorted(tmp_path.rglob("*"))
    assert only_note(archive) == f"skipped: {archive}: {inside}run.json: the name leads out of the archive"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bomb_is_unpacked_no_further_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MB of blanks pack into 8 kB."""
    monkeypatch.setattr(history_sources, "MOST_FILE_BYTES", 2**20)
    folder = save(tmp_path / "packed")
    (folder / "outputs.csv").write_bytes(b" " * 2**23)
    archive = pack(tmp_path / "bomb.zip", folder, "a/")
    assert archive.stat().st_size < 2**15
    assert only_note(archive).endswith("outputs.csv: over 1 MB, the most that is read of one file")


def test_many_small_bombs_are_stopped_by_what_they_come_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each header unpacks to 1 MB; after the third the limit of 2 MB for all is passed."""
    monkeypatch.setattr(history_sources, "MOST_ARCHIVE_BYTES", 2 * 2**20)
    archive = tmp_path / "bombs.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(100):
            packed.writestr(f"{number:03d}/run.json", b" " * 2**20)
    runs, notes = collect([archive])
    assert runs == []
    assert len(notes) == 4
    assert notes[-1] == f"skipped: {archive}: 003/run.json and what follows: over 2 MB in all"


def test_a_size_that_is_a_lie_is_damage(tmp_path: Path) -> None:
    """The central directory says 10 bytes; the checksum of ten bytes is another one."""
    archive = pack(tmp_path / "lie.zip", save(tmp_path / "packed"), "a/")
    content = bytearray(archive.read_bytes())
    place = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02"))
    for _ in range(content.count(b"PK\x01\x02")):
        place = content.index(b"PK\x01\x02", place)
        content[place + 24 : place + 28] = struct.pack("<I", 10)
        place += 4
    archive.write_bytes(content)
    assert "cannot be unpacked: BadZipFile: Bad CRC-32" in only_note(archive)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\0" * 1000, b"no zip"])
def test_what_is_no_archive_is_skipped_given_by_name_or_found(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.zip").write_bytes(content)
    for source in (tmp_path / "bad.zip", tmp_path):
        assert only_note(source).startswith(f"skipped: {tmp_path / 'bad.zip'}: cannot be read as a zip archive: ")


def test_a_damaged_member_is_skipped(tmp_path: Path) -> None:
    archive = pack(tmp_path / "bad.zip", save(tmp_path / "packed"), "a/")
    content = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as packed:
        start = packed.getinfo("a/outputs.csv").header_offset
    content[start + 60 : start + 160] = bytes(100)
    archive.write_bytes(content)
    assert "outputs.csv: cannot be unpacked: " in only_note(archive)


def test_an_encrypted_member_is_skipped(tmp_path: Path) -> None:
    archive = pack(tmp_path / "secret.zip", save(tmp_path / "packed"), "a/")
    content = bytearray(archive.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := content.find(mark, place + 1)) >= 0:
            content[place + flags] |= 1
    archive.write_bytes(content)
    assert "run.json: cannot be unpacked: RuntimeError" in only_note(archive)


def test_a_run_in_an_archive_without_its_table_is_skipped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "half.zip", "w") as packed:
        packed.write(save(tmp_path / "packed") / "run.json", "a/run.json")
    assert only_note(tmp_path / "half.zip") == f"skipped: {tmp_path / 'half.zip'}/a/outputs.csv: not in the archive"


def test_an_archive_in_an_archive_is_not_read_and_says_so(tmp_path: Path) -> None:
    inner = pack(tmp_path / "inner.zip", save(tmp_path / "packed"), "a/")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as packed:
        packed.write(inner, "deep/inner.zip")
    assert only_note(tmp_path / "outer.zip").endswith("deep/inner.zip: an archive in an archive is not read")


def test_an_archive_without_runs_says_so(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as packed:
        packed.writestr("readme.txt", "nothing")
    assert only_note(tmp_path / "other.zip").endswith("other.zip: holds no run (a folder with run.json)")
