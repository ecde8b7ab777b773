"""Trust region: how many token probabilities left the clip range between two checkpoints, [C] Fig 7."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.evidence.source import SeriesSource
from reports.records import Section

MEASURES = ("clip_violations_panel", "clip_violations_training")
_CAUTION = (
    "Checkpoints lie many updates apart, so these shares are larger than a trainer's clip fraction; they compare with "
    "each other."
)


def trust_region(context: Context) -> Section:
    """Ratios outside 0.8 to 1.2 on the panel, beside those on the training batches."""
    return Section(
        section_id="trust-region",
        title="Trust region",
        lead=(*(context.named(series, _lead(context, series)) for series in context.series), _CAUTION),
        blocks=context.blocks((*MEASURES, *context.others("trust_region", MEASURES))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    panel, training = (context.level(series, measure, series.last_step) for measure in MEASURES)
    if panel is None:
        return "no panel was scored token by token at the last two checkpoints; the reasons are below."
    text = (
        f"between the last two checkpoints the ratio of {numbers.percent(panel)} of the panel's tokens left the range "
        "from 0.8 to 1.2"
    )
    if training is not None:
        text += f", of the training batches {numbers.percent(training)}"
    return f"{text}."
