"""The vocabulary as frozen records: what is planned and what is measured.

Nothing here computes, reads or writes; every other module of the harness may import this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

SQNR_CAP_DB = 160.0
"""SQNR of two equal tensors: float64 sums of float32 values resolve no more."""


SPILL_PREFIX = "reference-"
"""Before the names of the folders into which workers spill reference outputs."""


class Stage(StrEnum):
    """The step of a case that was under way; a failed row names it."""

    LOAD = "load"
    EXPORT = "export"
    PREPARE = "prepare"
    CALIBRATE = "calibrate"
    CONVERT = "convert"
    EDGE = "edge"
    LOWER = "lower"
    MEASURE = "measure"


class Point(StrEnum):
    """Where an output is measured."""

    FLOAT = "float"
    PREPARED = "prepared"
    CONVERTED = "converted"
    LOWERED = "lowered"


class Status(StrEnum):
    """What became of a measured output; a failed stage is written `failed:<stage>` (see `failed`)."""

    MEASURED = "measured"
    EXACT = "exact"
    ZERO_SIGNAL = "zero_signal"
    NONFINITE_ACTUAL = "nonfinite_actual"
    NONFINITE_REFERENCE = "nonfinite_reference"
    MISMATCH = "mismatch"
    EMPTY = "empty"


FAILED = "failed:"
STATUSES = frozenset({*Status, *(FAILED + stage for stage in Stage)})


def failed(stage: Stage) -> str:
    """The status of a row whose `stage` raised, timed out, or died."""
    return FAILED + stage


class QuantizerStatus(StrEnum):
    """`unquantized`: a parameter or edge that should have a quantizer and has none."""

    QUANTIZED = "quantized"
    UNQUANTIZED = "unquantized"
    NONFINITE = "nonfinite"


class Role(StrEnum):
    """What a quantizer quantizes."""

    WEIGHT = "weight"
    ACTIVATION = "activation"
    BIAS = "bias"


class Mode(StrEnum):
    """When qparams are chosen: by calibration, or from each batch as it comes."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class Granularity(StrEnum):
    """How many elements share one pair of qparams."""

    PER_TENSOR = "per_tensor"
    PER_CHANNEL = "per_channel"
    PER_GROUP = "per_group"
    PER_TOKEN = "per_token"


class Cause(StrEnum):
    """Which generic measure shows that a row is damaged; `harness.measure.cause` says how each is told.

    `saturation` alone takes several runs to be told (`harness.saturation`).
    """

    CLIPPING = "clipping"
    STEP_SIZE = "step_size"
    ZERO_POINT = "zero_point"
    AXIS = "axis"
    UNQUANTIZED = "unquantized"
    FOLDING = "folding"
    MUTATED_WEIGHTS = "mutated_weights"
    SATURATION = "saturation"
    NONFINITE = "nonfinite"
    NUMERICS = "numerics"


class FixState(StrEnum):
    """What measuring says of a fix: on a probe's graph (`sqnr fixes`), or in a row on the model itself.

    `needed`: the defect is there and the repair changes it. `upstreamed`: the installed release is already right, so
    the repair is not applied. `inert`: applied, and no qparam, node or output bit changed: no evidence of anything.
    `unknown`: the place to repair was not found, or the repair does not do what it is for.
    """

    NEEDED = "needed"
    UPSTREAMED = "upstreamed"
    INERT = "inert"
    NOT_INSTALLED = "not installed"
    UNKNOWN = "unknown"


RELEASED = "released"
"""The variant with no fix applied."""


@dataclass(frozen=True, order=True, slots=True)
class Case:
    """One cell of a plan: a model, at a size, with weights, through a flow, with a set of fixes."""

    model: str
    size: str
    weights: str
    flow: str
    variant: str = RELEASED

    def __str__(self) -> str:
        variant = "" if self.variant == RELEASED else f" {self.variant}"
        return f"{self.model}/{self.size}/{self.weights} {self.flow}{variant}"


# One object for all rows of a case: where rows are sorted and joined by case, most are equal at a glance.
_case = cache(Case)


def released_of(case: Case) -> Case:
    """The case with no fix applied."""
    return replace(case, variant=RELEASED)


@dataclass(frozen=True, slots=True)
class _Row:
    model: str
    size: str
    weights: str
    flow: str
    variant: str

    @property
    def case(self) -> Case:
        """The case this row belongs to."""
        return _case(self.model, self.size, self.weights, self.flow, self.variant)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}: a stored number is finite or absent")


