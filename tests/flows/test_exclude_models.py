"""Every fifth quantizer of the small models left in float: those are gone, and all others as they were."""

from __future__ import annotations

import pytest

from harness import fixes
from harness.records import Mode, Point, Stage
from tests.flows.excluding import levels, measured, qparams, quantized, small, subject_of
from tests.upstream import needs

needs("torchao", "nncf", "executorch")


EVERY_DAY = {("x86-static", "resnet"), ("x86-dynamic", "vit"), ("nncf-mul", "convnext"), ("xnnpack", "slices")}
"""One model for each flow; the other pairs are what nightly is for."""


def _pairs():
    for flow in ("x86-static", "x86-dynamic", "nncf-x86", "nncf-mul", "xnnpack"):
        for name in ("bert", "convnext", "resnet", "slices", "vit"):
            yield pytest.param(flow, name, marks=() if (flow, name) in EVERY_DAY else pytest.mark.slow)


@pytest.mark.parametrize(("flow", "name"), _pairs())
def test_the_excluded_are_gone_and_the_rest_is_as_it_was(flow, name):
    early = [fix for fix in fixes.installed() if fix.stage not in (Stage.EDGE, Stage.LOWER)]
    repairs = tuple(fix for fix in early if fix.applies_to(flow))  # XNNPACK cannot take BERT without
    module = small(name)
    subject = subject_of(module)
    whole = measured(flow, on=subject, repairs=repairs)
    names = sorted(quantized(whole))
    if not names:
        assert (flow, name) in {("nncf-mul", other) for other in ("bert", "resnet", "slices", "vit")}
        return
    chosen = names[::5]
    without = measured(flow, *chosen, on=subject, repairs=repairs)
    subject.close()
    before, after = quantized(whole), quantized(without)
    assert set(after) == set(names) - set(chosen)
    assert min(levels(without, Point.PREPARED)) > 100
    touched = {before[one].share_group for one in chosen} - {""}
    kept = {one for one, row in after.items() if row.mode == Mode.STATIC and before[one].share_group not in touched}
    assert kept
    assert {one: qparams(after[one]) for one in kept} == {one: qparams(before[one]) for one in kept}


def test_nncf_widens_the_convolutions_that_become_the_first_ones():
    """NNCF gives the weights of the first convolutions that it quantizes 7 of 8 bits, against overflow.

    Without the stem's, those are the first block's: of the same range 63 steps a side, not 127. That is what upstream
    makes of the model, and shown as such.
    """
    subject = subject_of(small("resnet"))
    before = quantized(measured("nncf-x86", on=subject))
    after = quantized(measured("nncf-x86", "conv1:conv2d.weight", on=subject))
    subject.close()
    moved = {one: after[one].scale / before[one].scale for one in after if qparams(after[one]) != qparams(before[one])}
    assert moved == {
        "layer1.0.conv1:conv2d.weight": pytest.approx(127 / 63, rel=1e-6),
        "layer1.0.downsample.0:conv2d.weight": pytest.approx(127 / 63, rel=1e-6),
    }
