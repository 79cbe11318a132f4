"""Static pictures: which are drawn, that text stays text and inside, and that the same run gives the same files."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness import extra
from harness.errors import UsageError
from harness.records import QuantizerRow, Row
from harness.report import pictures
from harness.report.pictures import draw, left_out
from tests.rows import lost_edge, no_number, output_row, quantizer_row, repaired_row, run_of

pytest.importorskip("matplotlib")

HOSTILE = '<script>alert(1)</script>\n\u202e$\\frac{1}{0}$ & "\x00\x1b _\ud800'
RUN = Path("20260131-120000-gate")
SVG = "{http://www.w3.org/2000/svg}"


def names(folder: Path, *rows: Row) -> list[str]:
    """Stems of the pictures of a run of these rows, which must be there as SVG and PNG."""
    paths = draw(run_of(RUN, *rows), folder)
    assert all(path.stat().st_size > 0 for path in paths)
    assert [path.suffix for path in paths] == [".svg", ".png"] * (len(paths) // 2)
    return [path.stem for path in paths[::2]]


def texts(file: Path) -> list[str]:
    """All text of an SVG; raises if it is not well-formed."""
    return ["".join(item.itertext()) for item in ElementTree.parse(file).iter(f"{SVG}text")]


def widened(count: int, **changes: float) -> list[QuantizerRow]:
    """Quantizers whose bound of 1, below the 2 they see, a fix moves to 4."""
    rows = [quantizer_row(quantizer=f"layer{n}:mul.self", hi=1.0, observed_hi=2.0, **changes) for n in range(count)]
    return rows + [replace(row, variant="+fix", hi=4.0) for row in rows]


def test_a_run_has_a_fix_matrix_the_bounds_that_moved_and_the_ranges_of_released_code(tmp_path: Path) -> None:
    assert names(tmp_path, output_row(), repaired_row(), *widened(2)) == [
        "fix-matrix", "range-bounds-resnet-small-x86-static-fix", "range-plot-resnet-small-x86-static"
    ]  # fmt: skip


def test_one_moved_bound_is_no_picture(tmp_path: Path) -> None:
    assert names(tmp_path, *widened(1)) == ["range-plot-resnet-small-x86-static"]


def test_without_rows_there_is_no_picture_and_no_folder(tmp_path: Path) -> None:
    assert names(tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


def test_a_run_in_which_all_failed_shows_the_stages(tmp_path: Path) -> None:
    rows = [no_number("failed:export", variant=variant) for variant in ("released", "+fix")]
    assert names(tmp_path, *rows) == ["fix-matrix"]
    assert texts(tmp_path / "fix-matrix.svg").count("! export") == 2


def test_the_fix_matrix_names_rows_flows_and_variants_and_explains_the_signs_it_shows(tmp_path: Path) -> None:
    inert = repaired_row(fix_state="inert", sqnr_db=31.25)
    names(tmp_path, output_row(sqnr_db=31.25), inert, repaired_row(variant="+a+b", sqnr_db=40.0))
    shown = texts(tmp_path / "fix-matrix.svg")
    assert {"resnet/small logits", "x86-static", "released", "+fix", "+a", "+b", "31.2", "= 31.2", "40.0"} <= set(shown)
    assert any(text.startswith("inert: ") for text in shown)
    assert not any(text.startswith(("upstreamed: ", "failed: ")) for text in shown)


def test_a_large_fix_matrix_says_what_is_left_out_and_stays_small(tmp_path: Path) -> None:
    rows = [
        output_row(output=f"head{head}", flow=f"flow{flow}", variant=variant)
        for head in range(40)
        for flow in range(10)
        for variant in ("released", "+a")
    ]
    names(tmp_path, *rows)
    shown = texts(tmp_path / "fix-matrix.svg")
    assert {"left out for want of room: 20 rows", "left out for want of room: 4 columns"} <= set(shown)
    assert (tmp_path / "fix-matrix.svg").stat().st_size < 150_000


def test_moved_bounds_are_counted_and_those_that_clip_are_marked(tmp_path: Path) -> None:
    fits = quantizer_row(quantizer="fits", hi=3.0, observed_hi=2.0)
    names(tmp_path, *widened(2), fits, replace(fits, variant="+fix", hi=4.0))
    shown = texts(tmp_path / "range-bounds-resnet-small-x86-static-fix.svg")
    assert "3 range bounds moved; 2 clip as released; run 20260131-120000-gate" in shown
    assert {"layer0:mul.self", "released bound", "released bound, clips", "repaired bound"} <= set(shown)


def test_a_quantizer_that_a_fix_takes_away_is_said_to_be_on_one_side_only(tmp_path: Path) -> None:
    rows = [row(quantizer=name) for name in "ab" for row in (quantizer_row, lambda **k: lost_edge(variant="+fix", **k))]
    names(tmp_path, *rows)
    (note,) = (t for t in texts(tmp_path / "range-bounds-resnet-small-x86-static-fix.svg") if "moved;" in t)
    assert "2 with a quantizer on one side only" in note


def test_ranges_are_classed_by_their_clipped_share_and_the_worst_are_named(tmp_path: Path) -> None:
    shares = {"whole": 0.0, "little": 0.001, "some": 0.01, "much": 0.5}
    rows: list[Row] = [quantizer_row(quantizer=name, clip_fraction=share) for name, share in shares.items()]
    rows += [
        quantizer_row(quantizer="bias", role="bias"),
        quantizer_row(quantizer="unseen", observed_lo=None, observed_hi=None),
    ]
    names(tmp_path, *rows)
    shown = texts(tmp_path / "range-plot-resnet-small-x86-static.svg")
    assert {"none   (1)", "up to 0.1 %   (1)", "0.1 to 1 %   (1)", "over 1 %   (1)"} <= set(shown)
    assert {"1   much   50 %", "2   some   1 %"} <= set(shown)
    assert any(text.startswith("4 quantizers at converted, 2 not drawn") for text in shown)


def test_ranges_are_those_of_the_last_point_that_has_something_to_show(tmp_path: Path) -> None:
    unseen = quantizer_row(point="lowered", flow="b", observed_lo=None, observed_hi=None, clip_fraction=None)
    names(tmp_path, quantizer_row(), quantizer_row(point="lowered"), quantizer_row(flow="b"), unseen)
    for flow, point in (("x86-static", "lowered"), ("b", "converted")):
        shown = texts(tmp_path / f"range-plot-resnet-small-{flow}.svg")
        assert any(text.startswith(f"1 quantizers at {point}") for text in shown)


def test_of_too_many_flows_those_with_fixes_are_plotted_and_the_others_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MOST_RANGE_PLOTS", 2)
    rows = [
        quantizer_row(flow=flow, clip_fraction=share) for flow, share in zip("abcd", (0.1, 0.3, 0.2, 0.9), strict=True)
    ]
    assert left_out(run_of(RUN, *rows[:2])) == []
    mended = [repaired_row(flow=flow) for flow in "abc"]
    run = run_of(RUN, *mended, *rows)
    assert [path.stem for path in draw(run, tmp_path)[2::2]] == [
        "range-plot-resnet-small-b",
        "range-plot-resnet-small-c",
    ]
    assert left_out(run) == [
        "no range plots of flows without fixes: d",
        "no range plots of 1 more cases, which clip less than the 2 drawn",
    ]


def test_five_thousand_quantizers_give_small_files_and_name_the_ones_that_moved_most(tmp_path: Path) -> None:
    rows = widened(5000)
    names(tmp_path, *rows[:5000], *(replace(row, hi=4.0 + n) for n, row in enumerate(rows[5000:])))
    bounds, ranges = sorted(tmp_path.glob("*.svg"))
    assert max(bounds.stat().st_size, ranges.stat().st_size) < 150_000
    shown = texts(bounds)
    assert any("shown are the 60 that moved most" in text for text in shown)
    assert [text for text in shown if text.startswith("layer")] == [f"layer{n}:mul.self" for n in range(4940, 5000)]


@pytest.mark.parametrize(("hi", "observed"), [(1e308, 1e308), (5e-324, 5e-324), (0.0, 0.0), (1e308, 1e-308)])
def test_ranges_that_no_axis_holds_have_no_plot(tmp_path: Path, hi: float, observed: float) -> None:
    rows = [quantizer_row(quantizer=name, lo=0.0, hi=hi, observed_lo=0.0, observed_hi=observed) for name in "ab"]
    assert names(tmp_path, *rows) == []


def test_text_of_users_stays_text(tmp_path: Path) -> None:
    where = {"model": HOSTILE, "flow": HOSTILE}
    rows = [quantizer_row(**where, quantizer=f"{n}{HOSTILE}", hi=1.0, observed_hi=2.0) for n in range(2)]
    moved = [replace(row, variant=f"+{HOSTILE}", hi=4.0) for row in rows]
    outputs = [output_row(**where, output=HOSTILE), repaired_row(**where, output=HOSTILE, variant=f"+{HOSTILE}")]
    assert len(names(tmp_path, *outputs, *rows, *moved)) == 3
    for file in tmp_path.glob("*.svg"):
        assert not list(ElementTree.parse(file).iter(f"{SVG}script"))
        joined = "".join(texts(file))
        assert "<script>" in joined
        assert not any(sign in joined for sign in "\u202e\x1b\n")


def test_names_of_files_are_safe_whatever_models_are_called(tmp_path: Path) -> None:
    hostile = ["../..", "a/b", "CON:", "n" * 200, "漢字", "", ".hidden", "a b\n"]
    stems = names(tmp_path / "figures", *(quantizer_row(model=name) for name in hostile))
    assert len({stem.casefold() for stem in stems}) == len(hostile)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,200}", stem) for stem in stems)
    assert sorted(tmp_path.rglob("*.svg")) == sorted((tmp_path / "figures").glob("range-plot-*.svg"))


def test_models_that_differ_by_case_alone_have_files_of_their_own(tmp_path: Path) -> None:
    assert names(tmp_path, quantizer_row(model="net"), quantizer_row(model="Net")) == [
        "range-plot-Net-small-x86-static", "range-plot-net-small-x86-static-2"
    ]  # fmt: skip


def test_weights_are_in_the_name_where_there_are_several(tmp_path: Path) -> None:
    assert names(tmp_path, quantizer_row(), quantizer_row(weights="seeded")) == [
        "range-plot-resnet-small-seeded-x86-static", "range-plot-resnet-small-trained-x86-static"
    ]  # fmt: skip


def test_the_same_run_gives_the_same_files_on_white(tmp_path: Path) -> None:
    run = run_of(RUN, output_row(), repaired_row(), *widened(2))
    first, second = draw(run, tmp_path / "a"), draw(run, tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    for path in first[::2]:
        background = next(ElementTree.parse(path).iter(f"{SVG}path"))
        assert "fill: #ffffff" in background.get("style", "")


def test_the_users_own_settings_of_matplotlib_are_neither_used_nor_changed(tmp_path: Path) -> None:
    import matplotlib

    run = run_of(RUN, output_row(), repaired_row())
    draw(run, tmp_path / "a")
    with matplotlib.rc_context({"font.size": 30.0, "svg.fonttype": "path"}):
        draw(run, tmp_path / "b")
        assert matplotlib.rcParams["font.size"] == 30.0
    assert (tmp_path / "a/fix-matrix.svg").read_bytes() == (tmp_path / "b/fix-matrix.svg").read_bytes()


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'sqnr-harness\[report\]'"):
        draw(run_of(RUN), tmp_path)


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        draw(run_of(RUN, output_row(), repaired_row()), tmp_path / "file" / "figures")


def test_nothing_heavy_is_imported_before_a_picture_is_drawn() -> None:
    code = "import harness.report.pictures, sys; print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
