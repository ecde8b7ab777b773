"""What a section builder gets: the source, the measures, and the few responses worth showing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from oversharp.diagnostics.measures.contract import Measure
from oversharp.reports import numbers
from oversharp.reports.evidence.comparable import comparable
from oversharp.reports.evidence.kernels import SeriesKernels
from oversharp.reports.evidence.problem_details import ProblemDetails
from oversharp.reports.evidence.source import SeriesSource, Source
from oversharp.reports.findings.figures import measure_block
from oversharp.reports.records import Block, Constant, Figure, Missing
from oversharp.reports.wording import Change, bound, known


def told_once(made: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks with data in the given order, then what is missing; equal reasons become one block."""
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
    """What section builders read: findings, installed measures, single problems, and kernels by series.

    ``allow``: series that were audited differently are to be compared all the same.
    """

    source: Source
    measures: Mapping[str, Measure]
    details: ProblemDetails = field(default_factory=ProblemDetails)
    kernels: Mapping[str, SeriesKernels] = field(default_factory=dict)
    allow: bool = False

    @property
    def series(self) -> tuple[SeriesSource, ...]:
        """The audited series, in the order that sets their colours."""
        return self.source.series

    @property
    def compared(self) -> Context:
        """The same for those series that may be compared."""
        return replace(self, source=replace(self.source, series=comparable(self.series)))

    def block(self, name: str) -> Figure | Constant | Missing:
        """The figure of measure ``name`` or the reason why there is none."""
        measure = self.measures.get(name)
        if measure is None:
            count = len(self.source.findings[self.source.findings["measure"] == name])
            why = (
                f"the store holds {numbers.plural(count, 'finding')} of it"
                if count
                else "the store holds no finding of it"
            )
            return Missing(title=name, why=(f"no measure of this name is installed; {why}",))
        return measure_block(self.source, measure)

    def blocks(self, names: Sequence[str]) -> tuple[Block, ...]:
        """Figures in the given order, then what is missing, equal reasons told once."""
        return told_once([self.block(name) for name in names])

    def others(self, section: str, named: Sequence[str]) -> tuple[str, ...]:
        """Measures that declare ``section`` and that no section names: those of outside packages."""
        return tuple(sorted(m.name for m in self.measures.values() if m.section == section and m.name not in named))

    def pass_change(self, series: SeriesSource, k: int, *, exact: bool = False) -> Change | None:
        """pass@k of base and last checkpoint with the paired difference, None if one of them is unknown."""
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
            low=None if difference is None else bound(difference["low"]),
            high=None if difference is None else bound(difference["high"]),
            n_problems=len(series.problem_ids),
        )

    def inference_ks(self, series: SeriesSource, *, exact: bool = False) -> tuple[int, ...]:
        """Values of k with a paired interval at the last checkpoint, ascending."""
        name = "pass_at_k_exact_delta" if exact else "pass_at_k_delta"
        rows = known(self.source.findings, name, series=series.name)
        rows = rows[(rows["step"] == series.last_step) & rows["low"].notna() & rows["high"].notna()]
        return tuple(sorted(int(k) for k in rows["k"].dropna().unique()))

    def known_ks(self, series: SeriesSource) -> tuple[int, ...]:
        """Values of k with a pass@k at base and last checkpoint, ascending."""
        rows = known(self.source.findings, "pass_at_k", series=series.name)
        base, last = (set(rows.loc[rows["step"] == s, "k"].dropna()) for s in (series.base_step, series.last_step))
        return tuple(sorted(int(k) for k in base & last))

    def level(self, series: SeriesSource, measure: str, step: int) -> float | None:
        """The value of a measure without k at ``step``."""
        row = self.source.value_at(measure, series.name, step)
        return None if row is None else float(row["value"])

    def ends(self, series: SeriesSource, measure: str) -> tuple[float, float] | None:
        """The values of a measure without k at base and last checkpoint, None if one is unknown."""
        base, last = (self.level(series, measure, step) for step in (series.base_step, series.last_step))
        return None if base is None or last is None else (base, last)

    def named(self, series: SeriesSource, sentence: str) -> str:
        """``sentence`` with the series in front where several are shown."""
        if len(self.series) > 1:
            return f"{series.name}: {sentence}"
        return sentence if sentence.startswith(("pass@", "k*")) else sentence[0].upper() + sentence[1:]


def problems_of_tasks(source: Source) -> str:
    """How many problems there are and of what: "64 problems of math".

    Samples of another tool that name no task stand under the name of their series, which is none.
    """
    tasks = sorted(
        {str(task) for task in source.problems["task"]} - {one.name for one in source.series if one.recorded}
    )
    named = f" of {numbers.listing(tuple(tasks))}" if tasks else ""
    return f"{numbers.plural(len(source.problems), 'problem')}{named}"
