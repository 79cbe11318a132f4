"""How hypothesis looks for examples: a busy machine is no failure, and what fails today fails again tomorrow."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("harness", deadline=None, derandomize=True, database=None)
settings.load_profile("harness")
