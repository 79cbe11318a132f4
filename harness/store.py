"""A run's folder, `reports/<run>/`: run.json, two tables, samples.safetensors, verdict.json, logs/, parts/."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness import samples, table
from harness.errors import TableError, UsageError
from harness.files import write_atomically
from harness.records import Case, OutputRow, QuantizerRow
from harness.suite import Plan

if TYPE_CHECKING:
    from harness.measure.bootstrap import Array

SCHEMA = 4
COMPLETE, RUNNING, INTERRUPTED = "complete", "running", "interrupted"
_LONGEST_KEY = 100


@dataclass(slots=True)
class Run:
    """One measurement: what was planned, where and with what, and its rows."""

    folder: Path
    plan: Plan
    seed: int
    environment: dict[str, Any]
    started: str
    status: str = RUNNING
    weights_source: str | None = None
    excluded: tuple[str, ...] = ()
    """Quantizers that the user left in float."""
    seconds: float = 0.0
    weight_hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 over a model's float weights, by `model/size/weights`."""
    input_hashes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """SHA-256 of each batch of `calibration` and `evaluation`, by `model/size/weights`."""
    adapter_hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    """SHA-256 of the adapter's file and its helpers by the file's name, by `model/size/weights`."""
    outputs: list[OutputRow] = field(default_factory=list)
    quantizers: list[QuantizerRow] = field(default_factory=list)
    samples: Mapping[tuple[str, ...], Array] = field(default_factory=dict, compare=False, repr=False)
    """Sums of signal and noise of each sample by output row, of a run just measured; `load_run` leaves them in their
    file, which few verbs need (`harness.samples.read`)."""

    @property
    def name(self) -> str:
        """Folder name, sortable by start time."""
        return self.folder.name

    @property
    def parts(self) -> Path:
        """Folder into which workers append what they measured."""
        return self.folder / "parts"

    @property
    def logs(self) -> Path:
        """Folder of the full text of what went wrong."""
        return self.folder / "logs"

    def save(self) -> None:
        """Write run.json, both tables, and the sums of samples where there are any."""
        header = {
            "schema": SCHEMA,
            "started": self.started,
            "status": self.status,
            "suite": self.plan.suite,
            "filtered": self.plan.filtered,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "environment": self.environment,
            "weights_source": self.weights_source,
            "excluded": list(self.excluded),
            "weight_hashes": self.weight_hashes,
            "input_hashes": self.input_hashes,
            "adapter_hashes": self.adapter_hashes,
            "plan": _cells_of(self.plan.cases),
            "unlowered": _cells_of(sorted(self.plan.unlowered)),
            "planned_by_any_suite": _cells_of(self.plan.planned_by_any_suite),
            "never_lowered": _cells_of(sorted(self.plan.never_lowered)),
        }
        write_atomically(self.folder / "outputs.csv", table.render(self.outputs, OutputRow))
        write_atomically(self.folder / "quantizers.csv", table.render(self.quantizers, QuantizerRow))
        if self.samples:
            samples.write(self.folder, self.samples)
        write_atomically(self.folder / "run.json", json.dumps(header, indent=1) + "\n")


def create_run(
    reports: Path,
    plan: Plan,
    seed: int,
    environment: dict[str, Any],
    weights_source: str | None = None,
    excluded: tuple[str, ...] = (),
) -> Run:
    """A new run folder of its own; two runs started in the same second get two folders."""
    now = datetime.now(UTC)
    stem = f"{now:%Y%m%d-%H%M%S}-{plan.suite}"
    for attempt in range(1000):
        folder = reports / (f"{stem}-{attempt:03d}" if attempt else stem)
        try:
            reports.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            for part in ("parts", "logs"):
                (folder / part).mkdir()
        except FileExistsError as error:
            if not reports.is_dir():
                raise UsageError(f"{reports}: cannot be written: {error.strerror}") from None
            continue
        except OSError as error:
            raise UsageError(
                f"{reports}: cannot be written: {error.strerror}; set `reports` in [tool.sqnr] to a writable folder"
            ) from None
        started = now.isoformat(timespec="seconds")
        run = Run(folder, plan, seed, environment, started, weights_source=weights_source, excluded=excluded)
        run.save()
        return run
    raise UsageError(f"{reports}: holds 1000 runs of this second")


