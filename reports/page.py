"""Build the page record of a report: its sections in reading order, without HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from oversharp.diagnostics.measures.contract import Measure
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.store.load import Frames
from oversharp.reports import numbers
from oversharp.reports.citations import with_sources
from oversharp.reports.comparison.compare import compare
from oversharp.reports.comparison.over_seeds import over_seeds
from oversharp.reports.context import Context, problems_of_tasks
from oversharp.reports.decision.section import decision
from oversharp.reports.evidence.comparable import find_differences, select_comparable
from oversharp.reports.evidence.kernels import read_kernels
from oversharp.reports.evidence.problem_details import read_problem_details
from oversharp.reports.evidence.source import Source, read_source
from oversharp.reports.problems.section import problems, success
from oversharp.reports.published.section import published_section
from oversharp.reports.records import Block, Constant, Figure, Folded, Page, Section
from oversharp.reports.sections.coverage import coverage
from oversharp.reports.sections.headline import headline
from oversharp.reports.sections.health import health
from oversharp.reports.sections.kernel import kernel
from oversharp.reports.sections.measures import (
    dynamics,
    entropy,
    interference,
    modes,
    perplexity,
    strategy,
    trust_region,
)
from oversharp.reports.sections.method import method
from oversharp.reports.sections.tools import tools
from oversharp.reports.sections.training import training

#: Content of a figure, to detect duplicates: axis label, and panel, label and points of each line.
_Points = tuple[object, ...]
#: Functions that build the sections, in reading order: BRIEF is visible, later sections are folded. A function returns
#: None if its section does not apply, such as a comparison for a single series.
BRIEF: tuple[Callable[[Context], Section | None], ...] = (problems, tools, health)
SECTIONS: tuple[Callable[[Context], Section | None], ...] = (
    coverage,
    success,
    modes,
    strategy,
    entropy,
    interference,
    perplexity,
    trust_region,
    kernel,
    dynamics,
    training,
    over_seeds,
    compare,
    published_section,
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
    brief: bool = False,
) -> Page:
    """Build the page of ``store``. ``brief`` omits the sections on mechanisms and methods.

    Raises ``StoreError`` if the named ``series`` were audited with different settings, unless ``allow`` is set.
    """
    context = read_context(store, measures, store_name=store_name, store_link=store_link, series=series, brief=brief)
    if series is not None and not allow and (differences := find_differences(select_comparable(context.series))):
        raise StoreError(
            f"{store_name}: the series were audited with different settings and cannot be compared ("
            f"{'; '.join(difference.text for difference in differences)}); audit them again with equal settings, or "
            "pass --allow to compare them anyway"
        )
    return build_page(replace(context, allow=allow), brief=brief)


def read_context(
    store: Frames,
    measures: Sequence[Measure],
    *,
    store_name: str,
    store_link: str | None = None,
    series: tuple[str, ...] | None = None,
    brief: bool = False,
) -> Context:
    """Read the data of all sections, without gradient kernels if ``brief``.

    Raises ``StoreError`` if one of ``series`` has no audit.
    """
    source = read_source(store, store_name, series, store_link=store_link)
    return Context(
        source=source,
        measures={measure.name: measure for measure in measures},
        details=read_problem_details(store, source),
        kernels={} if brief else {member.name: read_kernels(store, member) for member in source.series},
    )


def page_figures(page: Page) -> tuple[Figure, ...]:
    """Return the figures of a page in reading order, including folded ones."""
    of_decision = () if page.decision is None else page.decision.figures
    of_sections = (block for section in (*page.brief, *page.sections) for block in section.blocks)
    return tuple(_figures([*of_decision, page.headline.figure, *of_sections]))


def _figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Folded):
            yield from _figures(block.blocks)


def build_page(context: Context, *, brief: bool = False) -> Page:
    """Build the page from its context, without access to the store."""
    opened = _build_sections(BRIEF, context)
    sections = without_twins((*opened, *(() if brief else _build_sections(SECTIONS, context))))
    return Page(
        title=f"Over-sharpening report: {numbers.listing(tuple(series.name for series in context.series))}",
        subtitle=_subtitle(context.source),
        headline=headline(context),
        sections=sections[len(opened) :],
        decision=decision(context),
        brief=sections[: len(opened)],
    )


def _build_sections(builders: Sequence[Callable[[Context], Section | None]], context: Context) -> tuple[Section, ...]:
    return tuple(with_sources(section) for build in builders if (section := build(context)) is not None)


def _subtitle(source: Source) -> str:
    n_series = numbers.plural(len(source.series), "series", "series")
    return f"{n_series} · {problems_of_tasks(source)} · from {source.store_name}"


def without_twins(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections without duplicate figures: figures with the points and unit of an earlier figure.

    Complementary shares (1 − y, such as kept and lost) are duplicates too. A sentence replaces a duplicate.
    """
    seen: dict[_Points, str] = {}
    return tuple(
        replace(section, blocks=tuple(_replace_twin(block, seen) for block in section.blocks)) for section in sections
    )


def _replace_twin(block: Block, seen: dict[_Points, str]) -> Block:
    if isinstance(block, Folded):
        return replace(block, blocks=tuple(_replace_twin(inner, seen) for inner in block.blocks))
    if not isinstance(block, Figure) or not any(line.x for panel in block.panels for line in panel.lines):
        return block
    points, opposite = _figure_points(block, opposite=False), _figure_points(block, opposite=True)
    same, other = seen.get(points), seen.get(opposite)
    if same is None and (other is None or block.y_range != (0.0, 1.0)):
        seen[points] = block.title
        return block
    same_points = f"those of «{same}»" if same is not None else f"1 minus those of «{other}»"
    return Constant(
        title=block.title,
        text=f"{block.caption} The values are {same_points}, so there is no second figure.",
        table=block.table,
    )


def _figure_points(figure: Figure, *, opposite: bool) -> _Points:
    def flip(y: float) -> float:
        return round(1.0 - y, 12) if opposite else round(y, 12)

    lines = tuple(
        (panel.title, line.label, line.x, tuple(map(flip, line.y))) for panel in figure.panels for line in panel.lines
    )
    return (figure.x_label, lines)
