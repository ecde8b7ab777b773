"""Modes: the different correct ways to answer, and which of them training made rare."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.records import Section
from reports.source import SeriesSource

MEASURES = (
    "modes_fallen_10x",
    "mode_share",
    "effective_modes",
    "modes_fallen",
    "mass_lost",
    "queries_over_sharpened",
)
STRATEGY = ("strategy_share",)


def modes(context: Context) -> Section:
    return Section(
        section_id="modes",
        title="Modes",
        lead=tuple(context.named(series, _lead(context, series)) for series in context.series),
        blocks=context.blocks((*MEASURES, *context.others("modes", (*MEASURES, *STRATEGY)))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    fallen, tenfold, queries = (
        context.level(series, name, series.last_step)
        for name in ("modes_fallen", "modes_fallen_10x", "queries_over_sharpened")
    )
    if series.base_step == series.last_step:
        return "only the base was audited: no mode can have fallen."
    if tenfold is not None and fallen is not None and queries is not None:
        return (
            f"by the last checkpoint {numbers.percent(fallen)} of the correct modes are less likely than under the "
            f"base, {numbers.percent(tenfold)} more than tenfold; {numbers.percent(queries)} of the problems have at "
            "least one that fell."
        )
    before, after = (context.level(series, "effective_modes", s) for s in (series.base_step, series.last_step))
    if before is not None and after is not None:
        return (
            f"the effective number of modes went from {numbers.number(before, 'modes')} to "
            f"{numbers.number(after, 'modes')} per problem; single modes were not scored exactly."
        )
    return "no measure of modes has a value here; the reasons are below."


def strategy(context: Context) -> Section:
    """How the responses go about it: by default code blocks against prose."""
    block_lead = []
    for series in context.series:
        findings = context.source.findings
        rows = findings[
            (findings["measure"] == "strategy_share") & (findings["series"] == series.name) & findings["value"].notna()
        ]
        parts = []
        for scope in sorted({str(scope) for scope in rows["scope"]}):
            own = rows[rows["scope"] == scope].set_index("step")["value"]
            if series.base_step in own.index and series.last_step in own.index:
                name = "matching responses" if scope == "all" else scope
                start, end = numbers.percent(own[series.base_step]), numbers.percent(own[series.last_step])
                parts.append(f"{name} {start} to {end}")
        text = f"share of samples from base to last: {numbers.listing(tuple(parts))}." if parts else ""
        block_lead.append(context.named(series, text or "no strategy was counted."))
    return Section(section_id="strategy", title="Strategy", lead=tuple(block_lead), blocks=context.blocks(STRATEGY))
