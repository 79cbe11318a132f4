"""`[tool.sqnr]`: tolerances, suites, overrides and waivers, as validated frozen records."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from harness.errors import ConfigError, unknown_name
from harness.records import OutputRow, Row

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tolerance(_Settings):
    """How far a row may move from its baseline; every number is an absolute amount in the field's own unit."""

    sqnr_drop_db: Amount = 0.5
    """Allowed drop of `sqnr_db`; the row's own noise floor raises it."""
    noise_multiple: Amount = 3.0
    """The allowed drop is at least this many times `noise_db`: the least whole number with which every row of the gate
    holds when AVX2, AVX-512 and SSE4 are switched (2.26 would do; docs/noise.md)."""
    sqnr_min_drop_db: Amount = 1.5
    """Allowed drop of the worst sample or worst channel."""
    control_db: Amount = 100.0
    """Least SQNR of the `float` and `prepared` points, where nothing is quantized yet."""
    floor_db: Amount = 10.0
    """Least SQNR of a repaired variant's quantized outputs."""
    ignore_above_db: Amount = 80.0
    """When both sides are above this, their difference is rounding."""
    ref_rms_rel: Amount = 1e-4
    """Allowed relative change of the fp32 reference itself."""
    bound_rel: Amount = 1e-3
    """Allowed change of a range bound, relative to the larger of the two bounds."""
    dynamic_bound_rel: Amount = 1e-2
    """The same for bounds chosen from each batch: its extreme value moves by a step of the quantizers before it."""
    clip_fraction: Amount = 1e-3
    """Allowed rise of the clipped share."""
    task_metric: Amount = 0.01
    """Allowed drop of top-1 accuracy."""


PASSES = ("cadence-hoist", "vulkan-*", "xnnpack")
"""Flows whose lowering takes a second: no compiler, and no kernels that are slow by design."""


class Suite(_Settings):
    """A named plan: the models at one size, with one kind of weights, through flows."""

    size: str
    weights: str | None = None
    """None: each adapter's default for the size."""
    models: tuple[str, ...] = ("*",)
    flows: tuple[str, ...] = ("*",)
    lowered: tuple[str, ...] = PASSES
    """Of these flows, those that are measured `lowered` too; a fix of the lowering is a variant of no others."""
    includes: tuple[str, ...] = ()
    """Names of suites whose cases belong to this one as well, each as that suite plans it."""
    tolerance: Mapping[str, Amount] = {}


_KEY = ("model", "size", "weights", "flow", "variant", "point", "output", "quantizer")


class _Match(_Settings):
    model: str = "*"
    size: str = "*"
    weights: str = "*"
    flow: str = "*"
    variant: str = "*"
    point: str = "*"
    output: str = "*"
    quantizer: str = "*"
    reason: Reason
    link: str = ""
    until: datetime.date | None = None

    def matches(self, row: Row) -> bool:
        """Whether every pattern fits; `output` names output rows only, `quantizer` quantizer rows only."""
        foreign = "quantizer" if isinstance(row, OutputRow) else "output"
        if getattr(self, foreign) != "*":
            return False
        # By name or by pattern: the harness's own `cat.tensors[0]` would not match itself as a pattern.
        return all(
            getattr(row, name) == getattr(self, name) or fnmatchcase(getattr(row, name), getattr(self, name))
            for name in self.named()
        )

    def named(self) -> list[str]:
        """The parts of a row's key that a pattern is given for; the others may be anything."""
        return [name for name in _KEY if getattr(self, name) != "*"]

    def expired(self, today: datetime.date) -> bool:
        """Whether `until` has passed; the day itself still counts."""
        return self.until is not None and today > self.until


class Override(_Match):
    """A tolerance for some rows, with the reason for it."""

    tolerance: Annotated[Mapping[str, Amount], Field(min_length=1)]


class Waiver(_Match):
    """Rows whose verdict is shown but does not fail, with the reason for it."""


