"""Group series by objective and seed, and collect the trajectories of their quantities.

The name of a series has both: ``iac-seed-2`` is seed 2 of the objective ``iac``. ``oversharp compare`` names its run
directories this way, and a series has the name of its run directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oversharp.diagnostics.statistics.comparison import RunPath
from oversharp.diagnostics.statistics.over_seeds import (
    PROBABILITY,
    UNBOUNDED,
    SeedMean,
    matched_over_seeds,
    mean_over_seeds,
    shared_levels,
)
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import scope_label
from oversharp.reports.wording import WITH_MODES

_SEED_NAME = re.compile(r"(.+)-seed-(0|[1-9][0-9]*)")
#: Value of k to show in addition to k = 1 and the largest k.
MIDDLE_K = 8
#: Number of levels of pass@1 at which series are compared. Every seed reaches all levels.
LEVELS = 4


@dataclass(frozen=True, kw_only=True)
class _FurtherMeasure:
    """Measure to show next to pass@k. ``at_base`` is its value at the base if the definition fixes it."""

    measure: str
    title: str
    at_base: float | None = None


#: The report shows the first measure of each row that has values.
_FURTHER_MEASURES: tuple[tuple[_FurtherMeasure, ...], ...] = (
    (_FurtherMeasure(measure="interference", title="interference", at_base=0.0),),
    (
        _FurtherMeasure(measure="mode_entropy_exact", title="mode entropy"),
        _FurtherMeasure(measure="effective_modes", title="effective modes"),
    ),
    (_FurtherMeasure(measure="modes_fallen_10x", title="modes fallen > 10×", at_base=0.0),),
)


@dataclass(frozen=True, kw_only=True)
class SeededObjective:
    """Objective with its runs: seed → series, in ascending order of seed."""

    name: str
    runs: Mapping[int, SeriesSource]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Quantity to compare, such as pass@8. ``trajectories`` is series → step → value, in ascending order of step."""

    title: str
    unit: str
    trajectories: Mapping[str, Mapping[int, float]]

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest possible mean."""
        return PROBABILITY if numbers.is_probability(self.unit) else UNBOUNDED

    def values_at(self, step: int, objective: SeededObjective) -> dict[int, float | None]:
        """Return seed → value at ``step`` (None if missing) for the runs of ``objective``."""
        return {seed: self.trajectories.get(run.name, {}).get(step) for seed, run in objective.runs.items()}

    def mean(self, values: Mapping[int, float | None]) -> SeedMean:
        """Return the mean over seeds."""
        return mean_over_seeds(list(values.values()), bounds=self.bounds)

    def path_against(self, other: Quantity, run: SeriesSource) -> RunPath:
        """Return the path of ``run`` over its steps, with ``other`` (pass@1) as x and this quantity as y."""
        x, y = other.trajectories.get(run.name, {}), self.trajectories.get(run.name, {})
        return RunPath(steps=list(x), x=list(x.values()), y=[y.get(step) for step in x])


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """Quantities to compare: pass@1, pass@k at larger k (ascending), and further measures."""

    p1: Quantity
    pk: tuple[Quantity, ...]
    further: tuple[Quantity, ...]
    exact: bool

    @property
    def all(self) -> tuple[Quantity, ...]:
        """All quantities, in the order of the table's columns."""
        return (self.p1, *self.pk, *self.further)


@dataclass(frozen=True, kw_only=True)
class SeedPlace:
    """Place of a comparison between objectives: a step, or a level of pass@1.

    ``values`` is objective → title of the quantity → seed → value. ``missed`` is objective → seed → reason why there
    is no value.
    """

    title: str
    values: Mapping[str, Mapping[str, Mapping[int, float | None]]]
    steps: Mapping[str, float | None]
    missed: Mapping[str, Mapping[int, str]]
    level: float | None = None  # level of pass@1; None if the place is a step


def seed_of(series: str) -> tuple[str, int] | None:
    """Return objective and seed of a series name, None for a name without a seed.

    >>> seed_of("iac-seed-2"), seed_of("iac"), seed_of("iac-seed-02")
    (('iac', 2), None, None)
    """
    match = _SEED_NAME.fullmatch(series)
    return None if match is None else (match[1], int(match[2]))


def objectives(series: Sequence[SeriesSource]) -> tuple[SeededObjective, ...]:
    """Return the objectives with their runs, in the order of ``series``; empty unless two series have a seed."""
    by_objective: dict[str, dict[int, SeriesSource]] = {}
    for member in series:
        if (named := seed_of(member.name)) is not None:
            by_objective.setdefault(named[0], {})[named[1]] = member
    if sum(len(runs) for runs in by_objective.values()) < 2:
        return ()
    return tuple(SeededObjective(name=name, runs=dict(sorted(runs.items()))) for name, runs in by_objective.items())


def may_pair(first: str, second: str) -> bool:
    """Return whether two series may be compared directly.

    Series with seeds in their names must have different objectives and equal seeds.
    """
    first_seed, other = seed_of(first), seed_of(second)
    return first_seed is None or other is None or (first_seed[0] != other[0] and first_seed[1] == other[1])


