from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.adapter import Adapter

MODELS = ("bert", "convnext", "resnet", "slices", "vit")
IMAGES = ("convnext", "resnet", "vit")
CASES = [(name, size) for name in MODELS for size in ("small", "full")]
ROOT = Path(__file__).parents[2]

OTHER_PROCESS = """
import sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_contract import everything
from harness.workspace import load_module
torch.set_num_threads(1)
for name in sys.argv[3:]:
    print(everything(load_module(Path(sys.argv[2]), name)))
"""


def tensors_of(output):
    return (output,) if isinstance(output, torch.Tensor) else tuple(output)


def bits(batches) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        for tensor in batch.inputs:
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", MODELS)
def test_every_adapter_has_both_sizes_and_the_kinds_of_weights_it_promises(load, name):
    adapter = load(name)
    assert isinstance(adapter, Adapter)
    assert adapter.SIZES["small"].weights == ("trained", "seeded")
    assert adapter.SIZES["full"].weights == (("seeded",) if name == "slices" else ("seeded", "pretrained"))
    assert adapter.SIZES["small"].labelled in adapter.SIZES["small"].outputs
    assert adapter.SIZES["full"].labelled is None


@pytest.mark.parametrize(("name", "size"), CASES)
def test_forward_returns_the_named_outputs_in_eval_mode_and_float32(load, seeded, name, size):
    model = seeded(name, size)
    inputs = next(iter(load(name).evaluation(size, 0))).inputs
    with torch.no_grad():
        outputs = tensors_of(model(*inputs))
    assert len(outputs) == len(load(name).SIZES[size].outputs)
    assert not any(module.training for module in model.modules())
    assert all(output.dtype == torch.float32 and len(output) == len(inputs[0]) for output in outputs)
    assert all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())


@pytest.mark.parametrize(("name", "size"), CASES)
def test_all_batches_have_one_shape_and_come_out_the_same_when_asked_for_again(load, name, size):
    adapter = load(name)
    batches = [*adapter.calibration(size, 0), *adapter.evaluation(size, 0)]
    assert len({tuple(tensor.shape for tensor in batch.inputs) for batch in batches}) == 1
    assert bits(adapter.calibration(size, 0)) == bits(adapter.calibration(size, 0))
    assert bits(adapter.evaluation(size, 0)) == bits(adapter.evaluation(size, 0))


@pytest.mark.parametrize("name", MODELS)
def test_small_calibrates_on_4_batches_of_30_and_measures_12_labelled_batches_of_30(load, name):
    adapter = load(name)
    assert [len(batch.inputs[0]) for batch in adapter.calibration("small", 0)] == [30] * 4
    labels = torch.cat([batch.labels for batch in adapter.evaluation("small", 0)])
    assert labels.dtype == torch.int64
    assert labels.bincount().tolist() == [36] * 10


@pytest.mark.parametrize("name", MODELS)
def test_full_calibrates_on_2_unlabelled_batches_and_measures_4(load, name):
    adapter = load(name)
    evaluation = list(adapter.evaluation("full", 0))
    assert (len(list(adapter.calibration("full", 0))), len(evaluation)) == (2, 4)
    assert all(batch.labels is None for batch in evaluation)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_no_calibration_sample_is_measured(load, name, size):
    def samples(batches):
        return {
            tuple(t[i].numpy().tobytes() for t in batch.inputs)
            for batch in batches
            for i in range(len(batch.inputs[0]))
        }

    adapter = load(name)
    for seed in (0, 1):
        assert not samples(adapter.calibration(size, seed)) & samples(adapter.evaluation(size, seed))


def test_training_and_held_out_digits_share_no_digit(load):
    digits = load("_digits")
    seen = {pixels.numpy().tobytes() for pixels in digits.training().pixels}
    measured = {pixels.numpy().tobytes() for pixels in digits.held_out().pixels}
    assert (len(seen), len(measured), len(seen & measured)) == (1437, 360, 0)


@pytest.mark.parametrize("name", MODELS)
def test_seed_1_gives_other_weights_and_other_inputs_than_seed_0(load, seeded, name):
    adapter = load(name)
    for key, tensor in adapter.build("small", "seeded", 1).state_dict().items():
        if key.endswith("weight"):
            assert not torch.equal(tensor, seeded(name, "small").state_dict()[key]), key
    assert bits(adapter.calibration("small", 0)) != bits(adapter.calibration("small", 1))
    assert bits(adapter.evaluation("full", 0)) != bits(adapter.evaluation("full", 1))


@pytest.mark.parametrize("name", MODELS)
def test_the_held_out_digits_do_not_depend_on_the_seed(load, name):
    assert bits(load(name).evaluation("small", 0)) == bits(load(name).evaluation("small", 1))


@pytest.mark.parametrize("name", MODELS)
def test_the_callers_random_numbers_are_left_alone(load, name):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    adapter = load(name)
    for weights in ("seeded", "trained"):
        adapter.build("small", weights, 0)
    list(adapter.calibration("full", 0))
    assert torch.equal(torch.rand(3), expected)


def everything(adapter) -> str:
    """Digest of the small seeded weights and of every batch of both sizes."""
    digest = hashlib.sha256()
    for tensor in adapter.build("small", "seeded", 0).state_dict().values():
        digest.update(tensor.numpy().tobytes())
    for size in ("small", "full"):
        digest.update(bits(adapter.calibration(size, 0)).encode() + bits(adapter.evaluation(size, 0)).encode())
    return digest.hexdigest()


def test_two_processes_get_the_same_bits(load):
    command = [sys.executable, "-c", OTHER_PROCESS, str(Path(__file__).parent), str(ROOT / "models"), *MODELS]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.split() == [everything(load(name)) for name in MODELS]


def test_bert_full_is_padded_and_its_mask_says_where(load):
    for batch in load("bert").evaluation("full", 0):
        tokens, mask = batch.inputs
        assert tokens.shape == mask.shape == (2, 128)
        assert mask.dtype == torch.int64
        assert mask[0].sum() == 128
        assert 32 <= int(mask[1].sum()) < 128
        assert torch.equal(tokens != 0, mask.bool())


def test_a_digit_is_masked_after_its_last_inked_pixel(load):
    pixels = torch.zeros(1, 8, 8)
    pixels[0, 1, 2] = 16  # the 11th of 64 pixels
    tokens, mask = load("bert").as_tokens(pixels)
    assert tokens[0, 10] == 16
    assert mask.tolist() == [[1] * 11 + [0] * 53]


@pytest.mark.parametrize("name", IMAGES)
def test_images_have_about_zero_mean_and_unit_variance(load, name):
    for size in ("small", "full"):
        images = torch.cat([batch.inputs[0] for batch in load(name).evaluation(size, 0)])
        assert abs(float(images.mean())) < 0.2
        assert 0.8 < float(images.std()) < 1.2
