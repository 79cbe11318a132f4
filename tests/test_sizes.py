"""What an adapter offers, read without importing it; anything unusual is left to an import."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.adapter import Size
from harness.sizes import written_sizes

REPOSITORY = Path(__file__).parents[1]
IMPORT = "from harness.adapter import Batch, Size\n"


def _read(folder: Path, source: str) -> dict[str, Size] | None:
    path = folder / "model.py"
    path.write_text(source, encoding="utf-8")
    return written_sizes(path)


def test_literal_sizes_are_read_and_nothing_is_run(tmp_path):
    source = (
        IMPORT + 'raise SystemExit("imported")\nSIZES = {"small": Size(("seeded",), ("y",), labelled="y", cost=2.0)}\n'
    )
    assert _read(tmp_path, source) == {"small": Size(("seeded",), ("y",), labelled="y", cost=2.0)}


@pytest.mark.parametrize("name", ["bert", "convnext", "resnet", "slices", "vit"])
def test_every_model_of_this_repository_is_planned_without_an_import(name):
    sizes = written_sizes(REPOSITORY / "models" / f"{name}.py")
    assert sizes is not None
    assert set(sizes) == {"small", "full"}


@pytest.mark.parametrize(
    "source",
    [
        'SIZES = {"small": Size(("seeded",), ("y",))}\n',
        IMPORT + 'KIND = "seeded"\nSIZES = {"small": Size((KIND,), ("y",))}\n',
        IMPORT + 'SIZES = {"small": Size(("seeded",), ("y",))}\nSIZES = {}\n',
        IMPORT + 'SIZES = {"small": Size(("seeded",), ("y",))}\ndel SIZES\n',
        IMPORT + 'SIZES = {"small": Size(open("x"), ("y",))}\n',
        IMPORT + 'SIZES = {"small": Size("one", "two", "three", 4, 5, 6)}\n',
        IMPORT + "SIZES = 3\n",
        "def build(:\n",
        "",
    ],
)
def test_anything_else_is_left_to_an_import(tmp_path, source):
    assert _read(tmp_path, source) is None
