"""How much faster one program is than another, both timed in one process on one machine; without torch.

A machine's clock, its other work and its caches change from second to second, and by more than what is looked for.
`interleaved` therefore calls every program once a round, so that whatever happens in a round happens to all of them,
and `ratio` compares within rounds: of each round the quotient of two times, of all rounds the median. A round in which
the machine was elsewhere is one outlier among many, and a machine that is half as fast in the second half of the rounds
leaves every quotient as it was, which the quotient of the two medians is not sure to survive.

The interval says how far that median strays with the rounds that were drawn: 1999 times as many rounds as there were
are drawn from them with replacement, and of their medians the 50th from either end are taken
(`harness.measure.bootstrap` has the sources, and what the figures cost). It holds what this process would measure
again: another process, compiled anew and with its tensors elsewhere in memory, may differ by more.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.measure.bootstrap import RESAMPLES

_TAIL = (RESAMPLES + 1) // 40
"""The rank of the 2.5 % point, counted from either end."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast: the median over rounds, and its 95 % interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """What was timed of a case whose flow makes programs, beside its float model: seconds are medians over rounds.

    `eager_s` is the float model as it is, `compiled_s` the same by the flow's compiler under the same settings,
    `lowered_s` the case's own program. `speedup` is to `compiled_s`, `eager_speedup` to `eager_s`. `isa` is what the
    kernels' library says that it takes, and `published` a speedup that was published, on the hardware `published_on`.
    """

    model: str
    size: str
    weights: str
    flow: str
    variant: str
    batch: int
    threads: int
    isa: str
    rounds: int
    eager_s: float
    compiled_s: float
    lowered_s: float
    speedup: float
    speedup_lo: float
    speedup_hi: float
    eager_speedup: float
    eager_speedup_lo: float
    eager_speedup_hi: float
    int8_convs: int
    int8_linears: int
    published: float | None = None
    published_on: str = ""


def interleaved(
    programs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int,
    timer: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each program in each round, by name; `warmup` rounds before are not kept.

    A round calls each program once and begins with another one each time, so that none is always behind the same one,
    in caches that that left. Garbage is collected before, and not meanwhile.
    """
    names = list(programs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(warmup + rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                start = timer()
                programs[name]()
                end = timer()
                if number >= warmup:
                    seconds[name].append(end - start)
    finally:
        if collects:
            gc.enable()
    return seconds


def ratio(*, before: Sequence[float], after: Sequence[float]) -> Ratio:
    """How many times as fast `after` is as `before`: seconds of the same rounds, two at least.

    The draws depend on the number of rounds alone, so equal seconds give equal intervals. Raises `ValueError` for
    different numbers of rounds, or fewer than two.
    """
    rounds = len(before)
    if rounds < 2 or len(after) != rounds:
        raise ValueError(f"{rounds} rounds before and {len(after)} after: as many are needed, and two at least")
    quotients = np.asarray(before, dtype=np.float64) / np.asarray(after, dtype=np.float64)
    drawn = np.random.RandomState(0).randint(rounds, size=(RESAMPLES, rounds))  # its stream never changes (NEP 19)
    medians = np.sort(np.median(quotients[drawn], axis=1))
    return Ratio(float(np.median(quotients)), float(medians[_TAIL - 1]), float(medians[-_TAIL]))
