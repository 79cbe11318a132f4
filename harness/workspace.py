"""Finds the workspace (models, baselines, reports, settings) and loads adapters.

The workspace is the nearest parent folder whose `pyproject.toml` has a `[tool.sqnr]` table, else the built-in one:
the models and baselines this package carries, with reports written below the current folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.adapter import Adapter, Size
from harness.environment import platform_name
from harness.errors import AdapterError, ConfigError, UsageError, unknown_name
from harness.settings import Settings, parse_settings
from harness.sizes import written_sizes

ENTRY_POINTS = "sqnr.models"
_REQUIRED = ("SIZES", "build", "calibration", "evaluation")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders a verb works on and the settings it obeys."""

    start: Path
    """Folder the search started from; a measuring process finds the same workspace from it."""
    models: Path
    baselines: Path
    reports: Path
    settings: Settings
    builtin: bool = False

    @property
    def platform_baselines(self) -> Path:
        """Folder of this machine's baselines."""
        return self.baselines / platform_name()

    def check_writable(self) -> None:
        """Raise `UsageError` in the built-in workspace, whose models and baselines belong to the package."""
        if self.builtin:
            raise UsageError(
                f"the built-in workspace ({self.baselines.parent}) is read-only; start one of your own with `sqnr init`"
            )

    def model_names(self) -> list[str]:
        """Adapters in the models folder and those added by other packages."""
        files = (path.stem for path in self.models.glob("*.py"))
        found = {name for name in files if name.isidentifier() and not name.startswith("_")}
        return sorted({*found, *entry_points(group=ENTRY_POINTS).names})

    def written_sizes(self, name: str) -> Mapping[str, Size] | None:
        """Sizes of an adapter if they can be read without importing it, else None."""
        path = self.models / f"{name}.py"
        sizes = written_sizes(path)
        try:
            _check_sizes(str(path), sizes)
        except AdapterError:
            return None
        return sizes

    def load_adapter(self, name: str) -> Adapter:
        """The adapter called `name`; raises `AdapterError` if it cannot be imported or lacks part of the contract."""
        path = self.models / f"{name}.py"
        added = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
        if not path.exists() and not added:
            raise unknown_name("model", name, self.model_names())
        where = str(path if path.exists() else added[0].value)
        try:
            module: Any = load_module(self.models, name) if path.exists() else added[0].load()
        except Exception as error:
            raise AdapterError(f"{where}: cannot be imported: {type(error).__name__}: {error}") from error
        for attribute in _REQUIRED:
            if not hasattr(module, attribute):
                raise AdapterError(f"{where}: lacks {attribute}; see the docstring of harness/adapter.py")
        _check_sizes(where, module.SIZES)
        adapter: Adapter = module
        return adapter


def _check_sizes(where: str, sizes: object) -> None:
    """Raise `AdapterError` for a SIZES that could not be planned or would merge two outputs into one row."""
    if not isinstance(sizes, Mapping) or not all(isinstance(size, Size) for size in sizes.values()):
        raise AdapterError(f"{where}: SIZES must map names to harness.adapter.Size")
    for name, size in sizes.items():
        for field, values in (("weights", size.weights), ("outputs", size.outputs)):
            named = isinstance(values, tuple) and all(isinstance(value, str) and value for value in values)
            if not named or not values or len(set(values)) != len(values):
                raise AdapterError(f"{where}: SIZES[{name!r}].{field} must be distinct names, not {values!r}")
        for field, number in (("cost", size.cost), ("memory", size.memory)):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
                raise AdapterError(f"{where}: SIZES[{name!r}].{field} must be a positive number, not {number!r}")
        if size.labelled is not None and size.labelled not in size.outputs:
            raise AdapterError(f"{where}: SIZES[{name!r}].labelled: {size.labelled!r} is not among its outputs")


def find_workspace(start: Path | None = None) -> Workspace:
    """The workspace of folder `start` (default: the current one)."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        settings = _settings_in(folder / "pyproject.toml")
        if settings is not None:
            return Workspace(
                here, folder / settings.models, folder / settings.baselines, folder / settings.reports, settings
            )
    carried = Path(__file__).parent / "builtin"
    root = carried if carried.is_dir() else Path(__file__).parents[1]
    settings = _settings_in(root / "pyproject.toml") or Settings()
    return Workspace(here, root / "models", root / "baselines", here / "reports", settings, builtin=True)


def _settings_in(file: Path) -> Settings | None:
    """Settings of a `pyproject.toml`; None if there is no such file, or no `[tool.sqnr]` in it."""
    if not file.is_file():
        return None
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    return parse_settings(tool["sqnr"], file) if isinstance(tool, dict) and "sqnr" in tool else None


def load_module(folder: Path, name: str) -> ModuleType:
    """Import `folder/name.py` as part of a private package, so that no other package called like it is ever meant."""
    package = f"_sqnr_models_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        init = folder / "__init__.py"
        spec = importlib.util.spec_from_file_location(
            package, init if init.exists() else None, submodule_search_locations=[str(folder)]
        ) or importlib.util.spec_from_loader(package, None, is_package=True)
        if spec is None:
            raise ImportError(f"{folder} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
        if spec.loader is not None and init.exists():
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[package]
                raise
    return importlib.import_module(f"{package}.{name}")
