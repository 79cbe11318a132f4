"""Tests of an upstream that is not installed say so."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*packages: str) -> None:
    """Skip the calling test file where one is missing. None is imported for it: NNCF's import starts telemetry."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'sqnr-harness[upstream]'", allow_module_level=True)
