"""Which cases are planned: a suite or an ad-hoc selection, narrowed by the user's filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from harness import fixes as fix_table
from harness import flows as flow_table
from harness.adapter import Size
from harness.errors import NothingMeasuredError, UsageError, unknown_name
from harness.records import RELEASED, Case, Point, Row
from harness.settings import Settings, Suite

UNKNOWN_WEIGHTS = "unknown"
"""Weights kind of a case whose adapter cannot be imported; its rows say why."""
AD_HOC = "ad-hoc"
FILE = "file:"
"""Before the name of a checkpoint, in the place of a weights kind."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user asked for; an empty tuple or None is no restriction."""

    suite: str | None = None
    models: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    size: str | None = None
    weights: str | None = None
    lowered: bool | None = None
    """Whether every flow that has a lowering is measured `lowered`, or none is; None leaves it to the suite."""
    excluded: tuple[str, ...] = ()
    """Quantizers to leave in float, names or shell patterns; chooses no cases, but what is measured is no suite's."""

    @property
    def suite_name(self) -> str:
        """The suite planned: the named one, `gate` by default, `ad-hoc` when only a size or weights are named."""
        return self.suite or (AD_HOC if self.size or self.weights else "gate")

    @property
    def filtered(self) -> bool:
        """Whether less than a whole suite was asked for."""
        return bool(self.models or self.flows or self.variants or self.size or self.weights or self.excluded) or (
            self.lowered is not None
        )

    def fits(self, case: Case) -> bool:
        """Whether a case is one of those asked for."""
        asked = (
            (self.models, case.model),
            (self.flows, case.flow),
            (self.variants, case.variant),
            ((self.size,) if self.size else (), case.size),
            ((self.weights,) if self.weights else (), case.weights),
        )
        return all(value in wanted for wanted, value in asked if wanted)


@dataclass(frozen=True, slots=True)
class Plan:
    """The cases to measure, and the cases that any suite of the workspace plans (to tell orphaned baselines)."""

    suite: str
    filtered: bool
    cases: tuple[Case, ...]
    planned_by_any_suite: tuple[Case, ...]
    unlowered: frozenset[Case] = frozenset()
    """Those of the cases that are measured as far as the converted graph alone."""
    never_lowered: frozenset[Case] = frozenset()
    """Cases that some suite of the workspace plans and none measures any further."""

    def scope(self) -> Callable[[Row], bool]:
        """Which baseline rows this plan's run answers for: its own cases', at the points it measures, and orphans.

        An orphan is a case that no suite plans any more, such as one of a model that was removed, or one's point
        `lowered` that none measures. Whole suites answer for the orphans of the size they plan; filtered runs for their
        own cases only. Weights from a file are nobody's orphans: no suite can plan them.
        """
        own, every = frozenset(self.cases), frozenset(self.planned_by_any_suite)
        sizes = frozenset() if self.filtered else frozenset(case.size for case in self.cases)

        def answers_for(row: Row) -> bool:
            case, lowered = row.case, row.point == Point.LOWERED
            planned = case in every and not (lowered and case in self.never_lowered)
            orphan = case.size in sizes and not planned and not case.weights.startswith(FILE)
            return orphan or (case in own and not (lowered and case in self.unlowered))

        return answers_for


Sizes = Mapping[str, Mapping[str, Size] | None]
"""Sizes of each model; None where its adapter cannot be imported."""


def resolve_weights(selection: Selection, sizes: Sizes) -> tuple[Selection, str | None]:
    """A selection whose weights are a kind, or the label `file:<name>` with the path to load.

    Raises `UsageError` if they are neither.
    """
    kinds = {kind for known in sizes.values() for size in (known or {}).values() for kind in size.weights}
    if selection.weights is None or selection.weights in kinds:
        return selection, None
    path = Path(selection.weights)
    if not path.exists():
        raise UsageError(
            f"--weights {selection.weights}: no such file or folder, nor a kind of weights ({', '.join(sorted(kinds))})"
        )
    return replace(selection, weights=f"{FILE}{path.name}"), str(path.resolve())


