"""The float model under measurement, with its data and reference outputs: what all cases of a group share."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.utils import _pytree

from harness.adapter import Adapter, Batch
from harness.errors import AdapterError
from harness.measure.bootstrap import Array
from harness.measure.metrics import OutputStats, Top1
from harness.records import SPILL_PREFIX, Case, OutputRow, Point, Status

JITTER = 1e-6
"""Relative size of the jitter that measures a row's noise floor: about what another summation order does."""


class Subject:
    """A float model, its batches, and its fp32 eager outputs, computed before any upstream code sees the model.

    Reference outputs are spilled to a temporary folder in `spill` batch by batch, so memory does not grow with the
    evaluation set. With `jitter`, floating inputs are multiplied by 1 + 1e-6 N(0, 1) drawn from that seed (the
    parameters are, where a model has no floating input). `input_hashes` holds a SHA-256 for each batch of `calibration`
    and `evaluation`, as the adapter gives them; a jittered subject has none.
    """

    def __init__(
        self,
        adapter: Adapter,
        size: str,
        weights: str,
        seed: int,
        jitter: int | None = None,
        spill: Path | None = None,
    ) -> None:
        self._adapter = adapter
        self._size = size
        self._seed = seed
        self._jitter = jitter
        self.outputs = adapter.SIZES[size].outputs
        self._labelled = adapter.SIZES[size].labelled
        self.model = adapter.build(size, weights, seed)
        if not isinstance(self.model, torch.nn.Module):
            raise AdapterError(f"{adapter.__name__}.build({size!r}) must return a torch.nn.Module")
        training = [name for name, module in self.model.named_modules() if module.training]
        if training:
            where = training[0] or "the model itself"
            raise AdapterError(f"{adapter.__name__}.build({size!r}) must return eval mode, but {where} is in training")
        self._spill = tempfile.TemporaryDirectory(prefix=SPILL_PREFIX, dir=spill)
        self.inputs: tuple[torch.Tensor, ...] = ()
        self.samples: dict[str, Array] = {}
        """Sums of signal and noise of each sample, (2, samples), by output, of what was measured last."""
        self._shapes: list[tuple[tuple[int, ...], torch.dtype]] = []
        self.input_hashes: dict[str, list[str]] = {}
        before = self.weights_digest()
        self._compute_reference()
        self.digest = self.weights_digest()
        self._hash_calibration()
        if jitter is None and self.digest != before:
            raise AdapterError(f"{adapter.__name__}: the model changes its own parameters or buffers when it runs")

    def close(self) -> None:
        """Remove the spilled reference outputs."""
        self._spill.cleanup()

    def weights_digest(self) -> str:
        """One SHA-256 over the names and bytes of all parameters and buffers."""
        tensors = [*self.model.named_parameters(), *self.model.named_buffers()]
        return hashlib.sha256(repr(sorted(weight_hashes(tensors).items())).encode()).hexdigest()

    def _compute_reference(self) -> None:
        first = next(iter(self._adapter.evaluation(self._size, self._seed)), None)
        if first is None:
            raise AdapterError(f"{self._adapter.__name__}.evaluation({self._size!r}) gives no batch")
        if self._jitter is not None and not any(value.is_floating_point() for value in first.inputs):
            self._jitter_parameters(self._jitter)
        self._shapes = [(tuple(value.shape), value.dtype) for value in first.inputs]
        for index, batch in enumerate(self._jittered(self._adapter.evaluation(self._size, self._seed))):
            self.inputs = self.inputs or batch.inputs
            if self._jitter is None:  # now: the model may write into them
                self.input_hashes.setdefault("evaluation", []).append(batch_digest(batch))
            outputs = flatten(self.model(*batch.inputs))
            if len(outputs) != len(self.outputs):
                raise AdapterError(
                    f"{self._adapter.__name__} declares {len(self.outputs)} outputs ({', '.join(self.outputs)}) for "
                    f"size {self._size!r}, but the model returned {len(outputs)} tensors"
                )
            spilled = {str(i): value.contiguous().clone() for i, value in enumerate(outputs)}
            save_file(spilled, self._batch_file(index))

    def _hash_calibration(self) -> None:
        if self._jitter is None:
            # What is wrong with calibration data is for the stage that needs them to say, and some flows need none.
            with suppress(Exception):
                batches = self._jittered(self._adapter.calibration(self._size, self._seed))
                self.input_hashes["calibration"] = [batch_digest(batch) for batch in batches]

    def _batch_file(self, index: int) -> Path:
        return Path(self._spill.name) / f"{index}.safetensors"

    def _jitter_parameters(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.model.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + JITTER * torch.randn(parameter.shape, generator=generator))

    def _jittered(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches as the adapter gives them, jittered where asked, each checked against the first one's shapes."""
        generator = torch.Generator().manual_seed(0 if self._jitter is None else self._jitter)
        for index, batch in enumerate(batches):
            shapes = [(tuple(value.shape), value.dtype) for value in batch.inputs]
            if shapes != self._shapes:
                raise AdapterError(
                    f"{self._adapter.__name__}: batch {index} has inputs {_describe(shapes)}, the first evaluation "
                    f"batch {_describe(self._shapes)}; graphs are exported for one shape"
                )
            if self._jitter is None:
                # A model or graph may write into its inputs, and an adapter may keep them.
                yield Batch(tuple(value.clone() for value in batch.inputs), batch.labels)
                continue
            inputs = tuple(
                value * (1 + JITTER * torch.randn(value.shape, generator=generator))
                if value.is_floating_point()
                else value.clone()
                for value in batch.inputs
            )
            yield Batch(inputs, batch.labels)

    def calibration(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Inputs for observers, batch by batch."""
        for batch in self._jittered(self._adapter.calibration(self._size, self._seed)):
            yield batch.inputs

    def evaluation(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Inputs of the evaluation set, batch by batch."""
        for batch in self._jittered(self._adapter.evaluation(self._size, self._seed)):
            yield batch.inputs

    def _evaluation(self) -> Iterator[tuple[Batch, list[torch.Tensor]]]:
        for index, batch in enumerate(self._jittered(self._adapter.evaluation(self._size, self._seed))):
            spilled = load_file(self._batch_file(index))
            yield batch, [spilled[str(i)] for i in range(len(self.outputs))]

    def measure(
        self, run: Callable[..., Any], case: Case, point: Point, *, keep: object = None, against: object = None
    ) -> tuple[list[OutputRow], str]:
        """One row per named output of `run(*inputs)` over the evaluation set, in one pass.

        With them comes one SHA-256 over the bits of all outputs: equal digests are equal outputs. `keep` is a key under
        which they are spilled beside the reference, `against` the key of spilled ones: the rows' `kernel_db` is the
        SQNR with those as the reference, where all of them are there and of the same shapes.
        """
        self.samples = {}
        beside = _Beside(Path(self._spill.name), self.outputs, keep, against)
        digest = hashlib.sha256()
        stats = {name: OutputStats() for name in self.outputs}
        errors = dict.fromkeys(self.outputs, "")
        top1 = Top1()
        for index, (batch, references) in enumerate(self._evaluation()):
            outputs = flatten(run(*batch.inputs))
            beside.take(index, outputs)
            if len(outputs) != len(references):
                arity = f"{len(outputs)} outputs instead of {len(references)}"
                rows = [self._row(case, point, name, status=Status.MISMATCH, error=arity) for name in self.outputs]
                return rows, arity
            for name, reference, actual in zip(self.outputs, references, outputs, strict=True):
                stats[name].update(reference=reference, actual=actual)
                digest.update(tensor_bytes(actual))
                if reference.shape != actual.shape or reference.dtype != actual.dtype:
                    errors[name] = (
                        f"{actual.dtype} {tuple(actual.shape)} instead of {reference.dtype} {tuple(reference.shape)}"
                    )
                elif name == self._labelled and batch.labels is not None:
                    top1.update(scores=actual, labels=batch.labels)
        rows = []
        for name, stat in stats.items():
            measured = stat.result()
            values = {field: getattr(measured, field) for field in measured.__slots__}
            metric = top1.result() if name == self._labelled else None
            values |= {"task_metric": metric, "kernel_db": beside.kernel_db(name), "error": errors[name]}
            rows.append(self._row(case, point, name, **values))
        sums = {name: stat.samples() for name, stat in stats.items()}
        self.samples = {name: found for name, found in sums.items() if found is not None}
        return rows, digest.hexdigest()

    @staticmethod
    def _row(case: Case, point: Point, output: str, **values: Any) -> OutputRow:
        return OutputRow(case.model, case.size, case.weights, case.flow, case.variant, point, output, **values)


class _Beside:
    """Spills the outputs of a pass for a later one, or compares them with those of an earlier one."""

    def __init__(self, folder: Path, names: tuple[str, ...], keep: object, against: object) -> None:
        self._folder, self._names, self._keep, self._against = folder, names, keep, against
        self._stats = {name: OutputStats() for name in names} if against is not None else {}

    def _file(self, key: object, index: int) -> Path:
        return self._folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}-{index}.safetensors"

    def take(self, index: int, outputs: list[torch.Tensor]) -> None:
        if self._keep is not None:
            kept = {str(i): value.contiguous().clone() for i, value in enumerate(outputs)}
            save_file(kept, self._file(self._keep, index))
        if not self._stats:
            return
        before = self._file(self._against, index)
        earlier = load_file(before) if before.exists() else {}
        if len(earlier) != len(outputs) or len(outputs) != len(self._names):
            self._stats = {}
            return
        for place, (name, actual) in enumerate(zip(self._names, outputs, strict=True)):
            self._stats[name].update(reference=earlier[str(place)], actual=actual)

    def kernel_db(self, name: str) -> float | None:
        return self._stats[name].result().sqnr_db if self._stats else None


def flatten(outputs: Any) -> list[torch.Tensor]:
    """The tensors of a model's result (tensor, tuple, dict, dataclass), in order."""
    if is_dataclass(outputs) and not isinstance(outputs, type):
        outputs = [getattr(outputs, field.name) for field in fields(outputs)]
    return [leaf for leaf in _pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def weight_hashes(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """SHA-256 of each tensor's bytes by name."""
    return {name: hashlib.sha256(tensor_bytes(tensor)).hexdigest() for name, tensor in tensors}


def batch_digest(batch: Batch) -> str:
    """One SHA-256 over dtypes, shapes and bytes of a batch's inputs, and of its labels where there are any."""
    digest = hashlib.sha256()
    for value in (*batch.inputs, *(() if batch.labels is None else (batch.labels,))):
        digest.update(f"{value.dtype} {list(value.shape)}".encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's bytes as they lie when it is contiguous."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _describe(shapes: list[tuple[tuple[int, ...], torch.dtype]]) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype in shapes)
