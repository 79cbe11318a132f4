from __future__ import annotations

import pytest
import torch
from torch import nn

TARGETS = {"convnext": 0.97, "resnet": 0.97, "slices": 0.97, "vit": 0.94, "bert": 0.94}
CASES = [(name, size) for name in TARGETS for size in ("small", "full")]
BLOCKS = {"CNBlock", "BasicBlock", "Bottleneck", "EncoderBlock", "BertLayer"}


def tensors_of(output):
    return (output,) if isinstance(output, torch.Tensor) else tuple(output)


def observe(model, inputs):
    """Standard deviation of every layer's output within its channels, each block's relative change, the outputs."""
    spread: dict[str, float] = {}
    change: dict[str, float] = {}

    def watch(name, module, arguments, output):
        output = tensors_of(output)[0]
        if isinstance(module, nn.Conv2d):
            output = output.movedim(1, -1)
        # Over samples and positions, not channels: a bias alone makes a layer look alive, but it is not signal.
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.MultiheadAttention)):
            spread[name] = float(output.flatten(0, -2).std(0).mean())
        elif output.shape == arguments[0].shape:
            change[name] = float((output - arguments[0]).norm() / arguments[0].norm())

    handles = [
        module.register_forward_hook(lambda m, a, o, name=name: watch(name, m, a, o))
        for name, module in model.named_modules()
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.MultiheadAttention)) or type(module).__name__ in BLOCKS
    ]
    with torch.no_grad():
        outputs = tensors_of(model(*inputs))
    for handle in handles:
        handle.remove()
    return spread, change, outputs


@pytest.mark.parametrize("name", TARGETS)
def test_committed_weights_read_held_out_digits(load, name):
    adapter = load(name)
    size = adapter.SIZES["small"]
    model = adapter.build("small", "trained", 0)
    right = total = 0
    with torch.no_grad():
        for batch in adapter.evaluation("small", 0):
            scores = tensors_of(model(*batch.inputs))[size.outputs.index(size.labelled)]
            right += int((scores.argmax(-1) == batch.labels).sum())
            total += len(batch.labels)
    assert total == 360
    assert right / total >= TARGETS[name]


@pytest.mark.parametrize("name", TARGETS)
def test_committed_weights_are_under_a_megabyte(load, name):
    assert (load("_checkpoints").WEIGHTS / f"{name}.safetensors").stat().st_size < 1_000_000


def test_trained_layer_scales_spread_as_the_published_networks_do(load):
    scales = [
        p.detach().abs()
        for n, p in load("convnext").build("small", "trained", 0).named_parameters()
        if "layer_scale" in n
    ]
    assert len(scales) == 4
    assert all(2 <= float(scale.max() / scale.mean()) <= 6 for scale in scales)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("size", ["small", "full"])
def test_block_1_of_a_seeded_convnext_has_the_published_layer_scale_figures(load, size, seed):
    model = load("convnext").build(size, "seeded", seed)
    scale = model.get_parameter("features.1.0.layer_scale").detach().double().abs()
    assert float(scale.max()) == pytest.approx(0.226632953, rel=1e-7)
    assert float(scale.mean()) == pytest.approx(0.092455307, rel=1e-7)


def test_convnext_tiny_has_18_layer_scales_of_which_no_two_agree(seeded):
    scales = [p.detach() for n, p in seeded("convnext", "full").named_parameters() if "layer_scale" in n]
    assert len(scales) == 18
    ratios = [float(scale.abs().max() / scale.abs().mean()) for scale in scales]
    assert len(set(ratios)) == 18
    assert all(2.2 < ratio < 6.1 for ratio in ratios)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_every_layer_and_output_of_seeded_weights_carries_signal(load, seeded, name, size):
    inputs = next(iter(load(name).evaluation(size, 0))).inputs
    spread, change, outputs = observe(seeded(name, size), inputs)
    assert spread
    assert {layer: s for layer, s in spread.items() if not 1e-2 < s < 1e2} == {}
    assert {block: c for block, c in change.items() if not 0.05 < c < 20} == {}
    assert bool(change) is (name != "slices")
    for output in outputs:
        assert 1e-2 < float(output.std(0).mean()) < 1e2, "the output must differ from sample to sample"


