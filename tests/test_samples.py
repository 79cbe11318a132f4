"""The file of per-sample sums: exact, readable without torch, and a clear error for anything else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness import samples
from harness.errors import TableError
from harness.store import load_run
from tests.rows import output_row, run_of

ROW = output_row()
NAME = "resnet/small/trained/x86-static/released/converted/logits"
SUMS = np.array([[0.1, 1e-300, 5e-324], [0.0, 1 / 3, 1e300]])


def test_text_for_a_part_file_keeps_every_bit() -> None:
    assert samples.decoded(samples.encoded(SUMS)).tobytes() == SUMS.tobytes()
    assert samples.encoded(None) == ""


def test_a_run_stores_them_by_row_key_and_they_come_back_to_the_last_bit(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROW)
    run.samples = {ROW.key: SUMS}
    run.save()
    assert samples.read(tmp_path)[NAME].tobytes() == SUMS.tobytes()
    assert load_run(tmp_path) == run
    assert not list(tmp_path.glob(".sqnr-*"))


def test_saving_a_run_that_was_loaded_leaves_them_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROW)
    run.samples = {ROW.key: SUMS}
    run.save()
    load_run(tmp_path).save()
    assert list(samples.read(tmp_path)) == [NAME]


def test_equal_sums_make_equal_files_in_whatever_order_they_were_measured(tmp_path: Path) -> None:
    keys = [output_row(output=name).key for name in ("a", "b")]
    for folder, order in (("one", keys), ("two", keys[::-1])):
        samples.write(tmp_path / folder, dict.fromkeys(order, SUMS))
    assert (tmp_path / "one" / samples.FILE).read_bytes() == (tmp_path / "two" / samples.FILE).read_bytes()


def test_reading_them_loads_no_torch(tmp_path: Path) -> None:
    samples.write(tmp_path, {ROW.key: SUMS})
    code = "import sys; from pathlib import Path; from harness import paired, samples; " \
           "print(len(samples.read(Path(sys.argv[1]))), 'torch' in sys.modules)"  # fmt: skip
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["1", "False"]


def damage_header(file: Path) -> None:
    file.write_bytes(b"\xff" * 8 + file.read_bytes()[8:])


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def with_tensor(tensor: np.ndarray) -> Callable[[Path], None]:
    return lambda file: save_file({NAME: tensor}, file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "not there; the run is of an older version or was not finished: measure again"),
        (lambda file: file.write_bytes(b""), "damaged: SafetensorError"),
        (damage_header, "damaged: SafetensorError"),
        (cut, "damaged: SafetensorError"),
        (with_tensor(np.ones((2, 3), np.float32)), f"'{NAME}': float32 [2, 3], not float64 [2, samples]"),
        (with_tensor(SUMS[0]), f"'{NAME}': float64 [3], not float64 [2, samples]"),
        (with_tensor(SUMS.T.copy()), f"'{NAME}': float64 [3, 2], not float64 [2, samples]"),
        (with_tensor(SUMS - 1), "a sum of squares is negative or not finite"),
        (with_tensor(SUMS * np.nan), "a sum of squares is negative or not finite"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_one_line_that_names_it(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    samples.write(tmp_path, {ROW.key: SUMS})
    damage(tmp_path / samples.FILE)
    with pytest.raises(TableError) as caught:
        samples.read(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / samples.FILE}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_safetensors_reads_it_as_it_is(tmp_path: Path) -> None:
    samples.write(tmp_path, {ROW.key: SUMS})
    assert list(load_file(tmp_path / samples.FILE)) == [NAME]