class Settings(_Settings):
    """The whole `[tool.sqnr]` table; every key has a default."""

    models: str = "models"
    baselines: str = "baselines"
    reports: str = "reports"
    seed: int = 0
    tolerance: Tolerance = Tolerance()
    suites: Mapping[str, Suite] = {}
    override: tuple[Override, ...] = ()
    waive: tuple[Waiver, ...] = ()

    def all_suites(self) -> dict[str, Suite]:
        """The built-in suites with the workspace's own added or put in their place."""
        return {**BUILTIN_SUITES, **self.suites}

    def suite(self, name: str) -> Suite:
        """The suite called `name`."""
        suites = self.all_suites()
        if name not in suites:
            raise unknown_name("suite", name, suites)
        return suites[name]

    def tolerance_for(self, row: Row, suite: str, today: datetime.date) -> Tolerance:
        """General tolerance, then the suite's, then each matching override that has not expired, in file order."""
        layers: list[Mapping[str, float]] = [self.all_suites()[suite].tolerance] if suite in self.all_suites() else []
        layers += [item.tolerance for item in self.override if item.matches(row) and not item.expired(today)]
        return self.tolerance.model_copy(update={key: value for layer in layers for key, value in layer.items()})

    def tolerances(self, suite: str, today: datetime.date) -> Callable[[Row], Tolerance]:
        """`tolerance_for`, worked out once for all rows that no override tells apart."""
        telling = sorted({name for item in self.override for name in item.named()})
        known: dict[tuple[object, ...], Tolerance] = {}

        def tolerance(row: Row) -> Tolerance:
            alike = tuple(getattr(row, name, None) for name in telling)
            if alike not in known:
                known[alike] = self.tolerance_for(row, suite, today)
            return known[alike]

        return tolerance

    def waiver_for(self, row: Row, today: datetime.date) -> Waiver | None:
        """The first waiver that covers a row and has not expired."""
        return next((item for item in self.waive if item.matches(row) and not item.expired(today)), None)

    def expired(self, today: datetime.date) -> list[str]:
        """One line for each override or waiver that no longer applies."""
        items: Iterable[_Match] = (*self.override, *self.waive)
        return [
            f"{type(item).__name__.lower()} expired on {item.until}: {item.reason}"
            for item in items
            if item.expired(today)
        ]


BUILTIN_SUITES = {
    "gate": Suite(size="small"),
    "kernels": Suite(size="small", flows=("x86-*", "arm-*-per-*", "cadence-portable"), lowered=("*",)),
    "nightly": Suite(
        size="full",
        flows=(
            *("x86-static", "arm-static-s8s8f32-per-channel", "arm-dynamic-s8s8f32-per-tensor"),
            *("nncf-*", "cadence-hoist", "vulkan-*", "xnnpack"),
        ),
        # Not vulkan-8w: its fused op has a slow kernel for float32, two minutes for the samples of a transformer.
        lowered=("x86-static", "cadence-hoist", "vulkan-4w", "xnnpack"),
        includes=("kernels",),
        tolerance={"sqnr_drop_db": 0.25},
    ),
}


def parse_settings(table: object, file: Path) -> Settings:
    """Validate a `[tool.sqnr]` table; raises `ConfigError` naming the file, the key and the value."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: tool.sqnr: must be a table (got {table!r})")
    try:
        settings = Settings.model_validate(dict(table))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("tool.sqnr", *first["loc"]))
        given = "" if first["type"] == "missing" else f" (got {first['input']!r})"
        more = f"; and {error.error_count() - 1} more" if error.error_count() > 1 else ""
        raise ConfigError(f"{file}: {where}: {first['msg'].lower()}{given}{more}") from None
    for name, suite in settings.suites.items():
        if not re.fullmatch(r"[\w.-]+", name):
            raise ConfigError(f"{file}: tool.sqnr.suites: {name!r} cannot be a suite's name: letters, digits, . _ -")
        _check_tolerance_names(suite.tolerance, f"{file}: tool.sqnr.suites.{name}.tolerance")
    _check_includes(settings.all_suites(), file)
    for index, item in enumerate(settings.override):
        _check_tolerance_names(item.tolerance, f"{file}: tool.sqnr.override.{index}.tolerance")
    return settings


def _check_includes(suites: Mapping[str, Suite], file: Path) -> None:
    """What a suite includes must be there and include nothing itself, the built-in suites' too: one may be replaced."""
    for name, suite in suites.items():
        where = f"{file}: tool.sqnr.suites.{name}.includes"
        for included in suite.includes:
            if included not in suites:
                raise ConfigError(f"{where}: {unknown_name('suite', included, suites)}")
            if suites[included].includes:
                raise ConfigError(f"{where}: {included} includes suites itself")


def _check_tolerance_names(tolerance: Mapping[str, float], where: str) -> None:
    for name in tolerance:
        if name not in Tolerance.model_fields:
            raise ConfigError(f"{where}: {unknown_name('tolerance', name, Tolerance.model_fields)}")