def make_plan(selection: Selection, settings: Settings, sizes: Sizes) -> Plan:
    """Plan a selection. Raises `UsageError` for unknown names and `NothingMeasuredError` for an empty plan."""
    _check_names("model", selection.models, sizes)
    _check_names("flow", selection.flows, flow_table.names())
    _check_names(
        "size", (selection.size,) if selection.size else (), {size for one in sizes.values() for size in one or ()}
    )
    _check_names(
        "variant",
        selection.variants,
        {v for flow in flow_table.names() for lowers in (True, False) for v in _variants(flow, lowers)},
    )
    if selection.suite:
        settings.suite(selection.suite)
    suite = _suite(selection, settings, sizes)
    planned = _suite_cases(suite, settings, sizes, selection.lowered)
    cases = [case for case in planned if selection.fits(case)]
    if not cases:
        lowers = selection.lowered is None and any(map(selection.fits, _suite_cases(suite, settings, sizes, True)))
        raise NothingMeasuredError(
            f"nothing to measure: no case of suite {selection.suite_name} fits {_filters(selection, sizes)}"
            + ("; with --lower there is one" if lowers else "")
        )
    every = _merged(_suite_cases(suite, settings, sizes) for suite in settings.all_suites().values())
    return Plan(
        *(selection.suite_name, selection.filtered, tuple(sorted(cases, key=_order)), tuple(sorted(every))),
        unlowered=frozenset(case for case in cases if not planned[case]),
        never_lowered=frozenset(case for case, lowers in every.items() if not lowers),
    )


def _order(case: Case) -> tuple[object, ...]:
    """By name, and of each flow `released` first: what a variant shares with it is then put down to it."""
    return (case.model, case.size, case.weights, case.flow, case.variant != RELEASED, case.variant)


def _suite(selection: Selection, settings: Settings, sizes: Sizes) -> Suite:
    if selection.suite_name != AD_HOC:
        suite = settings.suite(selection.suite_name)
        return suite.model_copy(update={"weights": selection.weights}) if selection.weights else suite
    size = selection.size or _only_size_with(selection.weights, sizes) or "small"
    return Suite(size=size, weights=selection.weights)


def _only_size_with(weights: str | None, sizes: Sizes) -> str | None:
    """The size that a kind of weights exists for, if there is just one: `pretrained` means full."""
    found = {size for known in sizes.values() for size, one in (known or {}).items() if weights in one.weights}
    return found.pop() if len(found) == 1 else None


def _suite_cases(suite: Suite, settings: Settings, sizes: Sizes, lowered: bool | None = None) -> dict[Case, bool]:
    """A suite's cases, those of the suites it includes among them, and whether each is measured `lowered`.

    `lowered` asks for that of all flows or of none, whatever the suites say.
    """
    parts = (suite, *(settings.suite(name) for name in suite.includes))
    if lowered is not None:
        parts = tuple(part.model_copy(update={"lowered": ("*",) if lowered else ()}) for part in parts)
    return _merged(_own_cases(part, sizes) for part in parts)


def _merged(plans: Iterable[dict[Case, bool]]) -> dict[Case, bool]:
    """The cases of all, each lowered if any lowers it."""
    cases: dict[Case, bool] = {}
    for plan in plans:
        cases |= {case: lowers or cases.get(case, False) for case, lowers in plan.items()}
    return cases


def _own_cases(suite: Suite, sizes: Sizes) -> dict[Case, bool]:
    models = _matching("model", suite.models, sizes)
    flows = _matching("flow", suite.flows, flow_table.names())
    lowered = frozenset(_matching("flow", suite.lowered, flow_table.names()))
    cases = {}
    for model in models:
        known = sizes[model]
        if known is not None and suite.size not in known:
            continue
        offered = known[suite.size].weights if known is not None else (UNKNOWN_WEIGHTS,)
        weights = suite.weights or offered[0]
        if known is not None and weights not in offered and not weights.startswith(FILE):
            continue
        for flow in flows:
            for name in _variants(flow, flow in lowered):
                cases[Case(model, suite.size, weights, flow, name)] = flow in lowered
    return cases


def _variants(flow: str, lowers: bool) -> list[str]:
    """The variants of a flow that is lowered, or of one that is not: then without fixes of the lowering."""
    fixes = fix_table.installed()
    early = tuple(fix for fix in fixes if fix.stage not in fix_table.LOWERING)
    return fix_table.variants(flow, fixes if lowers else early)


def _matching(kind: str, patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Names that fit any pattern; a pattern that is a plain name must be one of them."""
    known = list(names)
    _check_names(kind, (pattern for pattern in patterns if not set(pattern) & set("*?[")), known)
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _check_names(kind: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    for name in wanted:
        if name not in set(known):
            raise unknown_name(kind, name, known)


def _filters(selection: Selection, sizes: Sizes) -> str:
    parts = {
        "-m": ",".join(selection.models),
        "-f": ",".join(selection.flows),
        "--variant": ",".join(selection.variants),
        "--size": selection.size or "",
        "--weights": selection.weights or "",
    }
    filters = [f"{flag} {value}" for flag, value in parts.items() if value]
    if filters and selection.lowered is not None:
        filters.append("--lower" if selection.lowered else "--no-lower")
    return " ".join(filters) or ("any model of this workspace" if sizes else "this workspace (it has no models)")
