"""Measuring a bundle's row again, and what differs from when the bundle was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from harness import __version__, environment, fixes, flows
from harness.bundle import Facts, Read, facts_of
from harness.bundle_record import INPUTS, Bundle
from harness.census import gather
from harness.errors import InterruptedRunError, UsageError, unknown_name
from harness.files import storable
from harness.parts import Progress
from harness.places import without_places
from harness.records import Case, Cause, OutputRow, Point, QuantizerRow
from harness.runner import Workers, jobs_for
from harness.scratch import scratch_folder
from harness.sources import file_hash
from harness.store import COMPLETE, Run
from harness.suite import AD_HOC, FILE, UNKNOWN_WEIGHTS, Plan, Sizes
from harness.workspace import Workspace

Kind = Literal["stack", "machine", "adapter", "weights", "inputs", "output", "quantizer", "minimal"]
Value = float | int | str | None
_ISA = "ATEN_CPU_CAPABILITY"
_LONG = 100
"""An error's first line is cut to 300 characters, with paths in it that are longer on one machine than on another."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was: a package's version, a batch, a value of the row. None is absent.

    `name` tells it from others of its kind; of a quantizer or an output it is the row's, and `field` is the column.
    """

    kind: Kind
    name: str
    then: Value
    now: Value
    field: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """The row of a bundle as it is measured now, None if there is no such output any more, and with what."""

    row: OutputRow | None
    quantizers: tuple[QuantizerRow, ...]
    facts: Facts


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a bundle: `differences` in the order in which they are likely to be the cause of the next.

    It is reproduced if no value differs: what else does, another processor say, is then harmless.
    """

    bundle: Read
    row: OutputRow | None
    differences: tuple[Difference, ...]

    @property
    def reproduced(self) -> bool:
        """Whether the row, its quantizers and the minimised graph are the same to the last bit."""
        return not any(item.kind in ("output", "quantizer", "minimal") for item in self.differences)


def check(workspace: Workspace, record: Bundle, checkpoint: Path | None) -> None:
    """Raise `UsageError` if this workspace lacks the model, the flow or a fix, or the checkpoint was not given."""
    case = record.row.case
    if case.model not in workspace.model_names():
        raise unknown_name("model", case.model, workspace.model_names())
    if case.flow not in flows.names():
        raise unknown_name("flow", case.flow, flows.names())
    fixes.of_variant(case.variant, fixes.installed())
    if record.checkpoint is None and checkpoint is not None:
        raise UsageError(f"--weights {checkpoint}: the bundle's weights are {case.weights!r}, from no file")
    if record.checkpoint is not None and checkpoint is None:
        raise UsageError(
            f"the bundle's weights are from {record.checkpoint.name}, which is not part of it: give its path with "
            f"--weights (SHA-256 {record.checkpoint.sha256 or 'unknown'})"
        )
    if checkpoint is not None and not checkpoint.exists():
        raise UsageError(f"--weights {checkpoint}: no such file or folder")


