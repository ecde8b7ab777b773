"""Compare objectives over training seeds, which turns differences between series into ones between methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from oversharp.diagnostics.statistics.over_seeds import LEAST_SEEDS, SeedMean, paired_over_seeds
from oversharp.reports import numbers
from oversharp.reports.comparison.seed_tables import (
    difference_table,
    matched_table,
    mean_table,
    means_figure,
    seed_table,
)
from oversharp.reports.comparison.seeds import (
    Quantities,
    Quantity,
    SeededObjective,
    SeedPlace,
    objectives,
    places,
    quantities,
)
from oversharp.reports.context import Context
from oversharp.reports.evidence.comparable import find_differences
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS, Display, display_of
from oversharp.reports.records import Block, Missing, Section

TITLE = "Objectives over seeds"
LIMITS = (
    "CIs in this section are Student's t over training seeds: they cover the variation between runs of the same "
    f"objective, on these problems and from this base. They need at least {LEAST_SEEDS} seeds: fewer runs may all miss "
    "a collapse that happens in one run of four."
)


def over_seeds(context: Context) -> Section | None:
    """Return the section; None unless two series have a seed in their name and were audited with equal settings."""
    context = context.comparable_context
    chosen = objectives(context.series)
    if not chosen or (find_differences(context.series) and not context.allow):
        return None
    made = quantities(context, chosen)
    lead = (_who(chosen), _verdicts(chosen))
    if made is None:
        missing = Missing(title="Means over seeds", why=("the series share no pass@1",))
        return Section(section_id="seeds", title=TITLE, lead=lead, blocks=(missing,))
    compared = places(chosen, made)
    return Section(
        section_id="seeds",
        title=TITLE,
        lead=(*lead, *_headline(chosen, made, compared), *_left_out(context, chosen), LIMITS),
        blocks=_blocks(context, chosen, made, compared),
    )


def _who(chosen: Sequence[SeededObjective]) -> str:
    parts = tuple(
        f"{objective.name} with {numbers.plural(len(objective.runs), 'seed')} ({', '.join(map(str, objective.runs))})"
        for objective in chosen
    )
    bases = {run.base_id for run in _runs(chosen)}
    start = "all from one base" if len(bases) == 1 else "from different bases, so that not only the objectives differ"
    return f"{numbers.listing(parts)}, {start}."


def _verdicts(chosen: Sequence[SeededObjective]) -> str:
    parts = []
    for objective in chosen:
        titles = Counter("no verdict" if run.verdict is None else run.verdict.title for run in objective.runs.values())
        counts = tuple(f"{title} {n} of {len(objective.runs)}" for title, n in sorted(titles.items(), key=_most_first))
        parts.append(f"{objective.name}: {', '.join(counts)}")
    return f"Verdicts by seed: {'; '.join(parts)}."


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return (-counted[1], counted[0])


def _runs(chosen: Sequence[SeededObjective]) -> list[SeriesSource]:
    return [run for objective in chosen for run in objective.runs.values()]


def _headline(chosen: Sequence[SeededObjective], made: Quantities, compared: Sequence[SeedPlace]) -> tuple[str, ...]:
    """Return pass@k of the objectives at the highest pass@1 that every seed reaches, and their differences."""
    full = [place for place in compared if place.level is not None and not any(place.missed.values())]
    if not full or not made.pk:
        return ("The seeds share no range of pass@1, so they cannot be compared at matched pass@1.",) if made.pk else ()
    place, most = full[-1], made.pk[-1]
    display = display_of(most.unit, signed=False)
    parts = tuple(
        f"{_text(display, most.mean(place.values[objective.name][most.title]))} for {objective.name}"
        for objective in chosen
    )
    kind = "exact " if made.exact else ""
    first = f"At matched {place.title}, which every seed reaches, {kind}{most.title} is {numbers.listing(parts)}."
    return (first, *(_difference_sentence(chosen[0], objective, most, place) for objective in chosen[1:]))


def _text(display: Display, over: SeedMean) -> str:
    return display.cell(over.mean, over.low, over.high).text


def _difference_sentence(first: SeededObjective, second: SeededObjective, quantity: Quantity, place: SeedPlace) -> str:
    over = paired_over_seeds(place.values[first.name][quantity.title], place.values[second.name][quantity.title])
    start = f"There {second.name} − {first.name}, paired by seed, is "
    if over.mean is None or over.low is None or over.high is None:
        value = "unknown" if over.mean is None else f"{numbers.points(over.mean)} points"
        return f"{start}{value}, without a CI: {over.why}."
    reading = "" if over.low > 0 or over.high < 0 else ": no significant difference over these seeds"
    return f"{start}{_text(POINTS, over)} points over {numbers.plural(over.n, 'seed')}{reading}."


def _left_out(context: Context, chosen: Sequence[SeededObjective]) -> tuple[str, ...]:
    """Return notes on series without a seed, and on seeds that some objectives lack, perhaps because runs failed."""
    names = {run.name for run in _runs(chosen)}
    others = tuple(series.name for series in context.series if series.name not in names)
    unnamed = (f"Not in this section, because the name has no seed: {numbers.listing(others)}.",) if others else ()
    seeds = {seed for objective in chosen for seed in objective.runs}
    lacking = [(objective.name, sorted(seeds - set(objective.runs))) for objective in chosen]
    return (
        *unnamed,
        *(
            f"{name} lacks {numbers.plural(len(missing), 'seed')} that others have ({', '.join(map(str, missing))}): "
            "if that run failed, the means omit a failure."
            for name, missing in lacking
            if missing
        ),
    )


def _blocks(
    context: Context, chosen: Sequence[SeededObjective], made: Quantities, compared: Sequence[SeedPlace]
) -> tuple[Block, ...]:
    matched = [place for place in compared if place.level is not None]
    blocks: list[Block] = [mean_table(chosen, made, place) for place in compared if place.level is None]
    if matched:
        blocks.append(matched_table(chosen, made, matched))
    if len(chosen) > 1 and compared:
        full = [place for place in matched if not any(place.missed.values())]
        shown = [place for place in compared if place.level is None] + full[-1:]
        blocks.append(difference_table(chosen, made, shown))
    blocks.append(means_figure(context, chosen, made))
    blocks.append(seed_table(chosen, made, compared))
    return tuple(blocks)
