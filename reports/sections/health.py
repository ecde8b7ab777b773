"""Sample health: truncated and unparsed responses look like lost modes, so their rates stand beside the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oversharp.diagnostics.verdict.words.caveats import NOTABLE_RISE
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Block, Folded, Missing, Section
from oversharp.reports.sections.disagreements import disagreement_tables

_RATES = {
    "truncation_rate": "truncated",
    "parse_failure_rate": "without a parseable answer",
    "ambiguous_rate": "without a single answer",
    "timeout_rate": "timed out",
}
_NEVER = {
    "truncation_rate": "was truncated",
    "parse_failure_rate": "lacked a parseable answer",
    "ambiguous_rate": "hedged its answer",
    "timeout_rate": "timed out",
}


def health(context: Context) -> Section:
    """Rates of responses that were cut, unparsed or ungraded; those that are zero throughout are told once."""
    never = tuple(measure for measure in _RATES if _is_zero_throughout(context, measure))
    lead = [context.with_series_name(series, _lead(context, series, never)) for series in context.series]
    if len(never) == len(_RATES):
        lead = []
    if never:
        words = tuple(_NEVER[measure] for measure in never)
        lead.append(f"No response of any checkpoint {numbers.listing(words, last='or')}.")
    return Section(
        section_id="health",
        title="Sample health",
        short="Health",
        lead=tuple(lead),
        blocks=(
            *(block for series in context.series for block in _of_import(series)),
            *disagreement_tables(context.source),
            *_folded(context.blocks(context.in_section("health"))),
        ),
    )


def _folded(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The lead says what moved; its figures are for who wants to see them. What is missing stays in the open."""
    drawn = tuple(block for block in blocks if not isinstance(block, Missing))
    lacking = tuple(block for block in blocks if isinstance(block, Missing))
    if not drawn:
        return lacking
    titles = numbers.listing(tuple(block.title for block in drawn))
    return (Folded(title="Over training", summary=titles, blocks=drawn), *lacking)


def _of_import(series: SeriesSource) -> Iterator[Missing]:
    """What is doubtful of the grades of another tool, and the records of its files that are in no number here."""
    doubts = series.provenance.get("doubts")
    if isinstance(doubts, Sequence) and doubts:
        yield Missing(title=f"Doubtful grades of {series.name}", why=tuple(map(str, doubts)), label="")
    if series.unusable:
        told = tuple(f"{numbers.plural(n, 'record')}: {why}" for why, n in series.unusable.items())
        yield Missing(title=f"Records that the import of {series.name} left out", why=told, label="")


def _is_zero_throughout(context: Context, measure: str) -> bool:
    findings = context.source.findings
    rows = findings[(findings["measure"] == measure) & (findings["scope"] == "all")]
    return not rows.empty and bool((rows["value"] == 0.0).all())


def _lead(context: Context, series: SeriesSource, never: tuple[str, ...]) -> str:
    parts, moved = [], []
    for measure, name in _RATES.items():
        if measure in never:
            continue
        if (ends := context.ends(series, measure)) is None:
            continue
        before, after = ends
        parts.append(f"{name} {numbers.percent(before)} to {numbers.percent(after)}")
        if abs(after - before) > NOTABLE_RISE:
            moved.append(name)
    if not parts:
        return "no rate has a value at base and last checkpoint; the reasons are below."
    text = f"responses from base to last checkpoint: {numbers.listing(tuple(parts))}."
    least = numbers.plural(round(100 * NOTABLE_RISE), "point")
    if moved:
        return (
            f"{text} The share of responses {numbers.listing(tuple(moved))} changed by more than {least}: a change of "
            "pass@k may come from that."
        )
    them = "It did not move" if len(parts) == 1 else "None of these moved"
    return f"{text} {them} by more than {least}."
