"""Reports of a run in which something was located: where it is shown, and what a damaged record costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import located
from harness.errors import TableError
from tests import located_records as records
from tests.program import sqnr
from tests.reported import REPORTS, files, reported, text


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = records.located(layers=(records.layer(), records.no_level("mismatch")), only_float=("a",))
    other = records.located(output="another", culprits=(records.culprit(new=None, readers=("a",)),))
    assert [located.write(tmp_path, one).name for one in (record, other)] == [
        "resnet-small-trained-x86-static-released-converted-logits.json",
        "resnet-small-trained-x86-static-released-converted-another.json",
    ]
    assert located.read(tmp_path) == [other, record]
    assert located.read(tmp_path / "nowhere") == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"schema": 2}'])
def test_a_damaged_record_is_named_and_the_others_are_read(tmp_path: Path, content: bytes) -> None:
    located.write(tmp_path, records.located())
    (tmp_path / "damaged.json").write_bytes(content)
    (tmp_path / "folder.json").mkdir()
    found, damaged = located.read_sound(tmp_path)
    assert found == [records.located()]
    assert [str(error).split(":")[0] for error in damaged] == [f"{tmp_path}/damaged.json", f"{tmp_path}/folder.json"]
    with pytest.raises(TableError, match=r"damaged\.json: no located case: .*; remove it, or locate again"):
        located.read(tmp_path)


def test_page_comment_and_pictures_show_what_was_located_in_the_run(tmp_path: Path) -> None:
    workspace = reported(tmp_path / "work")
    folder = workspace.reports / "bad"
    located.write(folder / located.FOLDER, records.located())
    found = sqnr(workspace.start, "report", "bad", "-o", str(tmp_path / "out"), "--figures", str(tmp_path / "drawn"))
    assert (found.returncode, found.stderr) == (0, "")
    assert 'id="culprits"' in text(tmp_path / "out")
    assert "## Culprits" in text(tmp_path / "out", "report.md")
    assert "layers-resnet-small-x86-static-released-converted-logits.svg" in files(tmp_path / "drawn")


def test_a_damaged_record_is_said_once_and_costs_neither_verdict_nor_reports(tmp_path: Path) -> None:
    workspace = reported(tmp_path / "work")
    folder = workspace.reports / "bad" / located.FOLDER
    located.write(folder, records.located())
    (folder / "damaged.json").write_text("{")
    found = sqnr(workspace.start, "check", "bad")
    assert found.returncode == 1, "the verdict is that of the rows"
    assert [line.split(": no located case")[0] for line in found.stderr.splitlines()] == [
        f"sqnr: left out of the report: {folder / 'damaged.json'}"
    ]
    assert files(workspace.reports / "bad") >= REPORTS
    assert "10.00 dB as it is" in text(workspace.reports / "bad")
    pictured = sqnr(workspace.start, "report", "bad", "--figures", str(tmp_path / "drawn"))
    assert (pictured.returncode, pictured.stderr.count("damaged.json")) == (0, 1)
