"""Section that compares objectives over training seeds: sentences, tables and a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from oversharp.diagnostics.statistics.over_seeds import LEAST_SEEDS, SeedMean, paired_over_seeds
from oversharp.reports import numbers
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
from oversharp.reports.findings.figures import describe_panel, series_colour, step_ticks
from oversharp.reports.findings.tables import POINTS, Display, display_of
from oversharp.reports.records import (
    DASH,
    STEP_LABEL,
    Block,
    Cell,
    Column,
    Figure,
    Line,
    Missing,
    Panel,
    Section,
    Table,
    columns,
)

TITLE = "Objectives over seeds"
LIMITS = (
    "CIs in this section are Student's t intervals over training seeds. They cover the variation between runs of the "
    f"same objective, on these problems and from this base. They need at least {LEAST_SEEDS} seeds: with fewer runs, "
    "a collapse that happens in one run of four may be missed."
)


def over_seeds(context: Context) -> Section | None:
    """Return the section; None unless two series have a seed in their name and equal audit settings."""
    context = context.comparable_context
    chosen = objectives(context.series)
    if not chosen or (find_differences(context.series) and not context.allow):
        return None
    made = quantities(context, chosen)
    lead = (_seeds_sentence(chosen), _verdicts_sentence(chosen))
    if made is None:
        missing = Missing(title="Means over seeds", why=("the series share no pass@1",))
        return Section(section_id="seeds", title=TITLE, lead=lead, blocks=(missing,))
    compared = places(chosen, made)
    return Section(
        section_id="seeds",
        title=TITLE,
        lead=(*lead, *_headline(chosen, made, compared), *_missing_seeds_notes(context, chosen), LIMITS),
        blocks=_blocks(context, chosen, made, compared),
    )


def _seeds_sentence(chosen: Sequence[SeededObjective]) -> str:
    parts = tuple(
        f"{objective.name} with {numbers.plural(len(objective.runs), 'seed')} ({', '.join(map(str, objective.runs))})"
        for objective in chosen
    )
    bases = {run.base_id for run in _runs(chosen)}
    start = "all from one base" if len(bases) == 1 else "from different bases, so more than the objective differs"
    return f"{numbers.listing(parts)}, {start}."


def _verdicts_sentence(chosen: Sequence[SeededObjective]) -> str:
    parts = []
    for objective in chosen:
        titles = Counter("no verdict" if run.verdict is None else run.verdict.title for run in objective.runs.values())
        ranked = sorted(titles.items(), key=lambda counted: (-counted[1], counted[0]))
        counts = tuple(f"{title} {n} of {len(objective.runs)}" for title, n in ranked)
        parts.append(f"{objective.name}: {', '.join(counts)}")
    return f"Verdicts by seed: {'; '.join(parts)}."


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


def _missing_seeds_notes(context: Context, chosen: Sequence[SeededObjective]) -> tuple[str, ...]:
    """Return notes on series without a seed in their name, and on seeds that some objectives lack."""
    names = {run.name for run in _runs(chosen)}
    others = tuple(series.name for series in context.series if series.name not in names)
    unnamed = (f"Not in this section, because the name has no seed: {numbers.listing(others)}.",) if others else ()
    seeds = {seed for objective in chosen for seed in objective.runs}
    lacking = [(objective.name, sorted(seeds - set(objective.runs))) for objective in chosen]
    return (
        *unnamed,
        *(
            f"{name} lacks {numbers.plural(len(missing), 'seed')} that others have ({', '.join(map(str, missing))}). "
            "If that run failed, the means omit the failure."
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


def _quantity_columns(made: Sequence[Quantity]) -> tuple[Column, ...]:
    return tuple(Column(name=f"{q.title}{_unit_suffix(q)}") for q in made)


def _exact_suffix(made: Quantities) -> str:
    return ", exact pass@k" if made.exact else ""


def _unit_suffix(quantity: Quantity) -> str:
    if numbers.is_probability(quantity.unit):
        return "" if quantity.unit == "probability" else " (share)"
    return "" if quantity.title.endswith(quantity.unit) else f" ({quantity.unit})"


def _mean_cells(made: Sequence[Quantity], values: Mapping[str, Mapping[int, float | None]], n: int) -> tuple[Cell, ...]:
    """Return a cell per quantity with mean and CI. If fewer than ``n`` seeds have a value, it shows their number."""
    cells = []
    for q in made:
        over = q.mean(values[q.title])
        cell = display_of(q.unit, signed=False).cell(over.mean, over.low, over.high)
        few = f" (n = {over.n})" if 0 < over.n < n else ""
        cells.append(Cell(text=f"{cell.text}{few}", sort=cell.sort))
    return tuple(cells)


def _intervals_note(chosen: Sequence[SeededObjective]) -> str:
    few = tuple(objective.name for objective in chosen if len(objective.runs) < LEAST_SEEDS)
    too_few = f" Too few seeds for a CI: {numbers.listing(few)}." if few else ""
    return (
        f"Means over seeds. Brackets: {numbers.NINETY_FIVE} t CI over seeds. There is no CI for fewer than "
        f"{LEAST_SEEDS} seeds or if all values are equal.{too_few}"
    )


def mean_table(chosen: Sequence[SeededObjective], made: Quantities, place: SeedPlace) -> Table:
    """Return a table with one row per objective, at a step that all runs have."""
    rows = [
        (
            Cell(text=objective.name),
            Cell.count(len(objective.runs)),
            *_mean_cells(made.all, place.values[objective.name], len(objective.runs)),
        )
        for objective in chosen
    ]
    return Table(
        title=f"Objectives at the same step ({place.title.removeprefix('step ')}){_exact_suffix(made)}",
        columns=(Column(name="objective", numeric=False), Column(name="seeds"), *_quantity_columns(made.all)),
        rows=tuple(rows),
        note=f"{_intervals_note(chosen)} At the same step, an objective that learns more slowly has usually lost less. "
        "The table at matched pass@1 removes that effect.",
    )


def matched_table(chosen: Sequence[SeededObjective], made: Quantities, places: Sequence[SeedPlace]) -> Table:
    """Return a table with one row per level of pass@1 and objective. Its note lists seeds that miss a level."""
    shown = (*made.pk, *made.further)
    rows = []
    missed: dict[tuple[str, int, str], None] = {}
    for place in places:
        for objective in chosen:
            lacking = place.missed[objective.name]
            missed.update({(objective.name, seed, why): None for seed, why in lacking.items()})
            n, step = len(objective.runs) - len(lacking), place.steps[objective.name]
            rows.append(
                (
                    Cell(text=numbers.decimal(place.level or 0.0, 3), sort=place.level),
                    Cell(text=objective.name),
                    Cell(text=f"{n} of {len(objective.runs)}", sort=float(n)),
                    Cell(text="–" if step is None else numbers.decimal(step, 0), sort=step),
                    *_mean_cells(shown, place.values[objective.name], n),
                )
            )
    unreached = "".join(f" {name} seed {seed} {why}." for name, seed, why in missed)
    return Table(
        title=f"Objectives at matched pass@1{_exact_suffix(made)}",
        columns=(
            Column(name="pass@1"),
            Column(name="objective", numeric=False),
            Column(name="seeds that reach it", numeric=False),
            Column(name="mean step"),
            *_quantity_columns(shown),
        ),
        rows=tuple(rows),
        note="Each seed is evaluated where its own trajectory first reaches the level, interpolated between "
        f"checkpoints. {_intervals_note(chosen)}{unreached}",
    )


def difference_table(chosen: Sequence[SeededObjective], made: Quantities, places: Sequence[SeedPlace]) -> Table:
    """Return a table of the differences from the first objective, at the same step and at matched pass@1."""
    first = chosen[0]
    rows = []
    for second in chosen[1:]:
        for place in places:
            cells = []
            n = 0
            for q in made.all:
                over = paired_over_seeds(place.values[first.name][q.title], place.values[second.name][q.title])
                n = max(n, over.n)
                matched_on = q is made.p1 and place.level is not None
                display = display_of(q.unit, signed=True)
                cells.append(DASH if matched_on else display.cell(over.mean, over.low, over.high))
            where = (Cell(text=f"{second.name} − {first.name}"), Cell(text=place.title))
            rows.append((*where, Cell.count(n), *cells))
    several = " Not adjusted for multiple comparisons." if len(rows) > 1 else ""
    return Table(
        title=f"Differences between objectives, paired by seed{_exact_suffix(made)}",
        columns=columns(
            "difference",
            "where",
            numbers=(
                "seeds",
                *(
                    f"{q.title} (points)" if numbers.is_probability(q.unit) else f"{q.title}{_unit_suffix(q)}"
                    for q in made.all
                ),
            ),
        ),
        rows=tuple(rows),
        note="If oversharp trained the runs, equal seeds mean the same prompts in the same order. Brackets: "
        f"{numbers.NINETY_FIVE} t CI over the differences by seed, for at least {LEAST_SEEDS} seeds.{several}",
    )


def means_figure(context: Context, chosen: Sequence[SeededObjective], made: Quantities) -> Figure:
    """Return the figure of pass@1 and pass@k over steps, as means over seeds with CIs."""
    shown = (made.p1, *made.pk[-1:])
    panels = []
    body = []
    for q in shown:
        lines = []
        for i, objective in enumerate(chosen):
            steps = sorted(set.intersection(*({*q.trajectories.get(run.name, {})} for run in objective.runs.values())))
            means = [q.mean(q.values_at(step, objective)) for step in steps]
            if not steps:
                continue
            lines.append(_mean_line(objective.name, steps, means, i))
            body += [
                (
                    Cell(text=objective.name),
                    Cell(text=q.title),
                    Cell.count(step),
                    display_of(q.unit, signed=False).cell(over.mean, over.low, over.high),
                )
                for step, over in zip(steps, means, strict=True)
            ]
        display = Display(factor=1.0, unit="probability", is_difference=False)
        panels.append(describe_panel(Panel(title=q.title, lines=tuple(lines)), q.title, display, "step"))
    banded = any(value is not None for panel in panels for line in panel.lines for value in line.low)
    return Figure(
        figure_id="seeds-steps",
        title=f"{numbers.listing(tuple(q.title for q in shown))} over training, mean over seeds{_exact_suffix(made)}",
        caption=f"Band: {numbers.NINETY_FIVE} t CI over seeds." if banded else "",
        x_label=STEP_LABEL,
        y_label="probability",
        panels=tuple(panels),
        x_ticks=step_ticks(context.source),
        y_range=(0.0, 1.0),
        table=Table(
            title="Means over seeds by step: data",
            columns=columns("objective", "quantity", numbers=("step", "mean over seeds")),
            rows=tuple(body),
            folded=True,
        ),
    )


def _mean_line(name: str, steps: Sequence[int], means: Sequence[SeedMean], i: int) -> Line:
    banded = any(over.low is not None for over in means)
    return Line(
        label=name,
        x=tuple(float(step) for step in steps),
        y=tuple(over.mean or 0.0 for over in means),
        colour=series_colour(i),
        style=i,
        low=tuple(over.low for over in means) if banded else (),
        high=tuple(over.high for over in means) if banded else (),
    )


def seed_table(chosen: Sequence[SeededObjective], made: Quantities, places: Sequence[SeedPlace]) -> Table:
    """Return a table with the values of every seed, so that readers can check the means."""
    full = [place for place in places if place.level is None or not any(place.missed.values())]
    rows = [
        (
            Cell(text=objective.name),
            Cell.count(seed),
            Cell(text="–" if run.verdict is None else run.verdict.title),
            Cell(text=place.title),
            *(
                display_of(q.unit, signed=False).cell(place.values[objective.name][q.title][seed], None, None)
                for q in made.all
            ),
        )
        for objective in chosen
        for seed, run in objective.runs.items()
        for place in (*full[:1], *full[-1:][: len(full) - 1])
    ]
    return Table(
        title=f"Single seeds{_exact_suffix(made)}",
        columns=(
            Column(name="objective", numeric=False),
            Column(name="seed"),
            Column(name="verdict", numeric=False),
            Column(name="where", numeric=False),
            *_quantity_columns(made.all),
        ),
        rows=tuple(rows),
        folded=True,
    )
