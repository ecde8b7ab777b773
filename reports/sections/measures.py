"""Sections that are the figures of a few measures with a sentence in front."""

from __future__ import annotations

from collections.abc import Callable

from oversharp.diagnostics.measures.contract import Section as MeasureSection
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Section
from oversharp.reports.wording import FEW_PROBLEMS, bound, known_findings

ENTROPIES = {
    "answer_entropy": "answer entropy",
    "token_entropy": "token entropy",
    "mode_entropy_exact": "mode entropy",
}
PERPLEXITIES = {
    "perplexity_own_under_base": "its own samples under the base",
    "perplexity_base_samples": "base samples under the checkpoint",
}
CLIP_VIOLATIONS = ("clip_violations_panel", "clip_violations_training")
#: Below this p-value the link between interference and pass@k is called one.
SIGNIFICANT = 0.05


def measure_section(
    context: Context,
    title: str,
    section: MeasureSection,
    lead: Callable[[Context, SeriesSource], str],
    *,
    caution: str = "",
) -> Section:
    """Make the report's section of the measures that declare ``section``; ``lead`` is the sentence of each series."""
    leads = tuple(context.with_series_name(series, lead(context, series)) for series in context.series)
    return Section(
        section_id=section.replace("_", "-"),
        title=title,
        lead=(*leads, *((caution,) if caution else ())),
        blocks=context.blocks(context.in_section(section)),
    )


def entropy(context: Context) -> Section:
    """Entropies of answers and tokens: description, never the verdict, since healthy sharpening lowers them too."""
    return measure_section(
        context,
        "Entropy",
        "entropy",
        _entropy_lead,
        caution="Entropy falls under every kind of sharpening, healthy or not: read it beside coverage, never alone.",
    )


def _entropy_lead(context: Context, series: SeriesSource) -> str:
    parts: list[str] = []
    for measure, name in ENTROPIES.items():
        if (ends := context.ends(series, measure)) is not None:
            path = f"{numbers.number(ends[0], 'nats')} to {numbers.number(ends[1], 'nats')} nats"
            parts.append(f"{name} from {path}" if not parts else f"{name} {path}")
    if not parts:
        return "no entropy has a value at base and last checkpoint; the reasons are below."
    return f"{numbers.listing(tuple(parts))}."


def interference(context: Context) -> Section:
    """How the log-probability of the base's correct responses moved, and whether pass@k moved with it."""
    return measure_section(
        context,
        "Interference",
        "interference",
        _interference_lead,
        caution="A fall here is a warning, no proof of over-sharpening: the panel's wordings can lose probability to "
        "other wordings of the same solution.",
    )


def _interference_lead(context: Context, series: SeriesSource) -> str:
    row = context.source.value_at("interference", series.name, series.last_step)
    if row is None:
        return "no panel was scored under base and last checkpoint; the reasons are below."
    text = f"correct responses of the base changed by {_signed(float(row['value']))} nats per response on average"
    middle = context.source.value_at("interference", series.name, series.last_step, scope="median")
    if middle is not None:
        text += f", those of the median problem by {_signed(float(middle['value']))}"
        low, high = bound(middle["low"]), bound(middle["high"])
        if low is not None and high is not None:
            text += f" ({numbers.NINETY_FIVE} interval {_signed(low)} to {_signed(high)})"
    return f"{text}, by the last checkpoint.{_link(context, series)}"


def _signed(value: float) -> str:
    return numbers.decimal(value, 2, signed=True)


def _link(context: Context, series: SeriesSource) -> str:
    """Whether problems that interference hit also lost pass@k, at the largest k that still bears inference."""
    tested = known_findings(context.source.findings, "interference_correlation_p", series=series.name)
    tested = tested[tested["k"] <= max(1, series.n // 2)]
    if tested.empty:
        return ""
    row = tested.sort_values("k").iloc[-1]
    p = float(row["value"])
    p_text = numbers.p_text(p)
    if p <= SIGNIFICANT:
        return f" The problems it hit are those that changed in pass@{int(row['k'])} ({p_text})."
    return f" Whether the problems it hit are those that changed in pass@{int(row['k'])} cannot be told ({p_text})."


def perplexity(context: Context) -> Section:
    """Own samples under the base, and base samples under the checkpoint, [C] Fig 4."""
    return measure_section(context, "Perplexity", "perplexity", _perplexity_lead)


def _perplexity_lead(context: Context, series: SeriesSource) -> str:
    parts = tuple(
        f"{what} {numbers.number(ends[0], 'perplexity')} to {numbers.number(ends[1], 'perplexity')}"
        for measure, what in PERPLEXITIES.items()
        if (ends := context.ends(series, measure)) is not None
    )
    if not parts:
        return "no perplexity has a value at base and last checkpoint; the reasons are below."
    return f"perplexity from base to last checkpoint: {numbers.listing(parts)}."


def trust_region(context: Context) -> Section:
    """Token ratios outside 0.8 to 1.2 on the panel, beside those on the training batches, [C] Fig 7."""
    return measure_section(
        context,
        "Trust region",
        "trust_region",
        _trust_region_lead,
        caution="Checkpoints lie many updates apart, so these shares are larger than a trainer's clip fraction; they "
        "compare with each other.",
    )


def _trust_region_lead(context: Context, series: SeriesSource) -> str:
    panel, training = (context.level(series, measure, series.last_step) for measure in CLIP_VIOLATIONS)
    if panel is None:
        return "no panel was scored token by token at the last two checkpoints; the reasons are below."
    text = (
        f"between the last two checkpoints the ratio of {numbers.percent(panel)} of the panel's tokens left the range "
        "from 0.8 to 1.2"
    )
    if training is not None:
        text += f", of the training batches {numbers.percent(training)}"
    return f"{text}."


def dynamics(context: Context) -> Section:
    """Gains by what the base could do already, and the mass they came from."""
    return measure_section(context, "Learning dynamics", "dynamics", _dynamics_lead)


def _dynamics_lead(context: Context, series: SeriesSource) -> str:
    parts = []
    for measure, noun in (("winner_take_all", "success rates"), ("squeeze", "correct modes")):
        rows = known_findings(context.source.findings, measure, scope=None, series=series.name)
        told = (rows["step"] == series.last_step) & rows["scope"].str.startswith("base") & (rows["n"] >= FEW_PROBLEMS)
        rows = rows[told].sort_values("value")
        if len(rows) > 1:
            most, least = rows.iloc[-1], rows.iloc[0]
            parts.append(
                f"{noun} gained most where {_bin(most['scope'])}, {numbers.points(most['value'])} points, and least "
                f"where {_bin(least['scope'])}, {numbers.points(least['value'])} points (groups of fewer than "
                f"{FEW_PROBLEMS} left aside)"
            )
    if not parts:
        return f"no two groups by base success hold {FEW_PROBLEMS} or more; what there is stands below."
    return f"by the last checkpoint {'; '.join(parts)}."


def _bin(scope: str) -> str:
    """A bin in words.

    >>> _bin("base 90-100%"), _bin("base 0"), _bin("base p 0.1-1")
    ('the base solved 90-100%', 'the base solved 0', 'the base gave them 0.1-1')
    """
    name = scope.removeprefix("base ")
    return f"the base gave them {name.removeprefix('p ')}" if name.startswith("p ") else f"the base solved {name}"
