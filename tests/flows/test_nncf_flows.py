"""The NNCF flows on the real package: what they measure, that they are the released call, and that they keep quiet."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.adapter import Batch
from harness.fixes.nncf_mul_parameter import FIX as MUL
from harness.flows import nncf as flows
from harness.records import Granularity, Point, Role, Status
from tests.lab import adapter, images, lab, two_heads

torch.set_num_threads(1)

ROOT = Path(__file__).parents[2]


def at(result, point: Point):
    return [row for row in result.outputs if row.point == point]


def test_the_x86_flow_measures_every_output_and_leaves_no_annotated_edge_float():
    result = lab().measure("nncf-x86")
    assert all(row.sqnr_db > 100 for row in at(result, Point.PREPARED))
    assert all(15 < row.sqnr_db < 60 for row in at(result, Point.CONVERTED))
    assert {row.status for row in result.quantizers} == {"quantized"}
    weights = [row for row in result.quantizers if row.role == Role.WEIGHT]
    assert {row.granularity for row in weights} == {Granularity.PER_CHANNEL}
    assert all(30 < row.sqnr_min_db < 60 for row in weights)


def test_a_model_without_a_multiplied_parameter_goes_through_the_mul_flow_unchanged():
    """BatchNorm is still folded, so the outputs are those of the prepared graph, not quite those of the float one."""
    result = lab().measure("nncf-mul")
    assert [row.max_abs_err for row in at(result, Point.CONVERTED)] == [
        row.max_abs_err for row in at(result, Point.PREPARED)
    ]
    assert {row.cause for row in result.quantizers} == {""}
    assert not [row for row in result.quantizers if row.status == "quantized"]


@pytest.mark.parametrize("name", ["nncf-mul", "nncf-x86"])
def test_the_stages_give_the_bits_of_the_released_call(name):
    with flows.silent_nncf():
        import nncf
        from nncf.experimental.torch.fx import quantize_pt2e

    flow, batches = flows.flow(name), [batch.inputs for batch in images(100)]
    quantizer = flows.parameter_mul_quantizer if name == "nncf-mul" else flows._x86_quantizer
    with torch.no_grad():
        graph = flow.prepare(flow.export(two_heads(), batches[0]))
        converted = flow.convert(flow.calibrate(graph, iter(batches)))
        data = torch.utils.data.DataLoader(torch.cat([x for (x,) in batches]), batch_size=len(batches[0][0]))
        plain = quantize_pt2e(flow.export(two_heads(), batches[0]), quantizer(), nncf.Dataset(data))
        for ours, theirs in zip(converted(*batches[0]), plain(*batches[0]), strict=True):
            assert torch.equal(ours, theirs)


def test_a_model_takes_several_inputs():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * mask

    def batches(seed: int) -> list[Batch]:
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
        return [Batch((x, (x > 0).float()))] * 2

    result = lab(adapter(lambda: Two().eval(), ("y",), batches)).measure("nncf-x86")
    assert [row.status for row in result.outputs] == [Status.EXACT, Status.EXACT, Status.MEASURED]


def test_released_rows_are_the_same_bits_after_a_repaired_variant_ran():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([0.25, -0.5, 1.0]).reshape(3, 1, 1))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.scale * x, x.mean((2, 3))

    def bench():
        return lab(adapter(lambda: Scaled().eval()))

    before, shared = bench().measure("nncf-mul"), bench()
    repaired, after = shared.measure("nncf-mul", (MUL,)), shared.measure("nncf-mul")
    assert at(repaired, Point.CONVERTED)[0].sqnr_db > at(after, Point.CONVERTED)[0].sqnr_db + 30
    assert (before.outputs, before.quantizers) == (after.outputs, after.quantizers)


def test_nothing_is_printed_and_the_global_logging_is_as_before(capfd):
    before = logging.root.manager.disable, logging.getLoggerClass()
    lab().measure("nncf-x86")
    assert capfd.readouterr() == ("", "")
    assert (logging.root.manager.disable, logging.getLoggerClass()) == before


QUIET = """
import logging, sys
from harness.fixes.nncf_mul_parameter import FIX
from tests.upstream import needs

needs("nncf")
FIX.probe()
assert "nncf" in sys.modules and "openvino_telemetry" not in sys.modules
assert logging.getLoggerClass() is logging.Logger
"""


def test_telemetry_is_never_loaded_and_writes_no_client_id(tmp_path):
    """Plainly imported, NNCF writes `intel/openvino_ga_cid` into the home folder."""
    run = subprocess.run(
        [sys.executable, "-c", QUIET],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert not (tmp_path / "intel").exists()
