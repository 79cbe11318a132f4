"""Weights from files: a state_dict, safetensors, a torchvision weight enum or a transformers folder.

Whatever is wrong with a file becomes one `WeightsError` line, never a traceback, and nothing in a pickle is ever
executed: torch files are read with `weights_only=True`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar
from urllib.parse import urlparse

import torch

from harness.errors import WeightsError

Module = TypeVar("Module", bound=torch.nn.Module)
State = Mapping[str, torch.Tensor]

WEIGHTS = Path(__file__).with_name("weights")
"""The committed checkpoints of the small models."""


def trained(model: Module, name: str) -> Module:
    """The committed checkpoint of a small model."""
    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise WeightsError(f"{path} is missing; `sqnr train -m {name}` writes it (or use --weights seeded)")
    return load_into(model, path)


def load(model: Module, name: str, weights: str, entry: Any) -> Module:
    """An image model with weights that are `trained`, `pretrained` (torchvision's enum `entry`) or a file."""
    if weights == "trained":
        return trained(model, name)
    if weights == "pretrained":
        return published(model, entry)
    return load_into(model, weights)


def check_kind(model: str, size: str, weights: str, kinds: Sequence[str]) -> None:
    """Refuse a `weights` that is neither one of the size's kinds nor something on disk."""
    if weights not in kinds and not Path(weights).exists():
        choices = ", ".join((*kinds, "or the path of a checkpoint"))
        raise WeightsError(
            f"{model}/{size} has no weights {weights!r} and there is no such file; --weights is {choices}"
        )


def load_into(model: Module, path: str | Path) -> Module:
    """Copy the tensors of a checkpoint file into `model`, in eval mode."""
    return fill(model, read_state(Path(path)), str(path))


def read_state(path: Path) -> State:
    """Tensors by name from `.safetensors`, or from anything that `torch.save` wrote of a state_dict."""
    if path.is_dir():
        raise WeightsError(f"{path} is a folder; this model needs a state_dict file (.pth) or a .safetensors file")
    if not path.is_file():
        raise WeightsError(f"there is no weights file {path}")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise WeightsError(f"{path} is not a state_dict of tensors; save it with torch.save(model.state_dict(), path)")
    return state


def _read_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is not a whole safetensors file ({_first_line(error)}); fetch it again") from None


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise WeightsError(
            f"{path} is not a plain file of tensors: it is damaged or its pickle holds code, which is never run; "
            "save model.state_dict() alone, or a .safetensors file"
        ) from None
    except Exception as error:  # torch.load raises half a dozen types for a damaged file
        raise WeightsError(f"{path} is not a whole torch file ({_first_line(error)}); fetch it again") from None


def fill(model: Module, state: State, source: str) -> Module:
    """Load `state` into `model`; every key must fit, because a skipped one leaves random weights behind."""
    kind = type(model).__name__
    try:
        keys = model.load_state_dict(dict(state), strict=False)
    except RuntimeError as error:
        mismatch = [line.strip().rstrip(".") for line in str(error).splitlines() if "size mismatch" in line]
        raise WeightsError(f"{source} does not fit {kind}: {(mismatch or [_first_line(error)])[0]}") from None
    problems = [
        f"{len(names)} {what} (first: {names[0]})"
        for what, names in (("missing", keys.missing_keys), ("unknown", keys.unexpected_keys))
        if names
    ]
    if problems:
        raise WeightsError(f"{source} does not fit {kind}: of {len(model.state_dict())} tensors {', '.join(problems)}")
    return model.eval()


def published(model: Module, entry: Any) -> Module:
    """The weights behind a torchvision weight enum `entry`, from torch's checkpoint folder or downloaded into it."""
    cached = Path(torch.hub.get_dir(), "checkpoints", Path(urlparse(entry.url).path).name)
    if not cached.is_file():
        try:
            # Standard output belongs to the verb that runs (it may be JSON); torch.hub announces downloads there.
            with contextlib.redirect_stdout(sys.stderr):
                entry.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except Exception as error:  # URLError, a proxy's HTTP error, a full disk, a wrong hash: all mean "not here"
            raise WeightsError(
                f"cannot download {entry} ({_first_line(error)}); download {entry.url} on another machine "
                f"and put it at {cached}, or pass its path with --weights PATH"
            ) from None
    return load_into(model, cached)


def transformers_model(cls: Any, source: str, **settings: Any) -> Any:
    """`cls.from_pretrained(source)` in float32, refusing a checkpoint that leaves some weights random.

    `source` is a folder or a published name; transformers itself only warns about missing or misshapen tensors.
    """
    try:
        with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(sys.stderr):
            model, info = cls.from_pretrained(
                source, dtype=torch.float32, weights_only=True, output_loading_info=True, **settings
            )
    except Exception as error:  # transformers raises OSError, ValueError, RuntimeError, SafetensorError, KeyError
        if Path(source).exists():
            raise WeightsError(
                f"{source} is not a transformers folder of {cls.__name__} ({_first_line(error)}); "
                "it needs config.json and model.safetensors"
            ) from None
        raise WeightsError(
            f"cannot download {source} ({_first_line(error)}); download config.json and model.safetensors of "
            f"{source} from the Hugging Face hub into a folder and pass it with --weights FOLDER"
        ) from None
    random = _names(info["missing_keys"]) + _names(info.get("mismatched_keys", ()))
    if random:
        raise WeightsError(
            f"{source} does not fit {cls.__name__}: {len(random)} tensors are missing or misshapen (first: {random[0]})"
        )
    return model.eval()


def _names(keys: Iterable[Any]) -> list[str]:
    return sorted(key if isinstance(key, str) else str(key[0]) for key in keys)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
