"""Which rows saturate, told from the rows of several runs, and the table of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from harness.environment import ISAS, VNNI
from harness.errors import InterruptedRunError
from harness.execute import Options
from harness.records import OutputRow, Status
from harness.replay import compare
from harness.report.isa_table import print_sweep
from harness.report.terminal import console
from harness.saturation import AUDIBLE_DB, FALL_DB, flagged, swept
from harness.store import Run, load_run
from harness.suite import Selection
from harness.verbs import sweeping
from tests.bundles import measured, written
from tests.rows import no_number, output_row, quantizer_row, run_of, workspace_at


def lowered(kernel_db: float | None, **changes: Any) -> OutputRow:
    """Lowered logits whose one int8 linear is that close to the converted graph; `numerics` as lowering cost 3 dB."""
    values = {"point": "lowered", "kernel_db": kernel_db, "int8_convs": 0, "int8_linears": 1, "cause": "numerics"}
    return output_row(**{**values, **changes})


def run(kernel_db: float | None, converted_db: float | None = 40.0, **changes: Any) -> list[OutputRow]:
    """Converted and lowered logits."""
    return [output_row(sqnr_db=converted_db), lowered(kernel_db, **changes)]


def cause(kernel_db: dict[str, float | None], isa: str = "avx2", **changes: Any) -> str:
    """The cause of the lowered row of one instruction set, of runs that differ in `kernel_db`."""
    return flagged({name: run(level, **changes) for name, level in kernel_db.items()})[isa][1].cause


def test_kernels_that_fall_without_vnni_saturate() -> None:
    marked = flagged({"avx2-vnni": run(140.0), "avx512": run(25.0), "avx2": run(25.0)})
    assert [rows[1].cause for rows in marked.values()] == ["numerics", "saturation", "saturation"]
    assert [rows[0] for rows in marked.values()] == [output_row(sqnr_db=40.0)] * 3


def test_a_fall_is_over_3_db() -> None:
    assert FALL_DB == 3.0
    assert cause({"avx2-vnni": 28.0, "avx2": 25.0}) == "numerics"
    assert cause({"avx2-vnni": 28.0, "avx2": math.nextafter(25.0, 0.0)}) == "saturation"


def test_kernels_10_db_quieter_than_quantization_are_no_damage_however_far_they_fell() -> None:
    """10 dB below adds a tenth to the noise: 10 log10(1.1) is 0.41 dB."""
    assert AUDIBLE_DB == 10.0
    assert cause({"avx2-vnni": 139.0, "avx2": 62.0}, converted_db=40.0) == "numerics"
    assert cause({"avx2-vnni": 139.0, "avx2": 50.0}, converted_db=40.0) == "numerics"
    assert cause({"avx2-vnni": 139.0, "avx2": math.nextafter(50.0, 0.0)}, converted_db=40.0) == "saturation"


def test_the_best_is_the_best_of_all_whatever_the_order() -> None:
    assert cause({"avx512-vnni": 20.0, "avx2-vnni": 140.0, "avx2": 19.0}) == "saturation"
    assert cause({"avx2": 19.0, "avx2-vnni": 140.0}) == "saturation"


@pytest.mark.parametrize("isa", ISAS)
def test_what_falls_with_vnni_is_something_else(isa: str) -> None:
    best = "avx2-vnni" if isa == "avx512-vnni" else "avx512-vnni"
    falls = isa not in VNNI
    assert cause({best: 140.0, isa: 25.0}, isa) == ("saturation" if falls else "numerics")


@pytest.mark.parametrize(
    "changes",
    [
        {"int8_linears": 0},
        {"int8_convs": None, "int8_linears": None, "delegated_nodes": 4},
        {"point": "converted", "output": "other"},
    ],
)
def test_without_int8_kernels_nothing_saturates(changes: dict[str, Any]) -> None:
    assert cause({"avx2-vnni": 140.0, "avx2": 25.0}, **changes) == "numerics"


def test_int8_convolutions_saturate_too() -> None:
    assert cause({"avx2-vnni": 140.0, "avx2": 25.0}, int8_convs=1, int8_linears=0) == "saturation"


def test_without_a_number_on_either_side_nothing_is_said() -> None:
    assert cause({"avx2-vnni": None, "avx2": 25.0}) == "numerics"
    assert cause({"avx2-vnni": 140.0, "avx2": None}) == "numerics"
    assert cause({"avx2-vnni": 140.0, "avx2": 25.0}, converted_db=None) == "numerics"
    assert flagged({"avx2-vnni": [lowered(140.0)], "avx2": [lowered(25.0)]})["avx2"] == [lowered(25.0)]


def test_one_run_alone_is_left_as_it_is() -> None:
    assert flagged({"avx2": run(25.0)}) == {"avx2": run(25.0)}


def test_outputs_and_variants_are_held_against_their_own() -> None:
    best = [*run(140.0), lowered(25.0, variant="+fix"), lowered(25.0, output="score")]
    own = [*run(25.0), lowered(25.0, variant="+fix"), lowered(25.0, output="score")]
    own += [output_row(variant="+fix"), output_row(output="score")]
    marked = flagged({"avx2-vnni": best, "avx2": own})["avx2"]
    assert [row.cause for row in marked if row.point == "lowered"] == ["saturation", "numerics", "numerics"]


def test_marking_again_changes_nothing_and_a_better_run_marks_more() -> None:
    first = flagged({"avx512": run(25.0), "avx2": run(25.0)})
    assert [rows[1].cause for rows in first.values()] == ["numerics", "numerics"]
    more = flagged({**first, "avx2-vnni": run(140.0)})
    assert [rows[1].cause for rows in more.values()] == ["saturation", "saturation", "numerics"]
    assert flagged(more) == more


def test_a_sweep_has_an_output_for_each_that_int8_kernels_compute_under_any_of_them() -> None:
    failed = no_number("failed:lower", point="lowered")
    passes = lowered(140.0, flow="cadence-hoist", int8_convs=None, int8_linears=None)
    found = swept(flagged({"avx2-vnni": [*run(140.0), passes], "avx2": [*run(25.0), passes], "sse4": [failed]}))
    assert [(str(one.case), one.output, one.saturates) for one in found] == [
        ("resnet/small/trained x86-static", "logits", ("avx2",))
    ]
    assert found[0].rows["sse4"] == failed


def test_one_run_reproduces_a_row_that_saturates_though_it_cannot_tell(tmp_path: Path) -> None:
    own = quantizer_row(point="lowered")

    def reproduced(then: OutputRow, now: OutputRow) -> bool:
        return compare(written(tmp_path, then, own), measured(now, own)).reproduced

    assert reproduced(lowered(25.0, cause="saturation"), lowered(25.0))
    assert not reproduced(lowered(25.0, cause="saturation"), lowered(140.0, cause=""))
    assert not reproduced(lowered(25.0), lowered(25.0, cause=""))


def test_what_ends_a_sweep_early_costs_only_the_run_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs before it are stored, and say what could be told by then."""
    levels = {"avx512-vnni": 140.0, "avx2": 25.0}

    def measured_under(_workspace: object, _selection: object, options: Options, *_: object) -> Run:
        if options.isa not in levels:
            raise InterruptedRunError("interrupted")
        one = run_of(tmp_path / options.isa, *run(levels[options.isa]))
        one.save()
        return one

    monkeypatch.setattr(sweeping, "measure", measured_under)
    with pytest.raises(InterruptedRunError):
        sweeping.sweep(workspace_at(tmp_path), Selection(), [Options(isa=isa) for isa in (*levels, "sse4")])
    stored = {isa: [row.cause for row in load_run(tmp_path / isa).outputs] for isa in levels}
    assert stored == {"avx512-vnni": ["", "numerics"], "avx2": ["", "saturation"]}


