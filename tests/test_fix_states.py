"""The state of a fix is measured on the installed package, not looked up by its version."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from harness.fixes import Fix, Reading, variants
from harness.fixes.seams import SeamMovedError, replaced
from harness.fixes.states import diagnose
from harness.records import FixState, Stage
from tests.lab import fix, nothing


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


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"flows": "x86-*"}, "flows must be a tuple of strings, not 'x86-"),
        ({"known": ["1.0"]}, "known must be a tuple of strings"),
        ({"stage": Stage.EXPORT}, "stage must be one of prepare, calibrate, convert, edge, lower, not export"),
        ({"stage": Stage.MEASURE}, "stage must be one of"),
        ({"stage": Stage.CONVERT, "last": Stage.PREPARE}, "last must be one of convert, edge, lower, not prepare"),
    ],
)
def test_a_fix_that_could_never_be_applied_as_written_is_refused(changes, error):
    with pytest.raises(ValueError, match=error):
        replace(fix("a", Stage.CONVERT), **changes)


def test_the_order_in_which_fixes_are_given_does_not_matter_to_their_variant():
    from harness.fixes import of_variant, variant_name

    one, two = fix("a", Stage.CONVERT), fix("b", Stage.CONVERT)
    assert variant_name(frozenset({"b", "a"})) == variant_name(frozenset({"a", "b"})) == "+a+b"
    assert of_variant("+a+b", (two, one)) == (one, two)