@dataclass(frozen=True, slots=True)
class OutputRow(_Row):
    """One output of a case at one point, against the fp32 eager model over the whole evaluation set.

    `sqnr_db` is over the set, `sqnr_min_db` the worst single sample's, both dB, higher is better, None where the
    status says so. `ref_rms` is the root mean square of the reference, `numel` the elements compared.
    `noise_db` is filled in baselines only: the standard deviation of `sqnr_db` under inputs jittered by 1e-6.
    `sqnr_lo_db` and `sqnr_hi_db` bound the 95 % bootstrap interval of `sqnr_db` over the evaluation samples, dB.
    `task_metric` is top-1 accuracy in [0, 1] where the adapter has labels for this output. The four counts are of the
    graph that was run, from `converted` on. `kernel_db` is the SQNR of a lowered output with the converted graph's as
    the reference, dB. The counts after it are of what a compiler or runtime made (`harness.flows.Program`):
    convolutions and matrix products on int8 kernels and those left in float, nodes given to a delegate and those that
    were not, and the program's size. `fix_state` says what the variant's fixes did to the case, at the first of the
    points `converted` and `lowered` at which all of them are at work; `cause` which measure shows damage. Both are
    empty where there is nothing to say.
    """

    point: str
    output: str
    status: str
    sqnr_db: float | None = None
    sqnr_min_db: float | None = None
    max_abs_err: float | None = None
    cosine: float | None = None
    ref_rms: float | None = None
    numel: int | None = None
    noise_db: float | None = None
    sqnr_lo_db: float | None = None
    sqnr_hi_db: float | None = None
    task_metric: float | None = None
    quantize_nodes: int | None = None
    dequantize_nodes: int | None = None
    slice_nodes: int | None = None
    nodes: int | None = None
    kernel_db: float | None = None
    int8_convs: int | None = None
    int8_linears: int | None = None
    float_convs: int | None = None
    float_linears: int | None = None
    delegated_nodes: int | None = None
    undelegated_nodes: int | None = None
    program_bytes: int | None = None
    fix_state: str = ""
    cause: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What makes the row unique."""
        return (self.model, self.size, self.weights, self.flow, self.variant, self.point, self.output)

    @property
    def is_program(self) -> bool:
        """Whether the row is of what a compiler or runtime made: of that one kind of count is known."""
        return self.int8_convs is not None or self.delegated_nodes is not None


@dataclass(frozen=True, slots=True)
class QuantizerRow(_Row):
    """One quantizer of a converted or lowered graph, or one parameter or edge that should have had one.

    `lo` and `hi` bound the representable range, scale x (quant_min - zero_point) to scale x (quant_max - zero_point);
    with several scales those of the widest channel, and of the widest batch for dynamic quantization.
    `clip_fraction` is the share of evaluated elements more than half a step outside, `utilisation` the share of codes
    used, `sqnr_db` the quantizer's own error (x against qdq(x)), `sqnr_min_db` that of a weight's worst output channel.
    `expected_db` is what `sqnr_db` should be, from step, clipping and distribution alone (`harness.measure.expected`).
    Quantizers with the same non-empty `share_group` share one observer. `noise_rel` is filled in baselines only: the
    standard deviation of the bounds under inputs jittered by 1e-6, relative to the larger bound.
    """

    point: str
    quantizer: str
    status: str
    role: str
    mode: str = ""
    dtype: str = ""
    granularity: str = ""
    axis: int | None = None
    quant_min: int | None = None
    quant_max: int | None = None
    scale: float | None = None
    zero_point: int | None = None
    lo: float | None = None
    hi: float | None = None
    observed_lo: float | None = None
    observed_hi: float | None = None
    clip_fraction: float | None = None
    utilisation: float | None = None
    sqnr_db: float | None = None
    sqnr_min_db: float | None = None
    expected_db: float | None = None
    noise_rel: float | None = None
    share_group: str = ""
    cause: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What makes the row unique."""
        return (self.model, self.size, self.weights, self.flow, self.variant, self.point, self.quantizer)


def failed_rows(
    case: Case, points: Iterable[Point], outputs: Iterable[str], stage: Stage, error: str, cause: str = ""
) -> list[OutputRow]:
    """The rows of a case that could not be measured at `points`, with the first line of the error."""
    line = (error.strip().splitlines() or [""])[0][:300]
    key = (case.model, case.size, case.weights, case.flow, case.variant)
    return [
        OutputRow(*key, point, output, failed(stage), cause=cause, error=line) for point in points for output in outputs
    ]


Row = OutputRow | QuantizerRow
