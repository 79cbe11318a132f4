"""Whose noise floor is measured, and who has that of another."""

from __future__ import annotations

import pytest

from harness.noise_floor import Sources
from harness.records import Case
from tests.rows import case, output_row, run_of

RELEASED, INERT, NEEDED = case(), case(variant="+idle"), case(variant="+mends")


def run_with(tmp_path, *states: tuple[Case, str]):
    return run_of(tmp_path, *(output_row(variant=which.variant, fix_state=state) for which, state in states))


@pytest.mark.parametrize("state", ["inert", "upstreamed"])
def test_a_variant_that_changed_no_bit_is_not_measured_for_its_noise(tmp_path, state):
    run = run_with(tmp_path, (RELEASED, ""), (INERT, state), (NEEDED, "needed"))
    assert Sources(run).of_cases((RELEASED, INERT, NEEDED)) == (RELEASED, NEEDED)


def test_released_is_measured_in_its_place_even_where_it_is_not_accepted(tmp_path):
    run = run_with(tmp_path, (RELEASED, ""), (INERT, "inert"))
    assert Sources(run).of_cases((INERT,)) == (RELEASED,)


def test_it_has_the_noise_of_released_row_by_row(tmp_path):
    run = run_with(tmp_path, (RELEASED, ""), (INERT, "inert"), (NEEDED, "needed"))
    row, mended = output_row(), output_row(variant="+mends")
    other = output_row(model="vit")
    shared = Sources(run).shared({row.key: 0.25, mended.key: 0.5, other.key: 0.75})
    assert shared == {
        row.key: 0.25,
        output_row(variant="+idle").key: 0.25,
        mended.key: 0.5,
        other.key: 0.75,
    }


LOWERING = "+arm-per-tensor-lowering"


def program_row(variant: str, point: str, **values):
    return output_row(flow="arm-static-u8s8f32-per-tensor", variant=variant, point=point, **values)


def test_a_program_has_the_noise_of_its_converted_graph_and_is_not_compiled_for_it(tmp_path):
    """The fix touches the lowering alone: with it the converted graph is that of `released`."""
    rows = [
        program_row(variant, point, int8_convs=count if point == "lowered" else None)
        for variant, count in (("released", 0), (LOWERING, 7))
        for point in ("converted", "lowered")
    ]
    sources = Sources(run_of(tmp_path, *rows))
    assert sources.of_cases(row.case for row in rows) == (rows[0].case,)
    assert sources.is_program(rows[0].case)
    assert sources.shared({rows[0].key: 0.125}) == {row.key: 0.125 for row in rows}


def test_a_lowered_graph_has_its_own_noise(tmp_path):
    converted, lowered = (output_row(point=point) for point in ("converted", "lowered"))
    assert Sources(run_of(tmp_path, converted, lowered)).shared({converted.key: 0.125}) == {converted.key: 0.125}
