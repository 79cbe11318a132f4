"""The repairs of Vulkan's 4-bit linear as such: truly undone, told apart by their probes, and failing loudly."""

from __future__ import annotations

import logging

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.fixes._vulkan import reference_wrapped
from harness.fixes.seams import SeamMovedError
from tests.fixes.vulkan_layers import BOTH, ODD, OFFSET, assert_odd_fails, case, fused

ops = pytest.importorskip("executorch.backends.vulkan.custom_ops_lib")


@pytest.mark.parametrize("order", BOTH, ids=["offset-first", "odd-first"])
def test_the_repairs_are_undone_on_exit_also_after_an_exception(order):
    even, odd = case(4, 64), case(4, 63)
    table = torch._C._dispatch_dump_table("et_vk::linear_qcs4w")
    function, bits = ops.linear_qcs4w, fused(even.program, even.x)

    def explode() -> None:
        with order[0].repair(), order[1].repair():
            assert not torch.equal(fused(even.program, even.x), bits)
            fused(odd.program, odd.x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        explode()
    assert ops.linear_qcs4w is function
    assert torch._C._dispatch_dump_table("et_vk::linear_qcs4w") == table
    assert torch.equal(fused(even.program, even.x), bits)
    assert_odd_fails(odd)


def test_a_destroyed_library_would_leave_its_kernel_to_fake_tensors():
    """Why a repair registers what it found once more; when this fails, torch no longer needs it."""
    shape = torch.Size([1, 2])
    with torch.library._scoped_library("et_vk", "IMPL") as library:
        library.impl("linear_qcs4w", lambda x, _weight, _scales: x.new_empty(shape), "CompositeExplicitAutograd")
    arguments = torch.ones(3, 4), torch.zeros(5, 2, dtype=torch.uint8), torch.ones(5)
    try:
        assert torch.ops.et_vk.linear_qcs4w(*arguments).shape == (3, 5)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert torch.ops.et_vk.linear_qcs4w(*map(mode.from_tensor, arguments)).shape == shape
    finally:
        with reference_wrapped(lambda found: found):
            pass
    with FakeTensorMode() as mode:
        assert torch.ops.et_vk.linear_qcs4w(*map(mode.from_tensor, arguments)).shape == (3, 5)


@pytest.mark.parametrize("fix", [OFFSET, ODD], ids=lambda fix: fix.name)
def test_a_moved_seam_is_reported_and_nothing_is_replaced(fix, monkeypatch):
    def other(x, weight):
        return x

    monkeypatch.setattr(ops, "linear_qcs4w", other)
    with pytest.raises(SeamMovedError, match=r"linear_qcs4w takes \(x, weight\), not \(x, weights_4x2, scales\)"):
        fix.repair().__enter__()
    monkeypatch.delattr(ops, "linear_qcs4w")
    with pytest.raises(SeamMovedError, match="has no linear_qcs4w"):
        fix.repair().__enter__()


def test_the_probes_read_the_wrong_and_the_right_value():
    offset, odd = OFFSET.probe(), ODD.probe()
    assert (offset.right, odd.right) == (False, False)
    assert offset.value == pytest.approx(-5.54, abs=0.1)
    assert offset.should == pytest.approx(23.76, abs=0.1)
    assert odd.value == "RuntimeError: a and b must have same reduction dim, but got [16, 63] X [64, 32]."
    with ODD.repair():
        assert ODD.probe().value == pytest.approx(odd.should, abs=0.01)
        assert (ODD.probe().right, OFFSET.probe().right) == (True, False)
    with OFFSET.repair():
        assert (ODD.probe().right, OFFSET.probe().right) == (False, True)
        assert OFFSET.probe().value == pytest.approx(offset.should, abs=0.01)


def test_a_probe_leaves_no_trace(capfd):
    generator, logger = torch.get_rng_state(), logging.getLogger("torch._subclasses.fake_tensor")
    disabled = logger.disabled
    ODD.probe()
    assert torch.equal(torch.get_rng_state(), generator)
    assert logger.disabled is disabled
    assert "reduction dim" not in capfd.readouterr().err
