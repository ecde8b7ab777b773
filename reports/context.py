"""Input of the section builders: source, measures, details of single problems, kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from oversharp.diagnostics.measures.contract import Measure
from oversharp.diagnostics.measures.contract import Section as MeasureSection
from oversharp.reports import numbers
from oversharp.reports.evidence.comparable import select_comparable
from oversharp.reports.evidence.kernels import SeriesKernels
from oversharp.reports.evidence.problem_details import ProblemDetails
from oversharp.reports.evidence.source import SeriesSource, Source
from oversharp.reports.findings.figures import measure_block
from oversharp.reports.records import Block, Constant, Figure, Missing
from oversharp.reports.wording import Change, float_or_none


def group_missing(made: Sequence[Block]) -> tuple[Block, ...]:
    """Return blocks with data in the given order, then one block per reason for the blocks without data."""
    figures = tuple(block for block in made if not isinstance(block, Missing))
    by_reason: dict[tuple[tuple[str, ...], str, str], list[str]] = {}
    for block in made:
        if isinstance(block, Missing):
            by_reason.setdefault((block.why, block.how, block.label), []).append(block.title)
    lacking = (
        Missing(title="; ".join(titles), why=why, how=how, label=label)
        for (why, how, label), titles in by_reason.items()
    )
    return (*figures, *lacking)


@dataclass(frozen=True, kw_only=True)
class Context:
    """Input of the section builders: findings, installed measures, single problems, and kernels by series.

    ``allow`` permits the comparison of series that were audited with different settings.
    """

    source: Source
    measures: Mapping[str, Measure]
    details: ProblemDetails = field(default_factory=ProblemDetails)
    kernels: Mapping[str, SeriesKernels] = field(default_factory=dict)
    allow: bool = False

    @property
    def series(self) -> tuple[SeriesSource, ...]:
        """Audited series. Their order determines their colours."""
        return self.source.series

    @property
    def comparable_context(self) -> Context:
        """Context with only the series that are comparable (``select_comparable``)."""
        return replace(self, source=replace(self.source, series=select_comparable(self.series)))

    def block(self, name: str) -> Figure | Constant | Missing:
        """Return the figure of the measure ``name``, or a block with the reason why there is none."""
        measure = self.measures.get(name)
        if measure is None:
            count = len(self.source.findings_of(name))
            why = (
                f"the store has {numbers.plural(count, 'finding')} for it"
                if count
                else "the store has no findings for it"
            )
            return Missing(title=name, why=(f"no measure with this name is installed; {why}",))
        return measure_block(self.source, measure)

    def blocks(self, names: Sequence[str]) -> tuple[Block, ...]:
        """Return the figures of these measures, then one block per reason for all measures without a figure."""
        return group_missing([self.block(name) for name in names])

    def in_section(self, section: MeasureSection, *, without: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the measures of a section, ordered by rank and name. ``without`` lists measures to omit."""
        measures = [m for m in self.measures.values() if m.section == section and m.name not in without]
        return tuple(measure.name for measure in sorted(measures, key=lambda measure: (measure.rank, measure.name)))

    def pass_change(self, series: SeriesSource, k: int, *, exact: bool = False) -> Change | None:
        """Return pass@k of base and last checkpoint and their paired difference; None if a value is unknown."""
        name = "pass_at_k_exact" if exact else "pass_at_k"
        before = self.source.value_at(name, series.name, series.base_step, k=k)
        after = self.source.value_at(name, series.name, series.last_step, k=k)
        if before is None or after is None or series.base_step == series.last_step:
            return None
        difference = self.source.value_at(f"{name}_delta", series.name, series.last_step, k=k)
        return Change(
            before=float(before["value"]),
            after=float(after["value"]),
            delta=float(after["value"] - before["value"]) if difference is None else float(difference["value"]),
            low=None if difference is None else float_or_none(difference["low"]),
            high=None if difference is None else float_or_none(difference["high"]),
            n_problems=len(series.problem_ids),
        )

    def inference_ks(self, series: SeriesSource, *, exact: bool = False) -> tuple[int, ...]:
        """Return the values of k that have a paired CI at the last checkpoint, ascending."""
        name = "pass_at_k_exact_delta" if exact else "pass_at_k_delta"
        rows = self.source.known_findings(name, series=series.name)
        rows = rows[(rows["step"] == series.last_step) & rows["low"].notna() & rows["high"].notna()]
        return tuple(sorted(int(k) for k in rows["k"].dropna().unique()))

    def known_ks(self, series: SeriesSource) -> tuple[int, ...]:
        """Return the values of k that have a pass@k at base and last checkpoint, ascending."""
        rows = self.source.known_findings("pass_at_k", series=series.name)
        base, last = (set(rows.loc[rows["step"] == s, "k"].dropna()) for s in (series.base_step, series.last_step))
        return tuple(sorted(int(k) for k in base & last))

    def level(self, series: SeriesSource, measure: str, step: int) -> float | None:
        """Return the value of a measure without k at ``step``, None if unknown."""
        row = self.source.value_at(measure, series.name, step)
        return None if row is None else float(row["value"])

    def ends(self, series: SeriesSource, measure: str) -> tuple[float, float] | None:
        """Return the values of a measure without k at base and last checkpoint; None if either is unknown."""
        base, last = (self.level(series, measure, step) for step in (series.base_step, series.last_step))
        return None if base is None or last is None else (base, last)

    def with_series_name(self, series: SeriesSource, sentence: str) -> str:
        """Return ``sentence``. If the report has several series, prefix it with the name of the series."""
        if len(self.series) > 1:
            return f"{series.name}: {sentence}"
        return sentence if sentence.startswith(("pass@", "k*")) else sentence[0].upper() + sentence[1:]


def problems_of_tasks(source: Source) -> str:
    """Return the number of problems and their tasks: "64 problems of math".

    The task of imported samples may be unknown. The store then has the name of their series as the task, which is
    omitted here.
    """
    tasks = sorted(
        {str(task) for task in source.problems["task"]}
        - {series.name for series in source.series if series.is_recorded}
    )
    named = f" of {numbers.listing(tuple(tasks))}" if tasks else ""
    return f"{numbers.plural(len(source.problems), 'problem')}{named}"
