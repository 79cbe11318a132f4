"""What a locating process does: one case measured again, and what explains its outputs' losses written to a folder."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import SqnrError, UsageError, in_a_line
from harness.records import Case, OutputRow, Point, QuantizerRow

if TYPE_CHECKING:
    from harness.adapter import Adapter
    from harness.locate.scene import Scene
    from harness.located import Sensitivity
    from harness.subject import Subject


@dataclass(frozen=True, slots=True)
class LocateJob:
    """One case to look into, and where the records go.

    `weights_source` is what the adapter's `build` is given; reference outputs are spilled into `spill`. Without a
    `point` it is the flow's last one; without `outputs` the one that lost most. `quantizers` and `levels` are what was
    accepted of that point; none without a baseline. `minimise` also writes the smallest graph that shows the damage.
    """

    start: Path
    case: Case
    weights_source: str
    seed: int
    folder: Path
    spill: Path
    point: Point | None = None
    outputs: tuple[str, ...] = ()
    against: str | None = None
    quantizers: tuple[QuantizerRow, ...] = ()
    levels: tuple[OutputRow, ...] = ()
    excluded: tuple[str, ...] = ()
    sensitivity: bool = False
    minimise: bool = False


@dataclass(slots=True)
class Answer:
    """Stems of the records that were written, and what kept others from it: one line, and the full text.

    `usage` says that it was the request, which names something that the case has not. `notes` are no failure.
    """

    stems: list[str] = field(default_factory=list)
    error: str = ""
    log: str = ""
    usage: bool = False
    notes: list[str] = field(default_factory=list)


def locate(job: LocateJob) -> Answer:
    """Look into a case; never raises for what a model, an upstream or the request does."""
    answer = Answer()
    try:
        _locate(job, answer)
    except UsageError as error:
        answer.error, answer.usage = str(error), True
    except Exception as error:
        stage = getattr(error, "stage", "")
        answer.error = str(error) if isinstance(error, SqnrError) or stage else in_a_line(error)
        answer.error = f"failed at {stage}: {answer.error}" if stage else answer.error
        answer.log = "".join(traceback.format_exception(error))
    return answer


def _locate(job: LocateJob, answer: Answer) -> None:
    import torch

    torch.set_num_threads(1)
    from harness.subject import Subject
    from harness.workspace import find_workspace

    logging.disable(logging.WARNING)
    adapter = find_workspace(job.start).load_adapter(job.case.model)
    with torch.no_grad():
        subject = Subject(adapter, job.case.size, job.weights_source, job.seed, spill=job.spill)
    torch.set_num_threads(1)  # whatever the adapter asked for
    try:
        _find(job, adapter, subject, answer)
    finally:
        subject.close()


def _find(job: LocateJob, adapter: Adapter, subject: Subject, answer: Answer) -> None:
    from harness import bundle, fixes, flows, located
    from harness.environment import fingerprint
    from harness.errors import unknown_name
    from harness.locate.against import Accepted, Against
    from harness.locate.find import Finder
    from harness.locate.minimise import minimise
    from harness.locate.scene import Place, Scene
    from harness.pipeline import Pipeline
    from harness.sources import source_hashes

    for output in job.outputs:
        if output not in subject.outputs:
            raise unknown_name("output", output, subject.outputs)
    flow = flows.load(job.case.flow)
    point = job.point or flow.graph_points[-1]
    if point not in flow.graph_points[1:]:
        raise UsageError(
            f"flow {flow.name} has no point {point} to look into: it has {', '.join(flow.graph_points[1:])}"
        )
    repairs = fixes.of_variant(job.case.variant, fixes.installed())
    pipeline = Pipeline(subject, lambda _case, _stage: None, job.excluded)
    scene = Scene(pipeline, subject, Place(job.case, flow, repairs, point), whole=bool(repairs))
    known = {row.quantizer: row for row in job.quantizers}, {row.output: row for row in job.levels}
    against = Against(pipeline, subject, scene, Accepted(*known) if job.levels else None)
    finders: dict[str, Finder] = {}
    facts = bundle.Facts(
        *(job.seed, fingerprint(), subject.digest, subject.input_hashes, source_hashes(adapter)),
        *(job.weights_source if job.weights_source != job.case.weights else None, job.excluded),
    )
    for asked in job.outputs or (None,):
        aim = against.find(job.against, asked)
        if aim.name not in finders:
            finders[aim.name] = Finder(scene, aim)
        finder = finders[aim.name]
        output = asked or finder.worst()
        found = finder.find(output)
        if job.sensitivity:
            found = replace(found, sensitivity=_sensitivity(scene, output, job.folder))
        place = job.folder / found.stem
        for stale in (place / bundle.MINIMAL).glob("*"):  # of an earlier call, which may have found another culprit
            stale.unlink()
        located.write(job.folder, found)
        bundle.write(place, scene.outputs[output], scene.quantized.rows.values(), facts)
        if job.minimise:
            first = next(iter(finder.members[output]), None)
            if first is None or minimise(scene, first, place / bundle.MINIMAL) is None:
                answer.notes.append(
                    f"{job.case} {found.point} {output}: no part of the graph shows the damage by itself"
                )
        answer.stems.append(found.stem)


def _sensitivity(scene: Scene, output: str, folder: Path) -> tuple[Sensitivity, ...]:
    from harness.locate.sensitivity import sensitivities
    from harness.located import file_stem

    kept = folder / f"{file_stem(scene.place.case, scene.place.point, 'sensitivity')}.jsonl"
    return tuple(sensitivities(scene, output, kept, lambda _done, _all: None))
