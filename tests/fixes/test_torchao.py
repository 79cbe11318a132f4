"""torchao's Arm helper and its hook into Inductor, on the real package, as released and repaired."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.fixes.ao_bn_eps_reset import FIX as EPS
from harness.fixes.ao_float8_zero_row import FIX as FLOAT8
from harness.fixes.ao_shared_conv_bn import FIX as SHARED
from harness.fixes.arm_weight_granularity import FIX as GRANULARITY
from harness.fixes.pre_grad_pass_chain import FIX as CHAIN
from harness.fixes.seams import SeamMovedError, replaced
from harness.flows import inductor
from harness.graphs import copy_graph
from harness.records import Granularity, Role
from harness.workspace import find_workspace
from tests.lab import lab

ALL = (SHARED, EPS, FLOAT8, GRANULARITY, CHAIN)
ROOT = Path(__file__).parents[2]
X86 = "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"


def arm():
    from torchao.quantization.pt2e.quantizer import arm_inductor_quantizer

    return arm_inductor_quantizer


# Weight granularity.


def test_with_one_scale_the_smallest_row_is_30_db_worse_than_with_its_own():
    """Rows of 1 and 0.03 under one scale: 20 log10(1 / 0.03) = 30.5 dB."""
    released = GRANULARITY.probe()
    with GRANULARITY.repair():
        repaired = GRANULARITY.probe()
    assert (released.right, repaired.right) == (False, True)
    assert repaired.value == pytest.approx(released.should, abs=0.01)
    assert repaired.value - released.value == pytest.approx(30.5, abs=1)
    assert GRANULARITY.probe() == released


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_the_default_flow_is_the_per_tensor_flow_and_repaired_the_per_channel_flow_bit_for_bit(mode):
    bench = lab()
    default = inductor.flow(f"arm-{mode}-default").unlowered()
    for fixes, granularity in (((), "tensor"), ((GRANULARITY,), "channel")):
        twin = bench.measure(f"arm-{mode}-s8s8f32-per-{granularity}")
        case = twin.case
        found = bench.measure(default, fixes)
        assert _as(found.outputs, case) == _as(twin.outputs, case)
        assert _as(found.quantizers, case) == _as(twin.quantizers, case)
        weights = {row.granularity for row in found.quantizers if row.role == Role.WEIGHT}
        assert weights == {Granularity.PER_TENSOR if granularity == "tensor" else Granularity.PER_CHANNEL}


def _as(rows, case):
    """Rows as if they were of another case, but for what says which fixes were applied."""
    renamed = [replace(row, flow=case.flow, variant=case.variant) for row in rows]
    return [replace(row, fix_state="") if hasattr(row, "fix_state") else row for row in renamed]


def test_released_rows_are_the_same_bits_after_a_repaired_variant_ran():
    default, bench = "arm-static-default", lab()
    before = lab().measure(default)
    bench.measure(default, (GRANULARITY,))
    after = bench.measure(default)
    assert (before.outputs, before.quantizers) == (after.outputs, after.quantizers)


def test_the_pull_requests_example_runs_on_bert():
    """A script of the shape that the pull request shows, up to compiling, on the workspace's small BERT."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    bert, armiq = find_workspace(ROOT).load_adapter("bert"), arm()
    model, batch = bert.build("small", "seeded", 0), next(iter(bert.calibration("small", 0))).inputs
    exported = torch.export.export(model, batch, strict=True).module()
    twin = copy_graph(exported)
    with GRANULARITY.repair(), torch.no_grad():
        quantizer = armiq.ArmInductorQuantizer()
        quantizer.set_global(armiq.get_default_arm_inductor_quantization_config(is_dynamic=True, is_per_channel=True))
        prepared = prepare_pt2e(exported, quantizer)
        prepared(*batch)
        converted = convert_pt2e(prepared)
    flow = inductor.flow("arm-dynamic-s8s8f32-per-channel")
    with torch.no_grad():
        twin = flow.prepare(twin)
        twin(*batch)
        assert torch.equal(converted(*batch), flow.convert(twin)(*batch))
    ops = [str(node.target) for node in converted.graph.nodes]
    linears = sum("linear" in op for op in ops)
    assert linears > 10
    assert sum("dequantize_per_channel" in op for op in ops) == linears


def test_what_is_cached_per_tensor_and_per_channel_is_kept_apart_and_nothing_stays():
    released = arm().get_default_arm_inductor_quantization_config
    plain = released(is_dynamic=True)
    entries = released.cache_info().currsize
    with GRANULARITY.repair():
        choosing = arm().get_default_arm_inductor_quantization_config
        channel = choosing(is_dynamic=True, is_per_channel=True)
        assert choosing(is_dynamic=True, is_per_channel=True) is channel
        assert (channel.weight.qscheme, channel.weight.ch_axis) == (torch.per_channel_symmetric, 0)
        assert choosing(is_dynamic=True, is_per_channel=False) is choosing(False, True)
        assert choosing(False, True) is released(is_qat=False, is_dynamic=True)
        assert channel.input_activation is choosing(False, True).input_activation
    assert arm().get_default_arm_inductor_quantization_config is released
    assert released(is_dynamic=True) is plain
    assert released.cache_info().currsize - entries <= 1
    assert "is_per_channel" not in inspect.signature(released).parameters


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_fake_quantized_weights_get_a_per_channel_observer_too(is_dynamic):
    with GRANULARITY.repair():
        config = arm().get_default_arm_inductor_quantization_config(True, is_dynamic, True)
    fake_quantize = config.weight.observer_or_fake_quant_ctr(qscheme=config.weight.qscheme, ch_axis=0)
    weight = torch.tensor([[1.0, -1.0], [0.1, -0.1]])
    fake_quantize(weight)
    scale, _ = fake_quantize.calculate_qparams()
    assert scale.tolist() == pytest.approx([1 / 127.5, 0.1 / 127.5])
    assert fake_quantize.activation_post_process.eps.item() == 2**-12