def measure(
    workspace: Workspace,
    record: Bundle,
    checkpoint: Path | None = None,
    timeout: float = 1800.0,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Measured:
    """Measure the row of a bundle again, in a fresh process, pinned as it was; writes nothing but temporary files.

    Only the row's own point is measured, unless the row says what fixes did to the whole case. Raises `UsageError`
    where the workspace cannot measure it, and `InterruptedRunError` on Ctrl-C.
    """
    check(workspace, record, checkpoint)
    _pin_as(record.environment.pins)
    row, case = record.row, record.row.case
    with scratch_folder("sqnr-replay-") as folder, Workers(1, timeout) as workers:
        sizes: Sizes = {case.model: workspace.written_sizes(case.model)}
        if sizes[case.model] is None:
            sizes = workers.sizes(workspace)
        source = _source(case, sizes, checkpoint)
        [job] = jobs_for(workspace.start, [(case,)], source, record.seed, folder, folder, excluded=record.excluded)
        points = None if row.fix_state else frozenset({Point(row.point)})
        # Names of a bundle are for keys and tables; files are called otherwise.
        job = replace(job, points=points, part=folder / "part.jsonl", log=folder / "log")
        results, interrupted = workers.run([job], on_progress)
    if interrupted:
        raise InterruptedRunError("interrupted; nothing was compared")
    plan = Plan(AD_HOC, True, (case,), (case,))
    run = Run(folder, plan, record.seed, _fingerprint(record.environment.pins), started="", status=COMPLETE)
    run.weights_source, run.excluded = source if checkpoint else None, record.excluded
    gather(run, results, sizes)
    now = next((item for item in run.outputs if item.key == row.key), None)
    quantizers = [item for item in run.quantizers if item.point == row.point]
    return Measured(now, tuple(sorted(quantizers, key=lambda item: item.key)), facts_of(run, case))


def _pin_as(pins: Mapping[str, str]) -> None:
    """Pin measuring processes as those of the bundle were; what is no known set of pins is not for a bundle to set."""
    environment.pin(pinned=bool(pins.get(_ISA)))
    os.environ.update(environment.ISAS.get(environment.isa_of(pins), {}))


def _fingerprint(pins: Mapping[str, str]) -> dict[str, Any]:
    """That of this process; an instruction set that the processor lacks is said: libraries take another in silence."""
    found: dict[str, Any] = dict(environment.fingerprint())
    isa = environment.isa_of(pins)
    if isa and found["platform"].endswith("x86_64"):
        try:
            environment.check_isa(isa)
        except UsageError:
            found["pins"] = {**found["pins"], _ISA: f"{pins[_ISA]}, which this processor lacks"}
    return found


def _source(case: Case, sizes: Sizes, checkpoint: Path | None) -> str:
    """What the adapter's `build` is given; never a path that only the bundle names."""
    if checkpoint is not None:
        return str(checkpoint.resolve())
    known = sizes[case.model]
    if known is None:  # the adapter cannot be imported: `build` is never reached
        return UNKNOWN_WEIGHTS
    if case.size not in known:
        raise unknown_name(f"size of model {case.model}", case.size, known)
    if case.weights not in known[case.size].weights:
        raise unknown_name(f"weights of {case.model}/{case.size}", case.weights, known[case.size].weights)
    return case.weights


def compare(bundle: Read, now: Measured, minimal: Sequence[str] = ()) -> Replayed:
    """What differs from a bundle; `minimal` is what its minimised graph says differs."""
    record = bundle.record
    found = [
        *_stack(record, now.facts),
        *_machine(record, now.facts),
        *_adapter(record, now.facts),
        *_weights(record, now.facts),
        *_inputs(record, now.facts),
        *_output(bundle.row, now.row),
        *_quantizers(bundle.quantizers, now.quantizers),
        *(Difference("minimal", line, None, None) for line in minimal),
    ]
    return Replayed(bundle, now.row, tuple(found))


def _keyed(kind: Kind, then: Mapping[str, Value], now: Mapping[str, Value]) -> Iterator[Difference]:
    for name in dict.fromkeys((*then, *now)):
        if then.get(name) != now.get(name):
            yield Difference(kind, name, then.get(name), now.get(name))


def _stack(record: Bundle, now: Facts) -> Iterator[Difference]:
    yield from _keyed("stack", record.environment.stack, now.environment["stack"])
    named = {"python": record.environment.python, "sqnr-harness": record.harness}
    yield from _keyed("stack", named, {"python": now.environment["python"], "sqnr-harness": __version__})


def _machine(record: Bundle, now: Facts) -> Iterator[Difference]:
    names = ("platform", "cpu")
    then = {name: getattr(record.environment, name) for name in names}
    yield from _keyed("machine", then, {name: now.environment[name] for name in names})
    yield from _keyed("machine", record.environment.pins, now.environment["pins"])


def _adapter(record: Bundle, now: Facts) -> Iterator[Difference]:
    whole = bool(record.weights and now.weights_hash)
    for item in _keyed("adapter", record.adapter, now.adapter):
        if whole or None not in (item.then, item.now):  # a model that did not load did not load all its helpers
            yield item


def _weights(record: Bundle, now: Facts) -> Iterator[Difference]:
    if record.checkpoint is not None and now.weights_source is not None:
        digest = file_hash(Path(now.weights_source))
        if record.checkpoint.sha256 not in ("", digest):
            yield Difference("weights", f"file {record.checkpoint.name}", record.checkpoint.sha256, digest)
    if record.weights != now.weights_hash and "" not in (record.weights, now.weights_hash):
        yield Difference("weights", record.row.weights.removeprefix(FILE), record.weights, now.weights_hash)


def _inputs(record: Bundle, now: Facts) -> Iterator[Difference]:
    """A difference for each batch, the first is 1; none where one side has no batch, as if a model did not load."""
    for kind in INPUTS:
        then, here = record.inputs.get(kind, ()), now.inputs.get(kind, ())
        for number, (old, new) in enumerate(zip_longest(then, here), start=1):
            if old != new and then and here:
                yield Difference("inputs", kind, old, new, f"batch {number}")


def _output(then: OutputRow, now: OutputRow | None) -> Iterator[Difference]:
    if now is None:
        yield Difference("output", then.output, then.status, None, "status")
        return
    error = storable(without_places(now.error))
    for item in fields(OutputRow):
        old, new = getattr(then, item.name), getattr(now, item.name)
        if item.name == "error":
            if not _same_line(old, error):
                yield Difference("output", then.output, old, error, "error")
        elif item.name == "cause" and old == Cause.SATURATION:
            continue  # that was told from runs under several instruction sets, which one measurement is not
        elif not _same(old, new) and item.name != "noise_db":  # noise is a baseline's
            yield Difference("output", then.output, old, new, item.name)


def _same(then: Value, now: Value) -> bool:
    """To the last bit: 0.0 is not -0.0."""
    return repr(then) == repr(now) if isinstance(then, float) and isinstance(now, float) else then == now


def _same_line(then: str, now: str) -> bool:
    shorter = min(len(then), len(now))
    return then == now or (shorter >= _LONG and then[:shorter] == now[:shorter])


def _quantizers(then: Sequence[QuantizerRow], now: Sequence[QuantizerRow]) -> Iterator[Difference]:
    old, new = ({row.quantizer: asdict(row) for row in rows} for rows in (then, now))
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            there, here = (rows[name]["status"] if name in rows else None for rows in (old, new))
            yield Difference("quantizer", name, there, here, "status")
            continue
        for column, value in old[name].items():
            if not _same(value, new[name][column]) and column != "noise_rel":
                yield Difference("quantizer", name, value, new[name][column], column)