def test_the_signal_check_sees_what_a_fresh_network_lacks(load):
    inputs = next(iter(load("vit").evaluation("small", 0))).inputs
    spread, _, outputs = observe(load("vit")._small().eval(), inputs)
    assert spread["heads.head"] == 0
    assert float(outputs[0].std()) == 0
    convnext = load("convnext")._small().eval()
    for name, parameter in convnext.named_parameters():
        if "layer_scale" in name:
            nn.init.constant_(parameter, 1e-6)
    _, change, _ = observe(convnext, inputs)
    assert max(change.values()) < 1e-5


@pytest.mark.parametrize("name", TARGETS)
def test_no_block_of_a_trained_model_is_near_identity(load, name):
    inputs = next(iter(load(name).evaluation("small", 0))).inputs
    _, change, _ = observe(load(name).build("small", "trained", 0), inputs)
    assert all(share > 0.1 for share in change.values())


@pytest.mark.parametrize("size", ["small", "full"])
def test_seeded_batchnorm_statistics_are_not_the_untouched_zero_and_one(seeded, size):
    for module in seeded("resnet", size).modules():
        if isinstance(module, nn.BatchNorm2d):
            assert float(module.running_mean.abs().mean()) > 1e-3
            assert float((module.running_var - 1).abs().mean()) > 1e-3
            assert module.momentum == 0.1


@pytest.mark.parametrize(("name", "size"), [(n, s) for n in ("bert", "vit") for s in ("small", "full")])
def test_every_seeded_layer_norm_has_a_few_outlier_channels(seeded, name, size):
    for module in seeded(name, size).modules():
        if isinstance(module, nn.LayerNorm):
            outliers = int((module.weight > 2).sum())
            assert 2 <= outliers <= 6  # 2 of the small width, 768 / 128 = 6 of the full one
            assert 2 < float(module.weight.detach().max()) < 15


def test_the_packed_tensor_has_narrow_rows_and_wide_rows(load):
    for size, side in (("small", 8), ("full", 32)):
        packed = torch.cat([batch.inputs[0] for batch in load("slices").evaluation(size, 0)])
        assert packed.shape[1:] == (side + 2, side)
        assert float(packed[:, :side].min()) >= -1
        assert float(packed[:, :side].max()) <= 1.7 + 1e-6
        assert 80 <= float(packed[:, side:].max()) <= 100


def test_slices_pack_row_and_column_ink_in_per_cent_of_a_full_line(load):
    pixels = torch.zeros(1, 8, 8)
    pixels[0, 2, :4] = 16  # half of row 2; one eighth of columns 0 to 3
    (packed,) = load("slices").pack(pixels)
    assert packed[0, 2].tolist() == pytest.approx([1.7] * 4 + [-1.0] * 4)
    assert packed[0, 8].tolist() == [0, 0, 50, 0, 0, 0, 0, 0]
    assert packed[0, 9].tolist() == [12.5] * 4 + [0] * 4


@pytest.mark.parametrize("weights", ["trained", "seeded"])
def test_one_scale_for_the_whole_packed_tensor_ruins_one_branch_or_the_other(load, weights):
    model = load("slices").build("small", weights, 0)
    packed = next(iter(load("slices").evaluation("small", 0))).inputs[0]

    def loss_db(low: float, high: float) -> list[float]:
        scale = (high - low) / 255
        codes = ((packed - low) / scale).round().clamp(0, 255)
        with torch.no_grad():
            reference, actual = model(packed), model(codes * scale + low)
        return [
            float(10 * (r.square().sum() / (r - a).square().sum()).log10())
            for r, a in zip(reference, actual, strict=True)
        ]

    def own_db(rows: slice, low: float, high: float, output: int) -> float:
        scale = (high - low) / 255
        alone = packed.clone()
        alone[:, rows] = ((packed[:, rows] - low) / scale).round().clamp(0, 255) * scale + low
        with torch.no_grad():
            reference, actual = model(packed)[output], model(alone)[output]
        return float(10 * (reference.square().sum() / (reference - actual).square().sum()).log10())

    digit, centre = 0, 1
    assert own_db(slice(0, 8), -1, 1.7, digit) > 35
    assert own_db(slice(8, 10), 0, 100, centre) > 35
    assert loss_db(-1, 100)[digit] < 25
    assert loss_db(-1, 1.7)[centre] < 5