def quantities(context: Context, chosen: Sequence[SeededObjective]) -> Quantities | None:
    """Return the quantities that all runs have, with exact values if all runs have them; None without pass@1."""
    runs = [run for objective in chosen for run in objective.runs.values()]
    exact = all(_shared_ks(context, runs, exact=True))
    shared = _shared_ks(context, runs, exact=exact)
    ks = set.intersection(*shared)
    if 1 not in ks:
        return None
    above = sorted(k for k in ks if k > 1)
    shown = [k for k in above if k in (MIDDLE_K, above[-1])]
    name = "pass_at_k_exact" if exact else "pass_at_k"

    def pass_at(k: int) -> Quantity:
        return Quantity(title=f"pass@{k}", unit="probability", trajectories=_trajectories(context, name, k))

    further = [
        next((quantity for measure in row if (quantity := _find_quantity(context, runs, measure))), None)
        for row in _FURTHER_MEASURES
    ]
    return Quantities(
        p1=pass_at(1),
        pk=tuple(pass_at(k) for k in shown),
        further=tuple(quantity for quantity in further if quantity is not None),
        exact=exact,
    )


def places(chosen: Sequence[SeededObjective], made: Quantities) -> tuple[SeedPlace, ...]:
    """Return the places of comparison: the last step that all runs have, then ascending levels of pass@1."""
    seed_places = []
    runs = [run for objective in chosen for run in objective.runs.values()]
    steps = set.intersection(*({*made.p1.trajectories.get(run.name, {})} for run in runs))
    if steps:
        step = max(steps)
        values = {goal.name: {q.title: q.values_at(step, goal) for q in made.all} for goal in chosen}
        at = {goal.name: float(step) for goal in chosen}
        seed_places.append(
            SeedPlace(title=f"step {step}", values=values, steps=at, missed={goal.name: {} for goal in chosen})
        )
    own = {goal.name: [made.p1.path_against(made.p1, run) for run in goal.runs.values()] for goal in chosen}
    return (*seed_places, *(_matched_place(chosen, made, level) for level in shared_levels(own, n_levels=LEVELS)))


def _matched_place(chosen: Sequence[SeededObjective], made: Quantities, level: float) -> SeedPlace:
    by_objective = {
        objective.name: {
            q.title: matched_over_seeds(
                {seed: q.path_against(made.p1, run) for seed, run in objective.runs.items()}, level
            )
            for q in made.all
        }
        for objective in chosen
    }
    return SeedPlace(
        title=f"pass@1 = {numbers.decimal(level, 3)}",
        values={
            name: {title: {seed: v.value for seed, v in matched.values.items()} for title, matched in by.items()}
            for name, by in by_objective.items()
        },
        steps={name: by[made.p1.title].step for name, by in by_objective.items()},
        missed={name: by[made.p1.title].missed for name, by in by_objective.items()},
        level=level,
    )


def _shared_ks(context: Context, runs: Sequence[SeriesSource], *, exact: bool) -> list[set[int]]:
    """Return the values of k of each run. If a run has CIs for some k, only these and k = 1 are used."""
    rows = context.source.known_findings("pass_at_k_exact" if exact else "pass_at_k")
    of_run = {str(name): {int(k) for k in own} for name, own in rows.groupby("series")["k"]}
    shared = []
    for run in runs:
        ks = of_run.get(run.name, set())
        inference = set(context.inference_ks(run) or context.inference_ks(run, exact=exact))
        shared.append(ks & (inference | {1}) if inference else ks)
    return shared


def _find_quantity(context: Context, runs: Sequence[SeriesSource], wanted: _FurtherMeasure) -> Quantity | None:
    """Return a measure without k if every run has it, else None.

    If no value covers all problems, the measure over the problems that list their modes is used.
    """
    rows = context.source.findings_of(wanted.measure)
    for scope in ("all", WITH_MODES) if len(rows) else ():
        trajectories = _trajectories(context, wanted.measure, None, scope=scope)
        if all(run.name in trajectories for run in runs):
            if wanted.at_base is not None:
                trajectories = {run.name: {run.base_step: wanted.at_base, **trajectories[run.name]} for run in runs}
            title = wanted.title if scope == "all" else f"{wanted.title}, {scope_label(scope)}"
            return Quantity(title=title, unit=str(rows["unit"].iloc[0]), trajectories=trajectories)
    return None


def _trajectories(context: Context, measure: str, k: int | None, *, scope: str = "all") -> dict[str, dict[int, float]]:
    rows = context.source.known_findings(measure, scope=scope)
    rows = rows[rows["k"].isna()] if k is None else rows[rows["k"] == k]
    rows = rows.sort_values(["series", "step"], kind="stable")
    return {
        str(name): {int(step): float(value) for step, value in zip(own["step"], own["value"], strict=True)}
        for name, own in rows.groupby("series", sort=False)
    }
