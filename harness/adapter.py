"""What a model adapter must provide.

An adapter is a plain module, `models/<name>.py`; its file name is the model's name. Three steps add one:

1. Copy the adapter nearest to yours and give it `SIZES`, `build`, `calibration` and `evaluation` as in `Adapter`.
2. `sqnr run -m <name>`: measures it through every flow and writes `reports/<run>/`.
3. `sqnr accept -m <name> --because "new model"`: its rows become the baseline that `sqnr gate` holds it to.

Files whose name starts with an underscore are shared helpers, not adapters. All data and weights come from the
passed seed or from files: two processes must get the same bits, and 0 is a seed like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

USUAL_GIB = 1.5
"""What a process measuring a model takes at most, unless its adapter says otherwise."""


@dataclass(frozen=True, slots=True)
class Size:
    """One size of a model.

    `weights` are the kinds `build` understands, the default first; `outputs` names the tensors the model returns, in
    order; `labelled` is the output whose last dimension holds class scores for `Batch.labels`, if any. `cost` is how
    long the model takes compared with the others of its size: the longest are started first. `memory` is the most that
    a process measuring it takes, GiB: groups run side by side as far as the machine has that.
    """

    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    labelled: str | None = None
    cost: float = 1.0
    memory: float = USUAL_GIB


@dataclass(frozen=True, slots=True)
class Batch:
    """Positional inputs, each (N, ...), the same shapes in every batch; labels (N,) int64 where there are any."""

    inputs: tuple[torch.Tensor, ...]
    labels: torch.Tensor | None = None


@runtime_checkable
class Adapter(Protocol):
    """The contract of a module in `models/`."""

    __name__: str
    SIZES: Mapping[str, Size]

    def build(self, size: str, weights: str, seed: int) -> torch.nn.Module:
        """The float model in eval mode, float32, on the CPU.

        `weights` is one of the size's kinds or a path to a checkpoint. Raises `WeightsError` with one line saying
        what to download and where to put it.
        """
        ...

    def calibration(self, size: str, seed: int) -> Iterable[Batch]:
        """Batches for observers; none of them is in `evaluation`. Made lazily, one batch at a time."""
        ...

    def evaluation(self, size: str, seed: int) -> Iterable[Batch]:
        """Batches on which every graph is measured. Made lazily; may be iterated many times."""
        ...
