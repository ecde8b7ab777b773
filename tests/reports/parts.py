"""Parts of a page by name, and contexts with other contents, for the tests of reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oversharp.diagnostics.records.types import AuditKey, SamplingSettings
from oversharp.reports.context import Context
from oversharp.reports.records import Folded, Page, Section, Table

#: Samples of a problem in the small store, and how they were drawn.
N = 8
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=16, seed=7)


def family(series: str) -> str:
    """Whose numbers a series has: ``iac-seed-2`` those of ``iac``."""
    return series.partition("-")[0]


def audit_key(series: str, **changes: Any) -> AuditKey:
    """The key of the audit of a series in the small store."""
    key = AuditKey(
        audit_id=f"audit-{series}", series=series, settings_id=SETTINGS.settings_id, n=N, n_base=N, entropy_samples=3,
        panel=0, panel_settings_id=SETTINGS.settings_id, kernel_problems=0, kernel_responses=0, ks=(1, 4),
        strategy_regex="```",
    )  # fmt: skip
    return replace(key, **changes)


def section(page: Page, name: str) -> Section:
    (found,) = [one for one in (*page.brief, *page.sections) if one.section_id == name]
    return found


def blocks(section: Section, kind: type[Any] = object) -> list[Any]:
    """The blocks of one kind, folded ones last."""
    inside = [inner for block in section.blocks if isinstance(block, Folded) for inner in block.blocks]
    return [block for block in (*section.blocks, *inside) if isinstance(block, kind)]


def block(section: Section, title: str, kind: type[Any] = object) -> Any:
    """The first block of that kind whose title begins with ``title``."""
    return next(block for block in blocks(section, kind) if block.title.startswith(title))


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def with_source(context: Context, **changes: Any) -> Context:
    """The context with ``changes`` of what was read from the store."""
    return replace(context, source=replace(context.source, **changes))


def with_series(context: Context, number: int, **changes: Any) -> Context:
    """The context with ``changes`` of the series of that number."""
    series = list(context.source.series)
    series[number] = replace(series[number], **changes)
    return with_source(context, series=tuple(series))
