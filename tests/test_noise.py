"""Whose noise floor is measured, and who has that of another."""

from __future__ import annotations

import pytest

from harness.execute import noise_cases, share_noise
from harness.records import Case
from tests.rows import case, output_row, run_of

RELEASED, INERT, NEEDED = case(), case(variant="+idle"), case(variant="+mends")


def run_with(tmp_path, *states: tuple[Case, str]):
    return run_of(tmp_path, *(output_row(variant=which.variant, fix_state=state) for which, state in states))


@pytest.mark.parametrize("state", ["inert", "upstreamed"])
def test_a_variant_that_changed_no_bit_is_not_measured_for_its_noise(tmp_path, state):
    run = run_with(tmp_path, (RELEASED, ""), (INERT, state), (NEEDED, "needed"))
    assert noise_cases(run, (RELEASED, INERT, NEEDED)) == (RELEASED, NEEDED)


def test_released_is_measured_in_its_place_even_where_it_is_not_accepted(tmp_path):
    run = run_with(tmp_path, (RELEASED, ""), (INERT, "inert"))
    assert noise_cases(run, (INERT,)) == (RELEASED,)


def test_it_has_the_noise_of_released_row_by_row(tmp_path):
    run = run_with(tmp_path, (RELEASED, ""), (INERT, "inert"), (NEEDED, "needed"))
    row, mended = output_row(), output_row(variant="+mends")
    other = output_row(model="vit")
    shared = share_noise(run, {row.key: 0.25, mended.key: 0.5, other.key: 0.75})
    assert shared == {
        row.key: 0.25,
        output_row(variant="+idle").key: 0.25,
        mended.key: 0.5,
        other.key: 0.75,
    }
