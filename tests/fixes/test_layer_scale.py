"""ConvNeXt-Tiny's first LayerScale through NNCF, beside the figures of openvinotoolkit/nncf issue 3576."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness import fixes, flows
from harness.errors import WeightsError
from harness.measure.ranges import RangeReader
from harness.records import Case, Point, Stage
from harness.stages import Stages
from harness.subject import Subject
from harness.workspace import load_module
from tests.upstream import needs

needs("nncf")

MODELS = Path(__file__).parents[2] / "models"
PUBLISHED = {"released": 0.092455307, "+nncf-mul-parameter": 0.226632945}
ABSMAX = 0.226632953


@pytest.mark.parametrize("weights", ["seeded", "pretrained"])
def test_the_first_block_has_the_published_bounds(weights):
    """The seeded weights are made to have its statistics; the published ones are read if they are on this machine."""
    case = Case("convnext", "full", weights, "nncf-mul")
    flow = flows.load(case.flow)
    with torch.no_grad():
        try:
            subject = Subject(load_module(MODELS, "convnext"), "full", weights, 0)
        except WeightsError as error:
            pytest.skip(f"no published weights here: {error}")
        stages = Stages(subject, lambda _case, _stage: None)
        bounds = {}
        for variant in PUBLISHED:
            made = stages.at(Stage.CONVERT, case, flow, fixes.of_variant(variant, fixes.installed()))
            reader = RangeReader(made.graph, made.facts)
            reader.run(*subject.inputs)
            rows = {row.quantizer: row for row in reader.rows(case, Point.CONVERTED) if ":mul." in row.quantizer}
            assert len(rows) == 18
            bounds[variant] = rows["features.1.0:mul.self"]
    subject.close()
    released = bounds["released"]
    assert max(released.observed_hi, -released.observed_lo) == pytest.approx(ABSMAX, abs=1e-6)
    assert {variant: row.hi for variant, row in bounds.items()} == pytest.approx(PUBLISHED, abs=1e-6)
