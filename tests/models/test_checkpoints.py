from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

from harness.errors import WeightsError

MODELS = ("bert", "convnext", "resnet", "slices", "vit")


def state_of(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def refusal(build, *arguments) -> str:
    with pytest.raises(WeightsError) as caught:
        build(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("name", MODELS)
def test_a_path_brings_back_exactly_the_tensors_that_were_saved(load, seeded, tmp_path, name, suffix):
    saved = state_of(load(name).build("small", "seeded", 5))
    path = tmp_path / f"retrained{suffix}"
    torch.save(saved, path) if suffix == ".pth" else save_file(saved, path)
    loaded = load(name).build("small", str(path), 0).state_dict()
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[key], saved[key]) for key in saved)


def test_neither_a_kind_nor_a_file_lists_the_choices(load):
    assert "trained, seeded, or the path" in refusal(load("vit").build, "small", "pretrained", 0)
    assert "seeded, pretrained, or the path" in refusal(load("vit").build, "full", "/nowhere/vit.pth", 0)


def test_a_missing_trained_checkpoint_names_the_verb_that_writes_it(load, monkeypatch, tmp_path):
    monkeypatch.setattr(load("_checkpoints"), "WEIGHTS", tmp_path)
    assert "sqnr train -m resnet" in refusal(load("resnet").build, "small", "trained", 0)


def test_missing_and_unknown_tensors_are_counted_and_named(load, seeded, tmp_path):
    state = state_of(seeded("convnext", "small"))
    state["head.weight"] = state.pop("classifier.2.weight")
    torch.save(state, tmp_path / "c.pth")
    message = refusal(load("convnext").build, "small", str(tmp_path / "c.pth"), 0)
    assert "1 missing (first: classifier.2.weight), 1 unknown (first: head.weight)" in message


def test_a_wrong_shape_names_the_tensor_and_both_shapes(load, seeded, tmp_path):
    state = state_of(seeded("vit", "small"))
    state["heads.head.weight"] = torch.zeros(7, 64)
    torch.save(state, tmp_path / "v.pth")
    message = refusal(load("vit").build, "small", str(tmp_path / "v.pth"), 0)
    assert "heads.head.weight" in message
    assert "[7, 64]" in message
    assert "[10, 64]" in message


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("keep", [0, 5, 1000])
def test_a_truncated_file_is_one_line(load, seeded, tmp_path, suffix, keep):
    state, path = state_of(seeded("slices", "small")), tmp_path / f"cut{suffix}"
    torch.save(state, path) if suffix == ".pth" else save_file(state, path)
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in refusal(load("slices").build, "small", str(path), 0)


class _Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("legacy", [True, False])
def test_code_in_a_pickle_is_never_run(load, tmp_path, legacy):
    mark, path = tmp_path / "executed", tmp_path / "bomb.pth"
    if legacy:
        path.write_bytes(pickle.dumps(_Bomb(mark)))
    else:
        torch.save({"fc.weight": _Bomb(mark)}, path)
    assert "never run" in refusal(load("resnet").build, "small", str(path), 0)
    assert not mark.exists()


def test_a_file_without_tensors_says_what_to_save(load, tmp_path):
    torch.save({"epoch": 3, "model": {}}, tmp_path / "wrapped.pth")
    assert "model.state_dict()" in refusal(load("resnet").build, "small", str(tmp_path / "wrapped.pth"), 0)


def test_a_folder_is_refused_by_an_image_model(load, tmp_path):
    assert "is a folder" in refusal(load("resnet").build, "small", str(tmp_path), 0)


