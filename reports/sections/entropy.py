"""Entropy of answers and tokens: description, never the verdict, since healthy sharpening lowers it too."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.evidence.source import SeriesSource
from reports.records import Section

MEASURES = (
    "answer_entropy",
    "token_entropy",
    "token_entropy_by_position",
    "high_entropy_tokens",
    "mode_entropy_exact",
    "answer_simpson",
)
_NAMES = {"answer_entropy": "answer entropy", "token_entropy": "token entropy", "mode_entropy_exact": "mode entropy"}


def entropy(context: Context) -> Section:
    """Entropies from base to last checkpoint, with the caution that they need."""
    caution = "Entropy falls under every kind of sharpening, healthy or not: read it beside coverage, never alone."
    return Section(
        section_id="entropy",
        title="Entropy",
        lead=(*(context.named(series, _lead(context, series)) for series in context.series), caution),
        blocks=context.blocks((*MEASURES, *context.others("entropy", MEASURES))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    parts: list[str] = []
    for measure, name in _NAMES.items():
        before, after = (context.level(series, measure, step) for step in (series.base_step, series.last_step))
        if before is not None and after is not None:
            path = f"{numbers.number(before, 'nats')} to {numbers.number(after, 'nats')} nats"
            parts.append(f"{name} from {path}" if not parts else f"{name} {path}")
    if not parts:
        return "no entropy has a value at base and last checkpoint; the reasons are below."
    return f"{numbers.listing(tuple(parts))}."
