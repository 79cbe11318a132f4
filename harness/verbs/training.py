"""Trains the models of a workspace that can be trained, one process each, bit for bit on one machine."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pebble import ProcessPool

from harness import environment
from harness.errors import AdapterError, UsageError, unknown_name
from harness.files import replace_all
from harness.workspace import Workspace, find_workspace


def train_models(workspace: Workspace, models: tuple[str, ...], jobs: int) -> Iterator[str]:
    """Train `models` (default: all with a `train(seed)`) into `models/weights/<model>.safetensors`.

    Yields one line for each, in the order asked for. Raises `UsageError` for a model that cannot be trained.
    """
    workspace.check_writable()
    environment.pin()
    names = workspace.model_names()
    for name in models:
        if name not in names:
            raise unknown_name("model", name, names)
    wanted = [name for name in models or names if hasattr(workspace.load_adapter(name), "train")]
    unable = set(models) - set(wanted)
    if unable:
        raise UsageError(f"{', '.join(sorted(unable))}: the adapter has no train(seed)")
    context: Any = multiprocessing.get_context("spawn")
    with ProcessPool(max_workers=jobs, context=context) as pool:
        futures = [pool.schedule(_train, args=(workspace.start, name, workspace.settings.seed)) for name in wanted]
        for future in futures:
            yield future.result()


def _train(start: Path, name: str, seed: int) -> str:
    import torch
    from safetensors.torch import save

    torch.set_num_threads(1)
    workspace = find_workspace(start)
    adapter: Any = workspace.load_adapter(name)
    begin = time.perf_counter()
    try:
        model = adapter.train(seed)
    except Exception as error:
        raise AdapterError(f"{name}: train({seed}) raised {type(error).__name__}: {error}") from None
    path = workspace.models / "weights" / f"{name}.safetensors"
    content = save({key: value.contiguous() for key, value in model.state_dict().items()})
    replace_all({path: content})
    return f"{name}: {time.perf_counter() - begin:.1f} s, {len(content) / 1e3:.0f} kB -> {path}"