@pytest.mark.parametrize(
    ("name", "file"),
    [("convnext", "convnext_tiny-983f1562.pth"), ("resnet", "resnet50-11ad3fa6.pth"), ("vit", "vit_b_16-c867db91.pth")],
)
def test_without_network_torchvisions_file_is_named_with_its_place(load, monkeypatch, tmp_path, name, file):
    def offline(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    message = refusal(load(name).build, "full", "pretrained", 0)
    assert str(tmp_path / "hub" / "checkpoints" / file) in message
    assert f"/{file} " in message
    assert "--weights PATH" in message


def test_pretrained_comes_from_torchs_checkpoint_folder_when_the_file_is_there(load, seeded, monkeypatch, tmp_path):
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    saved = state_of(seeded("convnext", "full"))
    torch.save(saved, folder / "convnext_tiny-983f1562.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    loaded = load("convnext").build("full", "pretrained", 3).state_dict()
    assert all(torch.equal(loaded[key], saved[key]) for key in saved)


def test_a_download_goes_through_torchvision_with_its_hash_checked(load, monkeypatch, tmp_path, capsys):
    content = tmp_path / "published.pth"
    torch.save({}, content)

    def download(url, destination, hash_prefix=None, progress=True):
        found = hashlib.sha256(content.read_bytes()).hexdigest()
        if not found.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    message = refusal(load("resnet").build, "full", "pretrained", 0)
    assert 'invalid hash value (expected "11ad3fa6"' in message
    assert capsys.readouterr().out == ""


def test_published_vit_files_with_the_older_mlp_names_still_load(load, seeded, tmp_path):
    def older(name: str) -> str:
        return name.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2.")

    saved = state_of(seeded("vit", "small"))
    # A published file says nothing of versions: a bare OrderedDict has no _metadata.
    torch.save(OrderedDict((older(name), tensor) for name, tensor in saved.items()), tmp_path / "older.pth")
    loaded = load("vit").build("small", str(tmp_path / "older.pth"), 0).state_dict()
    assert all(torch.equal(loaded[key], saved[key]) for key in saved)


def tiny_bert(**changes) -> BertModel:
    settings = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertModel(BertConfig(**{**settings, **changes}))


def test_a_transformers_folder_loads_in_float32_even_if_it_was_saved_in_half(load, tmp_path):
    saved = tiny_bert().half()
    saved.save_pretrained(tmp_path)
    model = load("bert").build("full", str(tmp_path), 0)
    with torch.no_grad():
        states, pooled = model(*next(iter(load("bert").evaluation("full", 0))).inputs)
    assert (states.shape, pooled.shape, states.dtype) == ((2, 128, 8), (2, 8), torch.float32)
    assert torch.equal(model.pooler.dense.weight, saved.pooler.dense.weight.float())


def test_a_transformers_folder_of_the_small_model_loads(load, seeded, tmp_path):
    seeded("bert", "small").save_pretrained(tmp_path)
    loaded = load("bert").build("small", str(tmp_path), 0).state_dict()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in seeded("bert", "small").state_dict().items())


def test_a_folder_whose_model_is_too_small_for_the_inputs_is_refused(load, tmp_path):
    tiny_bert(vocab_size=100).save_pretrained(tmp_path)
    assert "vocab_size is 100, the inputs need 30522" in refusal(load("bert").build, "full", str(tmp_path), 0)
    tiny_bert(max_position_embeddings=64).save_pretrained(tmp_path)
    assert "max_position_embeddings is 64" in refusal(load("bert").build, "full", str(tmp_path), 0)


def test_a_folder_that_would_leave_weights_random_is_refused(load, tmp_path):
    tiny_bert(vocab_size=17).save_pretrained(tmp_path)
    assert "classifier" in refusal(load("bert").build, "small", str(tmp_path), 0)


def test_a_folder_without_a_model_says_what_belongs_there(load, tmp_path):
    assert "config.json and model.safetensors" in refusal(load("bert").build, "full", str(tmp_path), 0)
    tiny_bert().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert str(tmp_path) in refusal(load("bert").build, "full", str(tmp_path), 0)


def test_without_network_bert_names_the_files_and_the_published_model(load):
    message = refusal(load("bert").build, "full", "pretrained", 0)
    assert "config.json and model.safetensors of bert-base-uncased" in message
    assert "--weights FOLDER" in message


def test_a_pretraining_file_of_bert_base_loads_without_its_heads(load, seeded, tmp_path):
    def published(name: str) -> str:
        return "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    saved = state_of(seeded("bert", "full"))
    file = {published(name): tensor for name, tensor in saved.items()} | {"cls.predictions.bias": torch.zeros(30522)}
    save_file(file, tmp_path / "model.safetensors")
    loaded = load("bert").build("full", str(tmp_path / "model.safetensors"), 0).state_dict()
    assert all(torch.equal(loaded[key], saved[key]) for key in saved)
