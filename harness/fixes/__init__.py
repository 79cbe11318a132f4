"""Fixes: known upstream defects, one file each: a probe that measures, and where we can a repair.

A fix that applies to a flow is a variant of it, measured beside `released`. `BUILTIN` names the file of each fix, whose
`FIX` is read on use; other packages add theirs through the entry-point group `sqnr.fixes`, whose value is a `Fix`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from harness.errors import ConfigError, unknown_name
from harness.records import RELEASED, Stage

ENTRY_POINTS = "sqnr.fixes"
BUILTIN = {
    "ao-bn-eps-reset": "harness.fixes.ao_bn_eps_reset",
    "ao-float8-zero-row": "harness.fixes.ao_float8_zero_row",
    "ao-s8-conv-lowering": "harness.fixes.ao_s8_conv_lowering",
    "ao-shared-conv-bn": "harness.fixes.ao_shared_conv_bn",
    "arm-per-tensor-lowering": "harness.fixes.arm_per_tensor_lowering",
    "arm-weight-granularity": "harness.fixes.arm_weight_granularity",
    "cadence-branch-hoist": "harness.fixes.cadence_branch_hoist",
    "inductor-choose-qparams": "harness.fixes.inductor_choose_qparams",
    "nncf-conv-transpose-axis": "harness.fixes.nncf_conv_transpose_axis",
    "nncf-mul-parameter": "harness.fixes.nncf_mul_parameter",
    "pre-grad-pass-chain": "harness.fixes.pre_grad_pass_chain",
    "vulkan-qcs4w-odd-channels": "harness.fixes.vulkan_qcs4w_odd_channels",
    "vulkan-qcs4w-offset": "harness.fixes.vulkan_qcs4w_offset",
    "xnnpack-integer-scalars": "harness.fixes.xnnpack_integer_scalars",
}
REPAIRABLE = (Stage.PREPARE, Stage.CALIBRATE, Stage.CONVERT, Stage.EDGE, Stage.LOWER)
"""Stages that a repair may start at: the exported graph is shared by flows, and measuring is no upstream's."""
LOWERING = (Stage.EDGE, Stage.LOWER)
"""Those after the converted graph."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a probe measured on the installed package: `value` in the unit that `Fix.measures` names.

    A string stands for what is no number, such as the error that was raised. `should` is the right value, known from
    arithmetic or from torch alone; `right` says whether `value` is as good. Tensors of one element count as numbers.
    """

    value: float | str
    should: float | str
    right: bool

    def __post_init__(self) -> None:
        for name in ("value", "should"):
            given = getattr(self, name)
            object.__setattr__(self, name, given if isinstance(given, str) else float(given))
        object.__setattr__(self, "right", bool(self.right))


Repair = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fix:
    """One upstream defect.

    `link` is the upstream issue or pull request, `package` the distribution that has the defect, `known` the versions
    it was measured on. `measures` says what `probe` measures, with its unit; the probe runs the installed package on a
    tiny graph, and is run again under the repair; `needs` are other distributions that it uses. `flows` are name
    patterns such as `x86-*`, none for a defect that no model here meets; `stage`, one of `REPAIRABLE`, is the earliest
    stage the repair touches: everything before it is shared with `released`. `last` is the last one that it touches: a
    case of which it changed no node, qparam or output bit up to the converted graph is not lowered again. `repair()`
    returns a context manager that is undone on exit, also after an exception; it raises `SeamMovedError` where the
    installed package no longer has the place to repair (`harness.fixes.seams`). `trap` is a tempting half-repair that
    is known to be wrong; it is measured to show why.
    """

    name: str
    link: str
    package: str
    known: tuple[str, ...]
    flows: tuple[str, ...]
    stage: Stage
    measures: str
    probe: Callable[[], Reading]
    repair: Repair | None = None
    trap: Repair | None = None
    needs: tuple[str, ...] = ()
    last: Stage = REPAIRABLE[-1]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.name):
            raise ValueError(f"fix name {self.name!r}: lower-case letters, digits, dots and dashes only")
        for field in ("flows", "known", "needs"):
            value = getattr(self, field)
            if not (isinstance(value, tuple) and all(isinstance(item, str) for item in value)):
                raise ValueError(f"fix {self.name}: {field} must be a tuple of strings, not {value!r}")
        if self.stage not in REPAIRABLE:
            raise ValueError(f"fix {self.name}: stage must be one of {', '.join(REPAIRABLE)}, not {self.stage}")
        rest = REPAIRABLE[REPAIRABLE.index(self.stage) :]
        if self.last not in rest:
            raise ValueError(f"fix {self.name}: last must be one of {', '.join(rest)}, not {self.last}")

    def applies_to(self, flow: str) -> bool:
        """Whether a flow's variants include this fix."""
        return self.repair is not None and any(fnmatchcase(flow, pattern) for pattern in self.flows)


@cache
def installed() -> tuple[Fix, ...]:
    """All fixes known on this machine, by name; raises `ConfigError` for an entry point that gives none."""
    found = [import_module(module).FIX for module in BUILTIN.values()]
    found += [_load(point) for point in entry_points(group=ENTRY_POINTS)]
    twice = [name for name, count in Counter(fix.name for fix in found).items() if count > 1]
    if twice:
        raise ConfigError(f"two fixes are called {twice[0]}; rename the one in entry point group {ENTRY_POINTS}")
    return tuple(sorted(found, key=lambda fix: fix.name))


def _load(point: EntryPoint) -> Fix:
    where = f"entry point {point.name} = {point.value} in group {ENTRY_POINTS}"
    try:
        fix = point.load()
    except Exception as error:
        raise ConfigError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(fix, Fix):
        raise ConfigError(f"{where} is a {type(fix).__name__}, not a harness.fixes.Fix")
    return fix


def variants(flow: str, fixes: tuple[Fix, ...]) -> list[str]:
    """`released`, each applicable fix alone, all together, and with three or more also all but one."""
    applicable = [fix.name for fix in fixes if fix.applies_to(flow)]
    chosen = [frozenset[str](), *(frozenset({name}) for name in applicable), frozenset(applicable)]
    if len(applicable) > 2:
        chosen += [frozenset(applicable) - {name} for name in applicable]
    return [variant_name(names) for names in dict.fromkeys(chosen)]


def variant_name(names: frozenset[str]) -> str:
    """`released` for no fix, else `+a+b` in alphabetical order: the order in which repairs are entered."""
    return "".join(f"+{name}" for name in sorted(names)) or RELEASED


def of_variant(variant: str, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The fixes that a variant's name lists; raises `UsageError` for one that is not installed."""
    by_name = {fix.name: fix for fix in fixes}
    wanted = [] if variant == RELEASED else variant.removeprefix("+").split("+")
    for name in wanted:
        if name not in by_name:
            raise unknown_name("fix", name, by_name)
    return tuple(by_name[name] for name in wanted)