def test_a_helper_that_has_the_choice_is_left_alone():
    def upstreamed(is_qat=False, is_dynamic=False, is_per_channel=False):
        raise AssertionError

    with (
        replaced(arm(), "get_default_arm_inductor_quantization_config", upstreamed),
        pytest.raises(SeamMovedError, match="takes"),
        GRANULARITY.repair(),
    ):
        pass


# The hook that two backends want.


def counting(name: str, ran: list[str]) -> Callable[[torch.fx.Graph], None]:
    return lambda _graph: ran.append(name)


@pytest.fixture
def config():
    from torch._inductor import config

    with config.patch(pre_grad_custom_pass=None):
        yield config


def compiled(ran: list[str]) -> list[str]:
    """What ran when Dynamo handed a function to Inductor's pre-grad passes, without generating any code."""
    from torch._inductor.compile_fx import _recursive_pre_grad_passes

    torch._dynamo.reset()
    torch.compile(lambda x: x.relu() + 1, backend=_recursive_pre_grad_passes)(torch.ones(2))
    return ran


def test_the_last_of_two_backends_wins_and_chained_both_run_once_in_order():
    released = CHAIN.probe()
    with CHAIN.repair():
        repaired = CHAIN.probe()
    assert released.value == "0 of the first, 1 of the second"
    assert repaired.value == repaired.should == "1 of the first, 1 of the second"
    assert CHAIN.probe() == released


def test_torch_compile_runs_both_and_a_pass_assigned_twice_once(config):
    ran: list[str] = []
    with CHAIN.repair():
        config.pre_grad_custom_pass = first = counting("first", ran)
        config.pre_grad_custom_pass = counting("second", ran)
        config.pre_grad_custom_pass = first
        assert compiled(ran) == ["first", "second"]


def test_importing_the_x86_quantizer_joins_and_is_not_lost_on_exit(config):
    """The import assigns once in a process, so the module's own statement is run here, as a fresh process would."""
    ran: list[str] = []
    spec = importlib.util.find_spec(X86)
    source = Path(spec.origin).read_text()
    assignment = next(line for line in source.splitlines() if "pre_grad_custom_pass =" in line)
    namespace = {"torch": torch, "quant_lift_up": counting("torchao", ran)}
    with CHAIN.repair():
        config.pre_grad_custom_pass = counting("other", ran)
        exec(assignment, namespace)
        assert compiled(ran) == ["other", "torchao"]
    assert config.pre_grad_custom_pass is namespace["quant_lift_up"]


def test_a_pass_that_was_there_before_is_joined_and_is_back_afterwards(config):
    ran: list[str] = []
    before = counting("before", ran)
    config.pre_grad_custom_pass = before
    with CHAIN.repair(), config.patch(pre_grad_custom_pass=counting("patched", ran)):
        assert compiled(ran) == ["before", "patched"]
    assert config.pre_grad_custom_pass is before


def test_a_sequence_and_none_still_replace(config):
    ran: list[str] = []
    with CHAIN.repair():
        config.pre_grad_custom_pass = counting("first", ran)
        config.pre_grad_custom_pass = [counting("listed", ran)]
        assert compiled(ran) == ["listed"]
        config.pre_grad_custom_pass = None
        assert compiled(ran) == ["listed"]


@pytest.mark.parametrize("fix", [GRANULARITY, CHAIN], ids=lambda fix: fix.name)
def test_a_repair_is_undone_after_an_exception(fix, config):
    released = fix.probe()
    with pytest.raises(RuntimeError, match="boom"), fix.repair():
        raise RuntimeError("boom")
    assert fix.probe() == released
    assert "__setattr__" not in vars(type(config))


def test_the_config_modules_own_class_is_the_seam(config):
    """Were the class shared with other config modules, every setting of torch would pass through the repair."""
    import torch._dynamo.config

    assert type(config) is not type(torch._dynamo.config)
    with pytest.raises(SeamMovedError), CHAIN.repair(), CHAIN.repair():
        pass


def test_all_repairs_of_torchao_work_together_in_any_order():
    for fixes in (ALL, tuple(reversed(ALL))):
        with ExitStack() as repairs:
            for fix in fixes:
                repairs.enter_context(fix.repair())
            assert all(fix.probe().right for fix in fixes)
    assert not any(fix.probe().right for fix in ALL)
