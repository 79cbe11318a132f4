"""Running a minimised graph again: loads the programs of a folder `minimal/`, which only a trusted folder should hold.

`torch.export.load` unpickles what its weights-only loader refuses, so a program from a stranger can run code.
"""

from __future__ import annotations

import contextlib
import io
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from harness import bundle
from harness.errors import TableError, in_a_line
from harness.measure.metrics import sqnr_db
from harness.subject import tensor_bytes

FOLDER = bundle.MINIMAL
BAD, GOOD, INPUTS, RECORD = "bad.pt2", "good.pt2", "inputs.safetensors", "minimal.json"
REFERENCE = "reference"
_OPS = (
    "torchao.quantization.pt2e.quantize_pt2e",
    "executorch.backends.vulkan.custom_ops_lib",
    "executorch.backends.cadence.aot.ops_registrations",
)
"""Modules that register the ops of quantized graphs; those that are installed are imported before a program loads."""

_Finite = Annotated[float, Field(allow_inf_nan=False)] | None


class Record(BaseModel):
    """The content of minimal.json: the part, its culprit, and what both programs gave; dB against the reference."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    version: Literal[1] = Field(default=1, alias="schema")
    part: str
    nodes: int
    culprit: list[str]
    bad_db: _Finite
    good_db: _Finite
    bad_bits: str
    good_bits: str


def replay(place: Path) -> list[str]:
    """Run both programs of a bundle's `minimal/` again; a line for each thing that differs, none if all is the same.

    Raises `TableError` naming the file that cannot be read.
    """
    folder = place / FOLDER
    record = _record(folder / RECORD)
    *inputs, reference = _tensors(folder / INPUTS)
    for module in _OPS:
        with contextlib.suppress(ImportError):
            import_module(module)
    lines = []
    for name, level, wanted in ((BAD, record.bad_db, record.bad_bits), (GOOD, record.good_db, record.good_bits)):
        with torch.no_grad():
            actual = _program(folder / name)(*inputs)
        if bits(actual) != wanted:
            now = sqnr_db(reference=reference, actual=actual)
            lines.append(f"{FOLDER}/{name} gives other bits: {_level(level)} -> {_level(now)}")
    return lines


def bits(value: Tensor) -> str:
    """SHA-256 over a tensor's type, shape and bytes."""
    return sha256(f"{value.dtype}{tuple(value.shape)}".encode() + tensor_bytes(value)).hexdigest()


def _level(level: float | None) -> str:
    return "no SQNR" if level is None else f"{level!r} dB"


def _record(file: Path) -> Record:
    try:
        return Record.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise TableError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from None


def _tensors(file: Path) -> list[Tensor]:
    """The inputs in order, and the reference behind them."""
    try:
        found = load(file.read_bytes())
        return [*(found[str(place)] for place in range(len(found) - 1)), found[REFERENCE]]
    except (OSError, SafetensorError, KeyError) as error:
        raise TableError(f"{file}: cannot be read: {in_a_line(error)}") from None


def _program(file: Path) -> torch.nn.Module:
    try:
        program: torch.nn.Module = torch.export.load(io.BytesIO(file.read_bytes())).module()
    except Exception as error:  # whatever a damaged archive makes of the loader
        raise TableError(f"{file}: cannot be loaded: {in_a_line(error)}") from None
    return program
