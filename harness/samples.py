"""Sums of signal and noise of every sample, exactly: on their way from a worker, and in a run's folder.

`samples.safetensors` holds a (2, samples) float64 tensor for each output row that has an SQNR or only noise: signal
first, then noise, in the order of the evaluation set. Its name is the row's key joined by `/`. Sums are those of
`harness.measure.metrics.OutputStats.samples`: dividing one by the other gives a sample's SQNR as a ratio.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import TableError
from harness.files import replace_all

if TYPE_CHECKING:
    from harness.measure.bootstrap import Array

FILE = "samples.safetensors"
_FLOAT64 = "<f8"


def encoded(sums: Array | None) -> str:
    """(2, samples) sums as text for a part file, to the last bit; empty for none."""
    return "" if sums is None else base64.b64encode(sums.astype(_FLOAT64).tobytes()).decode("ascii")


def decoded(text: str) -> Array:
    """What `encoded` was given."""
    import numpy as np

    return np.frombuffer(base64.b64decode(text), dtype=_FLOAT64).reshape(2, -1)


def name_of(key: tuple[str, ...]) -> str:
    """What a row's sums are called in the file."""
    return "/".join(key)


def write(folder: Path, samples: Mapping[tuple[str, ...], Array]) -> None:
    """Write sums by row key into a run's folder, the whole file or none of it."""
    import numpy as np
    from safetensors.numpy import save

    # Sorted, so that equal sums make equal files.
    tensors = {name_of(key): np.ascontiguousarray(samples[key], dtype=_FLOAT64) for key in sorted(samples)}
    replace_all({folder / FILE: save(tensors)})


def read(folder: Path) -> dict[str, Array]:
    """Sums of a run by `name_of` its rows' keys.

    Raises `TableError` naming the file if there is none (runs of older versions have none), or if it is damaged.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file = folder / FILE
    try:
        tensors = load(file.read_bytes())
    except FileNotFoundError:
        raise TableError(
            f"{file}: not there; the run is of an older version or was not finished: measure again"
        ) from None
    except OSError as error:
        raise TableError(f"{file}: cannot be read: {error.strerror}") from None
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise TableError(f"{file}: damaged: {type(error).__name__}: {error}; measure again") from None
    for name, sums in tensors.items():
        if sums.dtype != np.float64 or sums.ndim != 2 or len(sums) != 2:
            raise TableError(f"{file}: {name!r}: {sums.dtype} {list(sums.shape)}, not float64 [2, samples]")
        if not (np.isfinite(sums).all() and (sums >= 0).all()):
            raise TableError(f"{file}: {name!r}: a sum of squares is negative or not finite; measure again")
    return tensors
