"""What a variant's rows say of its fixes; one that cannot be told is a failed row, never released by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from harness.errors import ConfigError
from harness.fixes import Fix, Reading
from harness.fixes.seams import SeamMovedError, replaced
from harness.fixes.states import RepairLeftError
from harness.records import Stage
from tests.lab import changed, fix, lab, nothing


def _states(result) -> set[str]:
    """At the last point of the flow; the others say nothing."""
    assert {row.fix_state for row in result.outputs if row.point != "converted"} == {""}
    return {row.fix_state for row in result.outputs if row.point == "converted"}


@contextmanager
def _doubled() -> Iterator[None]:
    """Doubles every range that a histogram observer finds."""
    from torchao.quantization.pt2e.observer import HistogramObserver

    original = HistogramObserver.calculate_qparams

    def doubled(self):
        scale, zero_point = original(self)
        return scale * 2, zero_point

    with replaced(HistogramObserver, "calculate_qparams", doubled, ("self",)):
        yield


def test_released_rows_have_no_state_and_a_working_repair_is_needed():
    bench = lab()
    assert _states(bench.measure("x86-static")) == {""}
    assert _states(bench.measure("x86-static", (fix("doubled", Stage.CONVERT, _doubled),))) == {"needed"}


def test_a_variant_that_changes_no_qparam_node_or_bit_is_inert():
    assert _states(lab().measure("x86-static", (fix("idle", Stage.PREPARE),))) == {"inert"}


def test_an_upstreamed_fix_is_not_applied():
    entered = []

    @contextmanager
    def repair() -> Iterator[None]:
        entered.append(1)
        yield

    right = fix("done", Stage.CONVERT, repair, lambda: Reading(2.0, 2.0, right=True))
    bench = lab()
    result = bench.measure("x86-static", (right,))
    assert (_states(result), entered) == ({"upstreamed"}, [])
    released = bench.measure("x86-static")
    assert [row.sqnr_db for row in result.outputs] == [row.sqnr_db for row in released.outputs]


def test_in_a_variant_of_two_the_upstreamed_one_is_left_out_and_the_other_applied():
    right = fix("done", Stage.CONVERT, nothing, lambda: Reading(2.0, 2.0, right=True))
    bench = lab()
    both = bench.measure("x86-static", (right, fix("doubled", Stage.CONVERT, _doubled)))
    alone = bench.measure("x86-static", (fix("doubled", Stage.CONVERT, _doubled),))
    assert _states(both) == {"needed"}
    assert [row.scale for row in both.quantizers] == [row.scale for row in alone.quantizers]


def _failing_probe() -> Reading:
    raise RuntimeError("no such graph")


@contextmanager
def _moved() -> Iterator[None]:
    raise SeamMovedError("upstream has no function")
    yield


@contextmanager
def _moves_later() -> Iterator[None]:
    """Entered for the probe, and no more when the model comes."""
    _moves_later.entered = getattr(_moves_later, "entered", 0) + 1
    if _moves_later.entered > 1:
        raise AttributeError("gone")
    yield


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (fix("probeless", Stage.CONVERT, nothing, _failing_probe), "fix probeless is unknown: the probe failed"),
        (fix("moved", Stage.CONVERT, _moved), "fix moved is unknown: SeamMovedError: upstream has no function"),
        (fix("lost", Stage.CONVERT, _moves_later), "fix lost cannot be applied: AttributeError: gone"),
        (
            fix("other", Stage.CONVERT, _doubled, lambda: Reading(1.0, 2.0, right=False)),
            "fix other is inert: the repair does not give 2.0",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Fix) else None,
)
def test_a_fix_that_cannot_be_told_or_applied_fails_from_its_stage_on(broken, error):
    """Also one whose repair would change the model, but not what its probe measures: nobody knows what that shows."""
    result = lab().measure("x86-static", (broken,))
    by_point = {row.point: row for row in result.outputs}
    assert by_point["prepared"].status == "measured"
    assert by_point["converted"].status == "failed:convert"
    assert error in by_point["converted"].error
    assert _states(result) == {"unknown"}


def test_where_upstream_fails_before_the_repair_nothing_is_said_of_the_fix():
    def explode(_graph: object) -> None:
        raise ValueError("no")

    result = lab().measure(changed("x86-static", prepare=explode), (fix("late", Stage.CONVERT),))
    assert _states(result) == {""}


def test_a_fix_whose_package_is_missing_says_so_in_its_rows():
    absent = replace(fix("absent", Stage.CONVERT), package="no-such-package")
    assert _states(lab().measure("x86-static", (absent,))) == {"not installed"}


def test_a_fix_of_a_stage_that_the_flow_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="fix low starts at stage lower, and flow x86-static ends at convert"):
        lab().measure("x86-static", (fix("low", Stage.LOWER),))


def test_after_a_repair_that_could_not_be_undone_nothing_more_is_measured_as_released():
    uses = []

    @contextmanager
    def sticky() -> Iterator[None]:
        uses.append(1)
        yield
        if len(uses) > 1:
            raise OSError("cannot put it back")

    bench = lab()
    result = bench.measure("x86-static", (fix("sticky", Stage.CONVERT, sticky),))
    row = next(row for row in result.outputs if row.point == "converted")
    assert (row.status, row.fix_state) == ("failed:convert", "unknown")
    assert "fix sticky could not be undone: OSError: cannot put it back" in row.error
    with pytest.raises(RepairLeftError, match=r"not measured: .*sticky could not be undone"):
        bench.measure("x86-dynamic")
