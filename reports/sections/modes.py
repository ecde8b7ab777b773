"""Modes: the different correct ways to answer, and which of them training made rare."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Constant, Section
from oversharp.reports.sections.measures import measure_section
from oversharp.reports.wording import WITH_MODES, known_findings


def modes(context: Context) -> Section:
    """Which share of the correct modes lost probability, and how many are left."""
    return measure_section(context, "Modes", "modes", _lead)


def _lead(context: Context, series: SeriesSource) -> str:
    fallen, tenfold, queries = (
        context.level(series, name, series.last_step)
        for name in ("modes_fallen", "modes_fallen_10x", "problems_over_sharpened")
    )
    if series.base_step == series.last_step:
        return "only the base was audited: no mode can have fallen."
    if tenfold is not None and fallen is not None and queries is not None:
        return (
            f"by the last checkpoint {numbers.percent(fallen)} of the correct modes are less likely than under the "
            f"base, {numbers.percent(tenfold)} more than tenfold; {numbers.percent(queries)} of the problems have at "
            "least one that fell."
        )
    partly = known_findings(context.source.findings, "modes_fallen", scope=WITH_MODES, series=series.name)
    but = "" if partly.empty else " for all problems, only for those that list their modes"
    if (ends := context.ends(series, "effective_modes")) is not None:
        return (
            f"the effective number of modes went from {numbers.number(ends[0], 'modes')} to "
            f"{numbers.number(ends[1], 'modes')} per problem; single modes were not scored exactly{but}."
        )
    return "no measure of modes has a value here; the reasons are below."


def strategy(context: Context) -> Section:
    """How the responses go about it: by default code blocks against prose; and the ways that are read in them."""
    named = context.in_section("strategy")
    findings = context.source.findings
    rows = findings[(findings["measure"] == "strategy_share") & findings["value"].notna()]
    if not rows.empty and (rows.loc[rows["scope"] == "code", "value"] == 0.0).all():
        patterns = tuple(sorted({str(series.settings["strategy_regex"]) for series in context.series}))
        lead: tuple[str, ...] = ()
        text = f"No response matched the strategy pattern {numbers.listing(patterns)} at any checkpoint."
        title = context.measures["strategy_share"].title
        blocks = tuple(
            replace(block, text=text) if isinstance(block, Constant) and block.title == title else block
            for block in context.blocks(named)
        )
    else:
        lead = tuple(_strategy_lead(context, series, rows) for series in context.series)
        blocks = context.blocks(named)
    ways = tuple(filter(None, (_ways_lead(context, series) for series in context.series)))
    return Section(section_id="strategy", title="Strategy", lead=(*lead, *ways), blocks=blocks)


def _ways_lead(context: Context, series: SeriesSource) -> str | None:
    """How many ways there were and are, and how many surely fell; None where that is not known."""
    ends = context.ends(series, "effective_ways")
    fell = context.source.value_at("ways_fallen", series.name, series.last_step, scope="fell")
    if ends is None or fell is None:
        return None
    return context.with_series_name(
        series,
        f"the effective number of ways of solving went from {numbers.number(ends[0], 'ways')} to "
        f"{numbers.number(ends[1], 'ways')} per problem; of {int(fell['n']):,} ways of single problems "
        f"{int(fell['value']):,} surely fell by the last checkpoint.",
    )


def _strategy_lead(context: Context, series: SeriesSource, rows: pd.DataFrame) -> str:
    own = rows[rows["series"] == series.name]
    parts = []
    for scope in sorted({str(scope) for scope in own["scope"]}):
        shares = own[own["scope"] == scope].set_index("step")["value"]
        if series.base_step in shares.index and series.last_step in shares.index:
            name = "matching responses" if scope == "all" else scope
            start, end = numbers.percent(shares[series.base_step]), numbers.percent(shares[series.last_step])
            parts.append(f"{name} {start} to {end}")
    if not parts:
        return context.with_series_name(series, "no strategy was counted.")
    return context.with_series_name(series, f"share of samples from base to last: {numbers.listing(tuple(parts))}.")
