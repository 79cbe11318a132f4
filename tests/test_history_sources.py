"""Where runs are found for the history: folders and archives, and a reason for each that is passed over."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import history_sources
from harness.errors import UsageError
from harness.history_sources import collect
from harness.store import INTERRUPTED, RUNNING
from tests.rows import output_row, quantizer_row, run_of


def save(folder: Path, **changes: Any) -> Path:
    """A stored run in `folder`; of 30 dB, complete, unless told otherwise."""
    row = output_row(**changes.pop("row", {}))
    run_of(folder, row, quantizer_row(), **changes).save()
    return folder


def edit(folder: Path, **changes: Any) -> None:
    """Change the header of a stored run."""
    file = folder / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def pack(archive: Path, folder: Path, inside: str) -> Path:
    """A zip archive with what lies in `folder`, as if that were called `inside`."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.iterdir()):
            packed.writestr(f"{inside}{file.name}", file.read_bytes())  # `write` would mend the name
    return archive


def names(*sources: Path) -> list[str]:
    """Names of the runs in sources without any note."""
    runs, notes = collect(sources)
    assert notes == []
    return [stored.run.name for stored in runs]


def only_note(*sources: Path) -> str:
    """The one note of sources without any run."""
    runs, notes = collect(sources)
    assert runs == []
    [note] = notes
    assert "\n" not in note
    return note


# Folders


def test_runs_are_found_at_any_depth_oldest_first(tmp_path: Path) -> None:
    save(tmp_path / "a" / "deep" / "late", started="2026-03-01T00:00:00+00:00")
    save(tmp_path / "early", started="2026-01-01T00:00:00+00:00")
    save(tmp_path / "b" / "middle", started="2026-02-01T00:00:00+00:00")
    assert names(tmp_path) == ["early", "middle", "late"]


def test_a_runs_own_folder_works_also_as_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "a-run")
    assert names(folder) == ["a-run"]
    monkeypatch.chdir(folder)
    assert names(Path()) == ["a-run"]


def test_a_run_has_its_output_rows_and_its_start_in_utc(tmp_path: Path) -> None:
    save(tmp_path / "a", started="2026-01-31T12:00:00+02:00", row={"sqnr_db": 12.5})
    [stored], _ = collect([tmp_path])
    assert stored.started == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert [row.sqnr_db for row in stored.run.outputs] == [12.5]
    assert stored.run.quantizers == []


def test_the_quantizers_table_is_not_needed(tmp_path: Path) -> None:
    (save(tmp_path / "a") / "quantizers.csv").unlink()
    assert names(tmp_path) == ["a"]


def test_interrupted_runs_count(tmp_path: Path) -> None:
    save(tmp_path / "a", status=INTERRUPTED)
    assert names(tmp_path) == ["a"]


def test_a_run_found_twice_is_one_and_two_of_one_name_are_two(tmp_path: Path) -> None:
    save(tmp_path / "one" / "same-name")
    save(tmp_path / "two" / "same-name", row={"sqnr_db": 31.0})
    shutil.copytree(tmp_path / "one", tmp_path / "copied")
    assert names(tmp_path, tmp_path / "one", tmp_path / "two" / "same-name") == ["same-name", "same-name"]


def test_known_runs_are_left_out_without_a_note(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / name, row={"output": name})
    runs, _ = collect([tmp_path])
    left, notes = collect([tmp_path], known={runs[0].run_id})
    assert [stored.run.name for stored in left] == [runs[1].run.name]
    assert notes == []


def test_a_source_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere: no such folder or archive"):
        collect([tmp_path / "nowhere"])


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    assert only_note(tmp_path) == f"{tmp_path}: holds no run (a folder with run.json)"


# What is passed over, and why


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": RUNNING}, "the run has not finished, or was killed"),
        ({"status": "lost"}, "cannot be read: ValueError: status 'lost'"),
        ({"schema": 1}, "schema 1, this version reads 2"),
        ({"plan": 3}, "cannot be read: TypeError"),
        ({"environment": []}, "environment must be an object"),
        ({"started": "yesterday"}, "started: 'yesterday' is no ISO 8601 time"),
        ({"started": None}, "started: None is no ISO 8601 time"),
        ({"started": "0001-01-01T00:00:00+14:00"}, "is no ISO 8601 time"),
    ],
)
def test_a_run_of_another_kind_is_skipped_and_the_others_are_not(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    edit(save(tmp_path / "bad", row={"output": "other"}), **changes)
    save(tmp_path / "good")
    runs, [note] = collect([tmp_path])
    assert [stored.run.name for stored in runs] == ["good"]
    assert note.startswith(f"skipped: {tmp_path / 'bad'}")
    assert said in note


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 2}', "[" * 100_000, '{"schema": NaN}'])
def test_a_header_that_is_none_is_skipped(tmp_path: Path, text: str) -> None:
    (save(tmp_path / "a") / "run.json").write_text(text)
    assert only_note(tmp_path).startswith(f"skipped: {tmp_path / 'a' / 'run.json'}: ")


def test_a_damaged_table_is_skipped_naming_file_line_and_column(tmp_path: Path) -> None:
    table = save(tmp_path / "a") / "outputs.csv"
    table.write_text(table.read_text().replace(",30.0,", ",nan,"))
    assert only_note(tmp_path).startswith(f"skipped: {table}:2: column sqnr_db: 'nan'")


def test_a_run_without_its_table_or_without_rows_is_skipped(tmp_path: Path) -> None:
    (save(tmp_path / "a") / "outputs.csv").unlink()
    assert "outputs.csv: cannot be read: No such file" in only_note(tmp_path)
    table = save(tmp_path / "a") / "outputs.csv"
    table.write_text(table.read_text().splitlines()[0] + "\n")
    assert only_note(tmp_path) == f"skipped: {tmp_path / 'a'}: the run has no output rows"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    table = save(tmp_path / "a") / "outputs.csv"
    table.unlink()
    table.symlink_to("/dev/zero")
    assert only_note(tmp_path) == f"skipped: {table}: not a file"


def test_a_huge_file_is_read_no_further_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_sources, "MOST_FILE_BYTES", 2**20)
    with (save(tmp_path / "a") / "outputs.csv").open("r+b") as table:
        table.truncate(2**40)
    assert only_note(tmp_path).endswith("outputs.csv: over 1 MB, the most that is read of one file")


# Archives


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
