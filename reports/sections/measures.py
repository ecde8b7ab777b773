"""Sections with a sentence per series and the figures of all measures that declare the section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from oversharp.diagnostics.measures.contract import Section as MeasureSection
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Constant, Section
from oversharp.reports.wording import FEW_PROBLEMS, WITH_MODES, float_or_none

ENTROPIES = {
    "answer_entropy": "answer entropy",
    "token_entropy": "token entropy",
    "sampled_token_entropy": "estimated token entropy",
    "mode_entropy_exact": "mode entropy",
}
PERPLEXITIES = {
    "perplexity_own_under_base": "its own samples under the base",
    "perplexity_base_samples": "base samples under the checkpoint",
}
CLIP_VIOLATIONS = ("clip_violations_panel", "clip_violations_training")
#: Significance level for the correlation between interference and the change of pass@k.
SIGNIFICANT = 0.05


def measure_section(
    context: Context,
    title: str,
    section: MeasureSection,
    lead: Callable[[Context, SeriesSource], str],
    *,
    caution: str = "",
) -> Section:
    """Build the section with the measures that declare ``section``. ``lead`` returns the sentence on a series."""
    leads = tuple(context.with_series_name(series, lead(context, series)) for series in context.series)
    return Section(
        section_id=section.replace("_", "-"),
        title=title,
        lead=(*leads, *((caution,) if caution else ())),
        blocks=context.blocks(context.in_section(section)),
    )


def entropy(context: Context) -> Section:
    """Build the section on entropies of answers and tokens.

    The verdict does not use them, because any kind of sharpening lowers entropies.
    """
    return measure_section(
        context,
        "Entropy",
        "entropy",
        _entropy_lead,
        caution="Every kind of sharpening lowers entropy, healthy or not. Interpret it together with coverage.",
    )


def _entropy_lead(context: Context, series: SeriesSource) -> str:
    parts: list[str] = []
    has_entropy = context.ends(series, "token_entropy") is not None
    for measure, name in ENTROPIES.items():
        if measure == "sampled_token_entropy" and has_entropy:  # its estimate adds nothing here
            continue
        if (ends := context.ends(series, measure)) is not None:
            path = f"{numbers.number(ends[0], 'nats')} to {numbers.number(ends[1], 'nats')} nats"
            parts.append(f"{name} from {path}" if not parts else f"{name} {path}")
    if not parts:
        return "no entropy is known at both the base and the last checkpoint; see the reasons below."
    return f"{numbers.listing(tuple(parts))}."


def interference(context: Context) -> Section:
    """Build the section on changes of the log-probability of the base's correct responses."""
    return measure_section(
        context,
        "Interference",
        "interference",
        _interference_lead,
        caution="A fall is a warning, not proof of over-sharpening: other wordings of the same solution can gain the "
        "probability that the panel's responses lost.",
    )


def _interference_lead(context: Context, series: SeriesSource) -> str:
    row = context.source.value_at("interference", series.name, series.last_step)
    if row is None:
        return "no panel was scored under base and last checkpoint; see the reasons below."
    text = f"correct responses of the base changed by {_signed_text(float(row['value']))} nats per response on average"
    middle = context.source.value_at("interference", series.name, series.last_step, scope="median")
    if middle is not None:
        text += f", those of the median problem by {_signed_text(float(middle['value']))}"
        low, high = float_or_none(middle["low"]), float_or_none(middle["high"])
        if low is not None and high is not None:
            text += f" ({numbers.NINETY_FIVE} CI {_signed_text(low)} to {_signed_text(high)})"
    return f"{text}, by the last checkpoint.{_correlation_sentence(context, series)}"


def _signed_text(value: float) -> str:
    return numbers.decimal(value, 2, signed=True)


