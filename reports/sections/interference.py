"""Interference: what training did to correct responses that the base could give."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.evidence.source import SeriesSource
from reports.records import Section
from reports.wording import bound, known

MEASURES = (
    "interference",
    "interference_step",
    "interference_magnitude",
    "interference_magnitude_step",
    "interference_correlation",
    "interference_correlation_p",
    "panel_probability_ratio",
)
#: Below this p-value the link between interference and pass@k is called one.
SIGNIFICANT = 0.05
_CAUTION = (
    "A fall here is a warning, no proof of over-sharpening: the panel's wordings can lose probability to other "
    "wordings of the same solution."
)


def interference(context: Context) -> Section:
    """How the log-probability of the base's correct responses moved, and whether pass@k moved with it."""
    return Section(
        section_id="interference",
        title="Interference",
        lead=(*(context.named(series, _lead(context, series)) for series in context.series), _CAUTION),
        blocks=context.blocks((*MEASURES, *context.others("interference", MEASURES))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    row = context.source.value_at("interference", series.name, series.last_step)
    if row is None:
        return "no panel was scored under base and last checkpoint; the reasons are below."
    low, high = bound(row["low"]), bound(row["high"])
    value = float(row["value"])
    amount = f"{numbers.fixed(abs(value), 2)} nats per response"
    within = (
        "no interval"
        if low is None or high is None
        else (
            f"{numbers.NINETY_FIVE} interval {numbers.fixed(low, 2, signed=True)} to "
            f"{numbers.fixed(high, 2, signed=True)}"
        )
    )
    if low is not None and high is not None and high < 0:
        text = f"correct responses of the base lost {amount} by the last checkpoint ({within})."
    elif low is not None and high is not None and low > 0:
        text = f"correct responses of the base gained {amount} by the last checkpoint ({within})."
    else:
        change = f"{numbers.fixed(value, 2, signed=True)} nats per response"
        text = f"correct responses of the base changed by {change} by the last checkpoint ({within})."
    return f"{text}{_link(context, series)}"


def _link(context: Context, series: SeriesSource) -> str:
    """Whether problems that interference hit also lost pass@k, at the largest k that still bears inference."""
    tested = known(context.source.findings, "interference_correlation_p", series=series.name)
    tested = tested[tested["k"] <= max(1, series.n // 2)]
    if tested.empty:
        return ""
    row = tested.sort_values("k").iloc[-1]
    p = float(row["value"])
    p_text = numbers.p_text(p)
    if p <= SIGNIFICANT:
        return f" The problems it hit are those that changed in pass@{int(row['k'])} ({p_text})."
    return f" Whether the problems it hit are those that changed in pass@{int(row['k'])} cannot be told ({p_text})."
