"""Which series are seeds of one objective, and the courses of their numbers.

The name of a series says it: ``iac-seed-2`` is seed 2 of the objective ``iac``. ``oversharp compare`` names its runs
so, and a run directory of such a name gives its series that name.
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
from oversharp.reports.wording import WITH_MODES, known

_SEED_NAME = re.compile(r"(.+)-seed-(0|[1-9][0-9]*)")
#: The k that is shown beside 1 and the largest.
MIDDLE_K = 8
#: Levels of pass@1 that every seed reaches.
LEVELS = 4


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """A measure beside pass@k, its name short enough for a column, and the base's value where that is by definition."""

    measure: str
    title: str
    at_base: float | None = None


#: Of each row the first that the store has values of.
_BESIDE: tuple[tuple[_Beside, ...], ...] = (
    (_Beside(measure="interference", title="interference", at_base=0.0),),
    (
        _Beside(measure="mode_entropy_exact", title="mode entropy"),
        _Beside(measure="effective_modes", title="effective modes"),
    ),
    (_Beside(measure="modes_fallen_10x", title="modes fallen > 10×", at_base=0.0),),
)


@dataclass(frozen=True, kw_only=True)
class SeededObjective:
    """Runs that differ in their seed alone, by seed in ascending order."""

    name: str
    runs: Mapping[int, SeriesSource]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One number of a checkpoint, and its course in every run: series → step → value, steps ascending."""

    title: str
    unit: str
    courses: Mapping[str, Mapping[int, float]]

    @property
    def bounds(self) -> tuple[float, float]:
        """Where its mean cannot leave."""
        return PROBABILITY if numbers.is_probability(self.unit) else UNBOUNDED

    def at(self, step: int, objective: SeededObjective) -> dict[int, float | None]:
        """Its value at ``step`` for every seed of ``objective``, None where there is none."""
        return {seed: self.courses.get(run.name, {}).get(step) for seed, run in objective.runs.items()}

    def mean(self, values: Mapping[int, float | None]) -> SeedMean:
        """The mean over seeds."""
        return mean_over_seeds(list(values.values()), bounds=self.bounds)

    def against(self, other: Quantity, run: SeriesSource) -> RunPath:
        """The path of ``run`` with ``other`` (pass@1) as x and this as y."""
        x, y = other.courses.get(run.name, {}), self.courses.get(run.name, {})
        return RunPath(steps=list(x), x=list(x.values()), y=[y.get(step) for step in x])


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """What is compared: pass@1, pass@k at larger k (ascending), and measures beside them."""

    p1: Quantity
    pk: tuple[Quantity, ...]
    beside: tuple[Quantity, ...]
    exact: bool

    @property
    def all(self) -> tuple[Quantity, ...]:
        """In the order of the columns."""
        return (self.p1, *self.pk, *self.beside)


@dataclass(frozen=True, kw_only=True)
class SeedPlace:
    """Where objectives are compared: values by objective, quantity and seed, and why a seed has none."""

    title: str
    values: Mapping[str, Mapping[str, Mapping[int, float | None]]]
    steps: Mapping[str, float | None]
    missed: Mapping[str, Mapping[int, str]]
    level: float | None = None  # of pass@1; None for a step


def seed_of(series: str) -> tuple[str, int] | None:
    """The objective and the seed that a series' name carries, None for a name without a seed.

    >>> seed_of("iac-seed-2"), seed_of("iac"), seed_of("iac-seed-02")
    (('iac', 2), None, None)
    """
    match = _SEED_NAME.fullmatch(series)
    return None if match is None else (match[1], int(match[2]))


def objectives(series: Sequence[SeriesSource]) -> tuple[SeededObjective, ...]:
    """The objectives with their seeds, in the order of ``series``; none unless two series carry a seed."""
    found: dict[str, dict[int, SeriesSource]] = {}
    for one in series:
        if (named := seed_of(one.name)) is not None:
            found.setdefault(named[0], {})[named[1]] = one
    if sum(len(runs) for runs in found.values()) < 2:
        return ()
    return tuple(SeededObjective(name=name, runs=dict(sorted(runs.items()))) for name, runs in found.items())


def may_pair(first: str, second: str) -> bool:
    """Whether two series are compared by themselves: seeds of one objective, or other seeds of two, say nothing."""
    one, other = seed_of(first), seed_of(second)
    return one is None or other is None or (one[0] != other[0] and one[1] == other[1])


def quantities(context: Context, chosen: Sequence[SeededObjective]) -> Quantities | None:
    """What all runs have; exact values where all have them. None where they share no pass@1."""
    runs = [run for objective in chosen for run in objective.runs.values()]
    exact = all(_shared_ks(context, runs, exact=True))
    shared = _shared_ks(context, runs, exact=exact)
    ks = set.intersection(*shared)
    if 1 not in ks:
        return None
    above = sorted(k for k in ks if k > 1)
    shown = [k for k in above if k in (MIDDLE_K, above[-1])]
    name = "pass_at_k_exact" if exact else "pass_at_k"

    def coverage(k: int) -> Quantity:
        return Quantity(title=f"pass@{k}", unit="probability", courses=_courses(context, name, k))

    beside = [next((made for one in row if (made := _course_beside(context, runs, one))), None) for row in _BESIDE]
    return Quantities(
        p1=coverage(1),
        pk=tuple(coverage(k) for k in shown),
        beside=tuple(one for one in beside if one is not None),
        exact=exact,
    )


def places(chosen: Sequence[SeededObjective], made: Quantities) -> tuple[SeedPlace, ...]:
    """The last step that all runs have, then levels of pass@1, ascending."""
    found = []
    runs = [run for objective in chosen for run in objective.runs.values()]
    steps = set.intersection(*({*made.p1.courses.get(run.name, {})} for run in runs))
    if steps:
        step = max(steps)
        values = {one.name: {q.title: q.at(step, one) for q in made.all} for one in chosen}
        at = {one.name: float(step) for one in chosen}
        found.append(SeedPlace(title=f"step {step}", values=values, steps=at, missed={one.name: {} for one in chosen}))
    own = {one.name: [made.p1.against(made.p1, run) for run in one.runs.values()] for one in chosen}
    return (*found, *(_matched(chosen, made, level) for level in shared_levels(own, n_levels=LEVELS)))


def _matched(chosen: Sequence[SeededObjective], made: Quantities, level: float) -> SeedPlace:
    read = {
        one.name: {
            q.title: matched_over_seeds({seed: q.against(made.p1, run) for seed, run in one.runs.items()}, level)
            for q in made.all
        }
        for one in chosen
    }
    return SeedPlace(
        title=f"pass@1 = {numbers.fixed(level, 3)}",
        values={
            name: {title: {seed: v.value for seed, v in found.values.items()} for title, found in by.items()}
            for name, by in read.items()
        },
        steps={name: by[made.p1.title].step for name, by in read.items()},
        missed={name: by[made.p1.title].missed for name, by in read.items()},
        level=level,
    )


def _shared_ks(context: Context, runs: Sequence[SeriesSource], *, exact: bool) -> list[set[int]]:
    """Values of k of each run within the range of inference, where that is known."""
    rows = known(context.source.findings, "pass_at_k_exact" if exact else "pass_at_k")
    of_run = {str(name): {int(k) for k in own} for name, own in rows.groupby("series")["k"]}
    found = []
    for run in runs:
        ks = of_run.get(run.name, set())
        inference = set(context.inference_ks(run) or context.inference_ks(run, exact=exact))
        found.append(ks & (inference | {1}) if inference else ks)
    return found


def _course_beside(context: Context, runs: Sequence[SeriesSource], beside: _Beside) -> Quantity | None:
    """A measure without k that every run has values of; over the problems that list their modes where it has to be."""
    rows = context.source.findings[context.source.findings["measure"] == beside.measure]
    for scope in ("all", WITH_MODES) if len(rows) else ():
        courses = _courses(context, beside.measure, None, scope=scope)
        if all(run.name in courses for run in runs):
            if beside.at_base is not None:
                courses = {run.name: {run.base_step: beside.at_base, **courses[run.name]} for run in runs}
            title = beside.title if scope == "all" else f"{beside.title}, {scope_label(scope)}"
            return Quantity(title=title, unit=str(rows["unit"].iloc[0]), courses=courses)
    return None


def _courses(context: Context, measure: str, k: int | None, *, scope: str = "all") -> dict[str, dict[int, float]]:
    rows = known(context.source.findings, measure, scope=scope)
    rows = rows[rows["k"].isna()] if k is None else rows[rows["k"] == k]
    rows = rows.sort_values(["series", "step"], kind="stable")
    return {
        str(name): {int(step): float(value) for step, value in zip(own["step"], own["value"], strict=True)}
        for name, own in rows.groupby("series", sort=False)
    }
