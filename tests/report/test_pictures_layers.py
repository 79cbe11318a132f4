"""Pictures of dB along the network: what is in them, what they leave out, and names that stay names."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.located import Located
from harness.report import pictures
from tests.located_records import called, culprit, layer, located, no_level
from tests.report.test_pictures import HOSTILE, RUN, texts
from tests.rows import run_of

pytest.importorskip("matplotlib")


def drawn(folder: Path, *records: Located) -> list[str]:
    """Stems of the pictures of these records, which must be there as SVG and PNG."""
    paths = pictures.draw(run_of(RUN), folder, records)
    assert [path.suffix for path in paths] == [".svg", ".png"] * len(records)
    return [path.stem for path in paths[::2]]


def test_a_located_output_has_its_layers_its_worst_decibels_and_its_culprit_in_words(tmp_path: Path) -> None:
    lossy, exact = layer(name="select", local_db=0.34), layer(name="cat", local_db=160.0)
    layers = (layer(name="slice"), lossy, exact, no_level("mismatch", name="fc"))
    record = located(layers=layers, culprits=(culprit(names=("select.self",), local_db=0.34),))
    (stem,) = drawn(tmp_path, record)
    assert stem == "layers-resnet-small-x86-static-released-converted-logits"
    shown = texts(tmp_path / f"{stem}.svg")
    assert {"slice", "select", "cat", "fc", "0.34 dB", "accumulated", "local: by itself", "culprit", "no dB"} <= set(
        shown
    )
    assert "local, above 50 dB or exact" in shown
    assert "dB along the network; run 20260131-120000-gate" in shown
    assert any(
        "1. select.self: range [-1, 1.7] -> [0, 100] explains 27.0 of 30.0 dB (clipping" in text for text in shown
    )
    assert any("40.00 dB with +fix" in text for text in shown)


def test_eight_hundred_layers_give_a_small_file_and_are_counted_instead_of_named(tmp_path: Path) -> None:
    record = located(layers=tuple(layer(name=f"l{n}", sqnr_db=20.0 + n % 17) for n in range(800)))
    (stem,) = drawn(tmp_path, record)
    assert (tmp_path / f"{stem}.svg").stat().st_size < 150_000
    shown = texts(tmp_path / f"{stem}.svg")
    assert "800 layers, in order of execution" in shown
    assert "l0" not in shown


def test_a_long_list_of_culprits_is_cut_and_says_so(tmp_path: Path) -> None:
    (stem,) = drawn(tmp_path, located(culprits=tuple(culprit(names=(f"a{n}:mul.self",)) for n in range(40))))
    assert any("and 30 more culprits" in text for text in texts(tmp_path / f"{stem}.svg"))


def test_a_record_without_layers_has_no_picture_and_of_too_many_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MOST_LAYER_PLOTS", 1)
    records = [located(output="a", layers=()), located(output="b"), located(output="c")]
    paths = pictures.draw(run_of(RUN), tmp_path, records)
    assert [path.name for path in paths[::2]] == ["layers-resnet-small-x86-static-released-converted-b.svg"]
    assert pictures.left_out(run_of(RUN), records) == ["no picture of the layers of 1 more located outputs"]
    assert pictures.left_out(run_of(RUN), records[:2]) == []


def test_the_same_record_gives_the_same_files(tmp_path: Path) -> None:
    first, second = (pictures.draw(run_of(RUN), tmp_path / name, [located()]) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_text_of_users_stays_text(tmp_path: Path) -> None:
    (stem,) = drawn(tmp_path, called(HOSTILE))
    joined = "".join(texts(tmp_path / f"{stem}.svg"))
    assert "<script>" in joined
    assert not any(sign in joined for sign in "\u202e\x1b\x00")
