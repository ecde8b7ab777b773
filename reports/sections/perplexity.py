"""Perplexity: whose responses the models find likely, [C] Fig 4."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.evidence.source import SeriesSource
from reports.records import Section

MEASURES = ("perplexity_own_under_base", "perplexity_base_samples", "perplexity_base_samples_flow")
_OWN, _BASES = MEASURES[:2]


def perplexity(context: Context) -> Section:
    """Own samples under the base, and base samples under the checkpoint."""
    return Section(
        section_id="perplexity",
        title="Perplexity",
        lead=tuple(context.named(series, _lead(context, series)) for series in context.series),
        blocks=context.blocks((*MEASURES, *context.others("perplexity", MEASURES))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    parts = []
    for measure, what in ((_OWN, "its own samples under the base"), (_BASES, "base samples under the checkpoint")):
        before, after = (context.level(series, measure, step) for step in (series.base_step, series.last_step))
        if before is not None and after is not None:
            path = f"{numbers.number(before, 'perplexity')} to {numbers.number(after, 'perplexity')}"
            parts.append(f"{what} {path}")
    if not parts:
        return "no perplexity has a value at base and last checkpoint; the reasons are below."
    return f"perplexity from base to last checkpoint: {numbers.listing(tuple(parts))}."