def _correlation_sentence(context: Context, series: SeriesSource) -> str:
    """Return a sentence on the correlation of interference with the change of pass@k, at the largest k with a CI."""
    tested = context.source.known_findings("interference_correlation_p", series=series.name)
    tested = tested[tested["k"] <= max(1, series.n // 2)]
    if tested.empty:
        return ""
    row = tested.sort_values("k").iloc[-1]
    p = float(row["value"])
    is_not = "" if p <= SIGNIFICANT else "not "
    return (
        f" Over problems, this change is {is_not}significantly correlated with the change of pass@{int(row['k'])} "
        f"({numbers.p_text(p)})."
    )


def perplexity(context: Context) -> Section:
    """Build the section on perplexities of own samples under the base, and of base samples ([C], Figure 4)."""
    return measure_section(context, "Perplexity", "perplexity", _perplexity_lead)


def _perplexity_lead(context: Context, series: SeriesSource) -> str:
    parts = tuple(
        f"{what} {numbers.number(ends[0], 'perplexity')} to {numbers.number(ends[1], 'perplexity')}"
        for measure, what in PERPLEXITIES.items()
        if (ends := context.ends(series, measure)) is not None
    )
    if not parts:
        return "no perplexity has a value at base and last checkpoint; see the reasons below."
    return f"perplexity from base to last checkpoint: {numbers.listing(parts)}."


def trust_region(context: Context) -> Section:
    """Build the section on probability ratios of tokens outside 0.8 to 1.2 ([C], Figure 7).

    The tokens are those of the panel and of training batches.
    """
    return measure_section(
        context,
        "Trust region",
        "trust_region",
        _trust_region_lead,
        caution="Checkpoints are many updates apart, so these shares are larger than a trainer's clip fraction. "
        "Compare them only with each other.",
    )


def _trust_region_lead(context: Context, series: SeriesSource) -> str:
    panel, training = (context.level(series, measure, series.last_step) for measure in CLIP_VIOLATIONS)
    if panel is None:
        return "no panel was scored token by token at the last two checkpoints; see the reasons below."
    of_training = "" if training is None else f" and for {numbers.percent(training)} of the training batches' tokens"
    return (
        "between the last two checkpoints, the probability ratio is outside 0.8 to 1.2 for "
        f"{numbers.percent(panel)} of the panel's tokens{of_training}."
    )


def dynamics(context: Context) -> Section:
    """Build the section on gains by success of the base and by probability under the base."""
    return measure_section(context, "Learning dynamics", "dynamics", _dynamics_lead)


def _dynamics_lead(context: Context, series: SeriesSource) -> str:
    parts = []
    for measure, noun in (("winner_take_all", "success rates"), ("squeeze", "correct modes")):
        rows = context.source.known_findings(measure, scope=None, series=series.name)
        is_bin = (rows["step"] == series.last_step) & rows["scope"].str.startswith("base")
        rows = rows[is_bin & (rows["n"] >= FEW_PROBLEMS)].sort_values("value")
        if len(rows) > 1:
            most, least = rows.iloc[-1], rows.iloc[0]
            parts.append(
                f"{noun} gained most where {_bin(most['scope'])}, {numbers.points(most['value'])} points, and least "
                f"where {_bin(least['scope'])}, {numbers.points(least['value'])} points (groups with fewer than "
                f"{FEW_PROBLEMS} omitted)"
            )
    if not parts:
        return f"fewer than two groups by base success have {FEW_PROBLEMS} or more members; see the figures below."
    return f"by the last checkpoint {'; '.join(parts)}."


def _bin(scope: str) -> str:
    """Return a clause for a bin of the base's success or probability.

    >>> _bin("base 90-100%"), _bin("base 0"), _bin("base p 0.1-1")
    ('the base solved 90-100%', 'the base solved 0', 'the base probability is 0.1-1')
    """
    name = scope.removeprefix("base ")
    return f"the base probability is {name.removeprefix('p ')}" if name.startswith("p ") else f"the base solved {name}"


def modes(context: Context) -> Section:
    """Build the section on correct modes: the share that lost probability, and their effective number."""
    return measure_section(context, "Modes", "modes", _modes_lead)


def _modes_lead(context: Context, series: SeriesSource) -> str:
    fallen, tenfold, queries = (
        context.level(series, name, series.last_step)
        for name in ("modes_fallen", "modes_fallen_10x", "problems_over_sharpened")
    )
    if series.base_step == series.last_step:
        return "only the base was audited, so there is no change of modes."
    if tenfold is not None and fallen is not None and queries is not None:
        return (
            f"by the last checkpoint {numbers.percent(fallen)} of the correct modes are less likely than under the "
            f"base, {numbers.percent(tenfold)} more than tenfold; {numbers.percent(queries)} of the problems have at "
            "least one that fell."
        )
    partly = context.source.known_findings("modes_fallen", scope=WITH_MODES, series=series.name)
    scope = "" if partly.empty else " for all problems, only for those that list their modes"
    if (ends := context.ends(series, "effective_modes")) is not None:
        return (
            f"the effective number of modes went from {numbers.number(ends[0], 'modes')} to "
            f"{numbers.number(ends[1], 'modes')} per problem. Single modes were not scored exactly{scope}."
        )
    return "no measure of modes has a value; see the reasons below."


def strategy(context: Context) -> Section:
    """Build the section on strategies (by default, responses with code blocks or prose) and on ways of solving."""
    named = context.in_section("strategy")
    rows = context.source.known_findings("strategy_share", scope=None)
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
    """Return a sentence on the effective number of ways and on ways that fell significantly; None if unknown."""
    ends = context.ends(series, "effective_ways")
    fell = context.source.value_at("ways_fallen", series.name, series.last_step, scope="fell")
    if ends is None or fell is None:
        return None
    return context.with_series_name(
        series,
        f"the effective number of ways of solving went from {numbers.number(ends[0], 'ways')} to "
        f"{numbers.number(ends[1], 'ways')} per problem; {int(fell['value']):,} of {int(fell['n']):,} ways of "
        "single problems fell significantly by the last checkpoint.",
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
        return context.with_series_name(series, "no strategy share has a value at base and last checkpoint.")
    return context.with_series_name(series, f"share of samples from base to last: {numbers.listing(tuple(parts))}.")
