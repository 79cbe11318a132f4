"""The state of a fix is measured; a variant of a fix that cannot be told is a failed row, never released by mistake."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from harness.errors import ConfigError
from harness.fixes import Fix, Reading, variants
from harness.fixes.seams import SeamMovedError, replaced
from harness.fixes.states import RepairLeftError, diagnose
from harness.records import FixState, Stage
from tests.lab import changed, fix, lab, nothing


def _upstream() -> ModuleType:
    """A package whose `absmax` forgets negative values."""
    module = ModuleType("upstream")
    exec("def absmax(values):\n    return max(values)", module.__dict__)
    return module


def _absmax_fix(module: ModuleType, **changes: object) -> Fix:
    def probe() -> Reading:
        value = module.absmax([-2.0, 1.0])
        return Reading(value, 2.0, right=value == 2.0)

    def repair():
        return replaced(module, "absmax", lambda values: max(map(abs, values)), parameters=("values",))

    made = fix("absmax", Stage.CONVERT)
    return replace(made, **{"repair": repair, "probe": probe, **changes})


def test_needed_shows_the_wrong_and_the_right_value():
    found = diagnose(_absmax_fix(_upstream()))
    assert (found.state, found.released, found.repaired) == (FixState.NEEDED, 1.0, 2.0)


def test_a_release_that_is_already_right_is_upstreamed():
    module = _upstream()
    module.absmax = lambda values: max(map(abs, values))
    found = diagnose(_absmax_fix(module))
    assert (found.state, found.released) == (FixState.UPSTREAMED, 2.0)


def test_a_repair_that_changes_nothing_is_inert():
    found = diagnose(_absmax_fix(_upstream(), repair=nothing))
    assert (found.state, found.released, found.repaired) == (FixState.INERT, 1.0, 1.0)


def test_a_repair_that_gives_another_wrong_value_is_unknown():
    module = _upstream()
    found = diagnose(_absmax_fix(module, repair=lambda: replaced(module, "absmax", lambda values: 5.0)))
    assert (found.state, found.repaired, found.note) == (FixState.UNKNOWN, 5.0, "the repair does not give 2.0")


@pytest.mark.parametrize(
    ("moved", "note"),
    [
        (lambda module: setattr(module, "absmax", lambda values, axis=None: max(values)), "takes (values, axis), not"),
        (lambda module: delattr(module, "absmax"), "has no attribute 'absmax'"),
    ],
)
def test_a_seam_that_moved_is_unknown(moved, note):
    module = _upstream()
    moved(module)
    found = diagnose(_absmax_fix(module))
    assert (found.state, found.repaired) == (FixState.UNKNOWN, None)
    assert note in found.note


def test_a_missing_package_is_not_installed_and_nothing_is_probed():
    def probe() -> Reading:
        raise AssertionError

    found = diagnose(replace(fix("a", Stage.CONVERT, probe=probe), package="no-such-package"))
    assert (found.state, found.version) == (FixState.NOT_INSTALLED, "")


def _returns(value: object):
    return lambda: value


def _exits() -> Reading:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("probe", "note"),
    [
        (_returns(None), "TypeError: the probe gave a NoneType, not a Reading"),
        (_exits, "SystemExit: 3"),
        (lambda: Reading(torch.ones(2), 1.0, right=True), "the probe failed: "),
    ],
)
def test_a_probe_that_gives_no_reading_is_unknown(probe, note):
    found = diagnose(replace(fix("a", Stage.CONVERT), probe=probe))
    assert found.state is FixState.UNKNOWN
    assert note in found.note


def test_a_reading_of_tensors_and_numpy_scalars_is_one_of_numbers():
    reading = Reading(torch.tensor(0.5), np.float32(0.25), right=torch.tensor(True))
    assert (reading.value, reading.should, reading.right) == (0.5, 0.25, True)
    assert {type(reading.value), type(reading.should), type(reading.right)} == {float, bool}


def test_a_probe_that_changes_torchs_settings_changes_nothing_for_the_next():
    def probe() -> Reading:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        torch.set_grad_enabled(False)
        torch.manual_seed(1)
        return Reading(1.0, 1.0, right=True)

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert diagnose(replace(fix("a", Stage.CONVERT), probe=probe)).state is FixState.UPSTREAMED
    assert (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()) == (torch.float32, 1, True)
    assert torch.equal(torch.rand(1), expected)


def test_a_missing_package_that_the_probe_needs_is_named():
    found = diagnose(replace(fix("a", Stage.CONVERT), needs=("no-such-package",)))
    assert (found.state, found.note) == (FixState.NOT_INSTALLED, "needs no-such-package")


def test_a_half_repair_is_measured_beside_the_repair():
    module = _upstream()

    def half():
        return replaced(module, "absmax", lambda values: "no bound")

    found = diagnose(_absmax_fix(module, trap=half))
    assert (found.state, found.repaired, found.trapped) == (FixState.NEEDED, 2.0, "no bound")


def test_without_a_repair_the_right_value_is_the_probes_own_and_no_flow_has_the_variant():
    lone = _absmax_fix(_upstream(), repair=None)
    found = diagnose(lone)
    assert (found.state, found.released, found.repaired) == (FixState.NEEDED, 1.0, 2.0)
    assert variants("x86-static", (lone,)) == ["released"]


def test_replaced_restores_the_original_after_an_exception_and_keeps_static_methods():
    class Owner:
        @staticmethod
        def double(value):
            return 2 * value

    stored = vars(Owner)["double"]
    with (
        contextlib.suppress(RuntimeError),
        replaced(Owner, "double", staticmethod(lambda value: 3 * value), ("value",)),
    ):
        assert Owner.double(1) == 3
        raise RuntimeError
    assert vars(Owner)["double"] is stored
    assert Owner().double(1) == 2


def test_replaced_refuses_an_inherited_attribute_as_patching_it_would_hide_the_base():
    class Base:
        def method(self):
            return 1

    class Child(Base):
        pass

    with pytest.raises(SeamMovedError, match="Child has no method"), replaced(Child, "method", lambda self: 2):
        pass


@pytest.mark.parametrize("name", ["", "With Space", "a+b", "a/b", "a,b"])
def test_a_fix_name_is_one_word_so_that_variants_can_be_told_apart(name):
    with pytest.raises(ValueError, match="lower-case letters"):
        fix(name, Stage.CONVERT)


# In the pipeline: what a variant's rows say.


def _states(result) -> set[str]:
    """At the last point of the flow; the others say nothing."""
    assert {row.fix_state for row in result.outputs if row.point != "converted"} == {""}
    return {row.fix_state for row in result.outputs if row.point == "converted"}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"flows": "x86-*"}, "flows must be a tuple of strings, not 'x86-"),
        ({"known": ["1.0"]}, "known must be a tuple of strings"),
        ({"stage": Stage.EXPORT}, "stage must be one of prepare, calibrate, convert, edge, lower, not export"),
        ({"stage": Stage.MEASURE}, "stage must be one of"),
    ],
)
def test_a_fix_that_could_never_be_applied_as_written_is_refused(changes, error):
    with pytest.raises(ValueError, match=error):
        replace(fix("a", Stage.CONVERT), **changes)


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


def test_the_order_in_which_fixes_are_given_does_not_matter_to_their_variant():
    from harness.fixes import of_variant, variant_name

    one, two = fix("a", Stage.CONVERT), fix("b", Stage.CONVERT)
    assert variant_name(frozenset({"b", "a"})) == variant_name(frozenset({"a", "b"})) == "+a+b"
    assert of_variant("+a+b", (two, one)) == (one, two)
