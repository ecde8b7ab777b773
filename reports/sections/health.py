"""Sample health: truncated and unparsed responses look like lost modes, so their rates stand beside the findings."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.records import Section
from reports.source import SeriesSource

MEASURES = ("truncation_rate", "parse_failure_rate", "timeout_rate", "response_length")
_RATES = {
    "truncation_rate": "truncated",
    "parse_failure_rate": "without a parseable answer",
    "timeout_rate": "timed out",
}
#: A rate that moved by more than this can by itself look like a change of coverage.
NOTABLE = 0.02


def health(context: Context) -> Section:
    return Section(
        section_id="health",
        title="Sample health",
        lead=tuple(context.named(series, _lead(context, series)) for series in context.series),
        blocks=context.blocks((*MEASURES, *context.others("health", MEASURES))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    parts, moved = [], []
    for measure, name in _RATES.items():
        before, after = (context.level(series, measure, step) for step in (series.base_step, series.last_step))
        if before is None or after is None:
            continue
        parts.append(f"{name} {numbers.percent(before)} to {numbers.percent(after)}")
        if abs(after - before) > NOTABLE:
            moved.append(name)
    if not parts:
        return "no rate has a value at base and last checkpoint; the reasons are below."
    text = f"responses from base to last checkpoint: {numbers.listing(tuple(parts))}."
    if moved:
        return f"{text} The share of responses {numbers.listing(tuple(moved))} changed enough to matter for pass@k."
    return f"{text} None of these moved by more than {numbers.fixed(100 * NOTABLE, 0)} points."
