"""Each share-group alone in float and alone quantized; what was asked once is not asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import flows
from harness.errors import UsageError
from harness.locate.scene import Scene, level
from harness.locate.sensitivity import sensitivities
from tests.lab import adapter
from tests.locate.defects import injected, requantized, staged


@pytest.fixture
def scene() -> Scene:
    return staged(adapter(), "small", injected(convert=requantized("body:conv2d.input", scale=0.25)))[0]


def nothing(_done: int, _all: int) -> None:
    """No progress to show."""


def test_the_damaged_quantizer_helps_most_when_it_is_left_out_and_hurts_most_alone(
    scene: Scene, tmp_path: Path
) -> None:
    found = sensitivities(scene, "head", tmp_path / "kept.jsonl", nothing)
    assert "body:conv2d.input" in found[0].names
    assert len(found) == len(scene.quantized.quantizers.units)
    as_it_is = level(scene.outputs["head"])
    assert found[0].float_db is not None
    assert found[0].float_db > as_it_is + 5
    assert found[0].alone_db == min(one.alone_db or 0 for one in found)
    others = [one.float_db or 0 for one in found[1:]]
    assert max(others) < as_it_is + 1
    assert others == sorted(others, reverse=True)


def test_a_second_call_measures_nothing_and_says_the_same(scene: Scene, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    first = sensitivities(scene, "head", kept, nothing)
    before, content = scene.passes, kept.read_bytes()
    assert sensitivities(scene, "score", kept, nothing) != first  # the other output was measured with it
    assert sensitivities(scene, "head", kept, nothing) == first
    assert (scene.passes, kept.read_bytes()) == (before, content)


def test_a_call_that_was_cut_off_goes_on_where_it_ended(scene: Scene, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"

    def stop(done: int, _all: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sensitivities(scene, "head", kept, stop)
    assert len(kept.read_text().splitlines()) == 3
    with kept.open("a") as file:
        file.write('{"group": "[\\"cut sh')
    before = scene.passes
    found = sensitivities(scene, "head", kept, nothing)
    assert scene.passes - before == 2 * (len(found) - 3)


def test_answers_of_another_graph_are_not_taken_and_not_lost(scene: Scene, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    first = sensitivities(scene, "head", kept, nothing)
    sound, _, _ = staged(adapter(), "small", flows.load("x86-static"))
    found = sensitivities(sound, "head", kept, nothing)
    assert sound.passes == 2 * len(found)
    before = scene.passes
    assert sensitivities(scene, "head", kept, nothing) == first != found
    assert scene.passes == before


@pytest.mark.parametrize("line", ["{}", '{"group": "x"}', "[" * 100_000])
def test_a_line_that_is_no_answer_is_passed_over(scene: Scene, tmp_path: Path, line: str) -> None:
    kept = tmp_path / "kept.jsonl"
    first = sensitivities(scene, "head", kept, nothing)
    kept.write_text(line + "\n" + kept.read_text() + line)
    before = scene.passes
    assert sensitivities(scene, "head", kept, nothing) == first
    assert scene.passes == before


def test_a_folder_that_cannot_be_written_is_one_line(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        sensitivities(scene, "head", tmp_path / "file" / "kept.jsonl", nothing)
