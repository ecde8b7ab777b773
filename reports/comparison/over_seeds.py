"""Objectives over training seeds: the only place where a difference between series may become one between methods."""

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
from oversharp.reports.evidence.comparable import differences
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS, Display, display_of
from oversharp.reports.records import Block, Missing, Section

TITLE = "Objectives over seeds"
LIMITS = (
    "Intervals here are Student's t over training seeds: they say how far another run of the same objective would "
    f"move, on these problems and from this base. They take {LEAST_SEEDS} seeds: fewer may all have missed a collapse "
    "that one run in four suffers."
)


def over_seeds(context: Context) -> Section | None:
    """None where no two series carry a seed in their name, or where they were audited differently."""
    context = context.compared
    chosen = objectives(context.series)
    if not chosen or (differences(context.series) and not context.allow):
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
        f"{one.name} with {numbers.plural(len(one.runs), 'seed')} ({', '.join(map(str, one.runs))})" for one in chosen
    )
    bases = {run.base_id for run in _runs(chosen)}
    start = "all from one base" if len(bases) == 1 else "from different bases, which differ beside the objectives"
    return f"{numbers.listing(parts)}, {start}."


def _verdicts(chosen: Sequence[SeededObjective]) -> str:
    parts = []
    for one in chosen:
        titles = Counter("no verdict" if run.verdict is None else run.verdict.title for run in one.runs.values())
        counts = tuple(f"{title} {n} of {len(one.runs)}" for title, n in sorted(titles.items(), key=_most_first))
        parts.append(f"{one.name}: {', '.join(counts)}")
    return f"Verdicts by seed: {'; '.join(parts)}."


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return (-counted[1], counted[0])


def _runs(chosen: Sequence[SeededObjective]) -> list[SeriesSource]:
    return [run for one in chosen for run in one.runs.values()]


def _headline(chosen: Sequence[SeededObjective], made: Quantities, compared: Sequence[SeedPlace]) -> tuple[str, ...]:
    """What the objectives keep of pass@k at the highest pass@1 that every seed reaches, and their differences."""
    full = [place for place in compared if place.level is not None and not any(place.missed.values())]
    if not full or not made.pk:
        return ("The seeds share no range of pass@1, so they cannot be compared at equal pass@1.",) if made.pk else ()
    place, most = full[-1], made.pk[-1]
    display = display_of(most.unit, signed=False)
    parts = tuple(f"{_text(display, most.mean(place.values[one.name][most.title]))} for {one.name}" for one in chosen)
    kind = "exact " if made.exact else ""
    first = f"At matched {place.title}, which every seed reaches, {kind}{most.title} is {numbers.listing(parts)}."
    return (first, *(_difference_sentence(chosen[0], one, most, place) for one in chosen[1:]))


def _text(display: Display, over: SeedMean) -> str:
    return display.cell(over.mean, over.low, over.high).text


def _difference_sentence(first: SeededObjective, second: SeededObjective, quantity: Quantity, place: SeedPlace) -> str:
    over = paired_over_seeds(place.values[first.name][quantity.title], place.values[second.name][quantity.title])
    start = f"There {second.name} − {first.name}, paired by seed, is "
    if over.mean is None or over.low is None or over.high is None:
        value = "unknown" if over.mean is None else f"{numbers.points(over.mean)} points"
        return f"{start}{value}, without an interval: {over.why}."
    reading = "" if over.low > 0 or over.high < 0 else ": these seeds show no difference"
    return f"{start}{_text(POINTS, over)} points over {numbers.plural(over.n, 'seed')}{reading}."


def _left_out(context: Context, chosen: Sequence[SeededObjective]) -> tuple[str, ...]:
    """Series without a seed, and seeds that only some objectives have: a run that failed may be missing."""
    names = {run.name for run in _runs(chosen)}
    others = tuple(one.name for one in context.series if one.name not in names)
    unnamed = (f"Not in this section, because the name carries no seed: {numbers.listing(others)}.",) if others else ()
    seeds = {seed for one in chosen for seed in one.runs}
    lacking = [(one.name, sorted(seeds - set(one.runs))) for one in chosen]
    return (
        *unnamed,
        *(
            f"{name} lacks {numbers.plural(len(missing), 'seed')} that others have ({', '.join(map(str, missing))}): "
            "if that run failed, the means leave a failure out."
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