def printed(capsys: pytest.CaptureFixture[str], **runs: list[OutputRow]) -> list[str]:
    print_sweep(console(), flagged({isa.replace("_", "-"): rows for isa, rows in runs.items()}))
    return capsys.readouterr().out.splitlines()


def test_the_table_has_a_column_for_each_instruction_set_and_says_which_saturate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, avx2_vnni=run(138.96), avx512=run(25.04), avx2=run(25.06))
    heads, row = (
        [cell.strip() for cell in lines[number].split("┃" if number == 2 else "│")[1:-1]] for number in (2, 4)
    )
    assert heads == ["output", "avx2-vnni", "avx512", "avx2", "saturates"]
    assert row == ["resnet/small/trained x86-static lowered logits", "139.0", "25.0", "25.1", "avx512, avx2"]
    assert lines[-2:] == [
        "avx512: 1 of 1 outputs saturate, their rows have the cause saturation",
        "avx2: 1 of 1 outputs saturate, their rows have the cause saturation",
    ]


def test_the_table_shows_what_has_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    failed = no_number("failed:lower", point="lowered")
    nonfinite = lowered(None, status=Status.NONFINITE_ACTUAL, sqnr_db=None)
    text = "\n".join(printed(capsys, avx2_vnni=run(140.0), avx512=[failed], avx2=[nonfinite], sse4=[]))
    assert "140.0 │ failed:lower │ nonfinite_actual │ not measured" in " ".join(text.split())
    assert text.endswith("nothing saturates")


def test_a_sweep_without_int8_kernels_says_how_to_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, avx2_vnni=[output_row()], avx2=[output_row()]) == [
        "no output was computed by int8 kernels: --lower has every flow's lowering measured"
    ]


def test_a_sweep_without_vnni_says_what_it_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, avx512=run(25.0), avx2=run(25.0))
    assert lines[-1] == "avx512, avx2: none has VNNI, so that what saturates under all of them alike is not told"