def load_run(folder: Path) -> Run:
    """A stored run; raises `TableError` if a file is missing or damaged."""
    file = folder / "run.json"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TableError(f"{file}: cannot be read: {type(error).__name__}: {error}") from None
    run = parse_header(folder, content)
    run.outputs = table.parse(folder / "outputs.csv", OutputRow)
    run.quantizers = table.parse(folder / "quantizers.csv", QuantizerRow)
    return run


def parse_header(folder: Path, content: bytes) -> Run:
    """The run that the content of a `run.json` describes, without its rows; raises `TableError` if it is damaged."""
    file = folder / "run.json"
    try:
        loaded = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TableError(f"{file}: cannot be read: {type(error).__name__}: {error}") from None
    schema = loaded.get("schema") if isinstance(loaded, dict) else None
    if type(schema) is int and schema != SCHEMA:
        raise TableError(f"{file}: schema {schema}, this version reads {SCHEMA}; measure again")
    try:
        header = _Header.model_validate(loaded)
    except ValidationError as error:
        raise TableError(f"{file}: cannot be read: {first_of(error)}") from None
    return Run(
        folder,
        Plan(
            *(header.suite, header.filtered, _cases(header.plan), _cases(header.planned_by_any_suite)),
            frozenset(_cases(header.unlowered)),
            frozenset(_cases(header.never_lowered)),
        ),
        header.seed,
        header.environment.model_dump(exclude_unset=True),
        header.started,
        header.status,
        header.weights_source,
        tuple(header.excluded),
        header.seconds,
        header.weight_hashes,
        header.input_hashes,
        header.adapter_hashes,
    )


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Environment(_Part):
    """What `harness.environment.fingerprint` says; any of it may be absent, and other facts beside it."""

    model_config = ConfigDict(extra="allow")

    platform: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] = ""
    """The name of a folder of baselines."""
    python: str = ""
    cpu: str = ""
    stack: dict[str, str] = {}
    pins: dict[str, str] = {}


_Cells = Annotated[list[str], Field(min_length=5, max_length=5)]


class _Header(_Part):
    """The content of a run.json, as `Run.save` writes it."""

    version: Literal[4] = Field(alias="schema")
    started: str
    status: Literal["complete", "running", "interrupted"]
    suite: str
    filtered: bool
    seed: int
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    environment: _Environment
    weights_source: str | None
    excluded: list[str]
    weight_hashes: dict[str, str]
    input_hashes: dict[str, dict[str, list[str]]] = {}
    adapter_hashes: dict[str, dict[str, str]] = {}
    plan: list[_Cells]
    unlowered: list[_Cells] = []
    planned_by_any_suite: list[_Cells]
    never_lowered: list[_Cells] = []


def _cells_of(cases: Iterable[Case]) -> list[list[str]]:
    return [list(asdict(case).values()) for case in cases]


def _cases(plan: list[list[str]]) -> tuple[Case, ...]:
    return tuple(Case(*cells) for cells in plan)


def first_of(error: ValidationError) -> str:
    """The first field that is wrong, how, and how many more are."""
    first = error.errors()[0]
    where = ".".join(map(_visible, first["loc"]))
    given = "" if first["type"] == "missing" else f" (got {reprlib.repr(first['input'])})"
    more = f"; and {error.error_count() - 1} more" if error.error_count() > 1 else ""
    return f"{where + ': ' if where else ''}{first['msg'].lower()}{given}{more}"


def _visible(part: str | int) -> str:
    """A key on the way to a field; one that would break the line, or is endless, as Python writes it."""
    key = str(part)
    return key if key.isprintable() and len(key) <= _LONGEST_KEY else reprlib.repr(key)


def find_run(reports: Path, name: str | None) -> Run:
    """The run called `name` (or the run folder at that path); by default the latest one."""
    if name is not None:
        for folder in (reports / name, Path(name)):
            if (folder / "run.json").is_file():
                return load_run(folder)
        known = ", ".join(run.name for run in _newest_first(reports)[:5])
        raise UsageError(f"no run {name!r} in {reports} (latest: {known or 'none; start with `sqnr run`'})")
    runs = _newest_first(reports)
    if not runs:
        raise UsageError(f"no run in {reports}; start with `sqnr run`")
    return load_run(runs[0])


def _newest_first(reports: Path) -> list[Path]:
    files: Iterable[Path] = reports.glob("*/run.json")
    return [file.parent for file in sorted(files, key=lambda file: file.parent.name, reverse=True)]
