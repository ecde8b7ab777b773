"""The store as a page: what the report says, in the order it says it, without HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diagnostics.measures.contract import Measure
from diagnostics.records.errors import StoreError
from reports import numbers
from reports.citations import with_sources
from reports.comparison.compare import compare
from reports.comparison.over_seeds import over_seeds
from reports.context import Context
from reports.evidence.comparable import comparable, differences
from reports.evidence.kernels import read_kernels
from reports.evidence.problem_details import read_problem_details
from reports.evidence.source import Frames, Source, read_source
from reports.problems.section import problems
from reports.published.section import published
from reports.records import Page, Section
from reports.sections.coverage import coverage
from reports.sections.dynamics import dynamics
from reports.sections.entropy import entropy
from reports.sections.headline import headline
from reports.sections.health import health
from reports.sections.interference import interference
from reports.sections.kernel import kernel
from reports.sections.method import method
from reports.sections.modes import modes, strategy
from reports.sections.perplexity import perplexity
from reports.sections.training import training
from reports.sections.trust_region import trust_region

#: The report in reading order. A section that has nothing to be about (one series: no comparison) returns None.
SECTIONS: tuple[Callable[[Context], Section | None], ...] = (
    coverage,
    problems,
    modes,
    strategy,
    entropy,
    interference,
    perplexity,
    trust_region,
    kernel,
    dynamics,
    health,
    training,
    over_seeds,
    compare,
    published,
    method,
)


def load_page(
    store: Frames,
    measures: Sequence[Measure],
    *,
    store_name: str,
    store_link: str | None = None,
    series: tuple[str, ...] | None = None,
    allow: bool = False,
) -> Page:
    """Read ``store`` and say what is in it.

    Raises ``StoreError`` where the named ``series`` differ in more than their training, unless ``allow``.
    """
    source = read_source(store, store_name, series, store_link=store_link)
    if series is not None and not allow and (found := differences(comparable(source.series))):
        raise StoreError(
            f"{store_name}: the series were not audited alike and cannot be compared ("
            f"{'; '.join(difference.text for difference in found)}); audit them again with equal settings, "
            "or pass --allow to compare them all the same"
        )
    kernels = {one.name: read_kernels(store, one) for one in source.series}
    return build_page(
        Context(
            source=source,
            measures={m.name: m for m in measures},
            details=read_problem_details(store, source),
            kernels=kernels,
            allow=allow,
        )
    )


def build_page(context: Context) -> Page:
    """Pure: from what was read to what is said."""
    sections = tuple(with_sources(section) for build in SECTIONS if (section := build(context)) is not None)
    return Page(
        title=f"Over-sharpening report: {numbers.listing(tuple(series.name for series in context.series))}",
        subtitle=_subtitle(context.source),
        headline=headline(context),
        sections=sections,
    )


def _subtitle(source: Source) -> str:
    tasks = tuple(sorted({str(task) for task in source.problems["task"]}))
    return (
        f"{numbers.plural(len(source.series), 'series', 'series')} · "
        f"{numbers.plural(len(source.problems), 'problem')} of {numbers.listing(tasks)} · from {source.store_name}"
    )
