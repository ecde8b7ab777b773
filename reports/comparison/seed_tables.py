"""Tables and figure of objectives over seeds: means with CIs, differences, single seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oversharp.diagnostics.statistics.over_seeds import LEAST_SEEDS, SeedMean, paired_over_seeds
from oversharp.reports import numbers
from oversharp.reports.comparison.seeds import Quantities, Quantity, SeededObjective, SeedPlace
from oversharp.reports.context import Context
from oversharp.reports.findings.figures import describe_panel, series_colour, step_ticks
from oversharp.reports.findings.tables import Display, display_of
from oversharp.reports.records import STEP_LABEL, Cell, Column, Figure, Line, Panel, Table, columns


def _columns(made: Sequence[Quantity]) -> tuple[Column, ...]:
    return tuple(Column(name=f"{q.title}{_unit(q)}") for q in made)


def _exact(made: Quantities) -> str:
    return ", exact pass@k" if made.exact else ""


def _unit(quantity: Quantity) -> str:
    if numbers.is_probability(quantity.unit):
        return "" if quantity.unit == "probability" else " (share)"
    return "" if quantity.title.endswith(quantity.unit) else f" ({quantity.unit})"


def _cells(made: Sequence[Quantity], values: Mapping[str, Mapping[int, float | None]], n: int) -> tuple[Cell, ...]:
    """Return means with CIs, and the number of seeds if fewer than ``n`` have the value."""
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
        f"Means over seeds. Brackets: {numbers.NINETY_FIVE} t CI over seeds; none with fewer than {LEAST_SEEDS} seeds "
        f"or equal values.{too_few}"
    )


def mean_table(chosen: Sequence[SeededObjective], made: Quantities, place: SeedPlace) -> Table:
    """Return a table with one row per objective, at a step that all runs have."""
    rows = [
        (
            Cell(text=objective.name),
            Cell.count(len(objective.runs)),
            *_cells(made.all, place.values[objective.name], len(objective.runs)),
        )
        for objective in chosen
    ]
    return Table(
        title=f"Objectives at the same step ({place.title.removeprefix('step ')}){_exact(made)}",
        columns=(Column(name="objective", numeric=False), Column(name="seeds"), *_columns(made.all)),
        rows=tuple(rows),
        note=f"{_intervals_note(chosen)} At the same step, an objective that learns more slowly has lost less: see "
        "also the table at matched pass@1.",
    )


def matched_table(chosen: Sequence[SeededObjective], made: Quantities, places: Sequence[SeedPlace]) -> Table:
    """Return a table with one row per level of pass@1 and objective; the note lists seeds that miss a level."""
    shown = (*made.pk, *made.beside)
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
                    *_cells(shown, place.values[objective.name], n),
                )
            )
    unreached = "".join(f" {name} seed {seed} {why}." for name, seed, why in missed)
    return Table(
        title=f"Objectives at matched pass@1{_exact(made)}",
        columns=(
            Column(name="pass@1"),
            Column(name="objective", numeric=False),
            Column(name="seeds that reach it", numeric=False),
            Column(name="mean step"),
            *_columns(shown),
        ),
        rows=tuple(rows),
        note="Each seed is evaluated where its own trajectory first reaches the level, interpolated between "
        f"checkpoints. {_intervals_note(chosen)}{unreached}",
    )


def difference_table(chosen: Sequence[SeededObjective], made: Quantities, places: Sequence[SeedPlace]) -> Table:
    """Return differences to the first objective, at the same step and at matched pass@1."""
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
                cells.append(Cell(text="–") if matched_on else display.cell(over.mean, over.low, over.high))
            where = (Cell(text=f"{second.name} − {first.name}"), Cell(text=place.title))
            rows.append((*where, Cell.count(n), *cells))
    several = " Not adjusted for multiple comparisons." if len(rows) > 1 else ""
    return Table(
        title=f"Differences between objectives, paired by seed{_exact(made)}",
        columns=columns(
            "difference",
            "where",
            numbers=(
                "seeds",
                *(
                    f"{q.title} (points)" if numbers.is_probability(q.unit) else f"{q.title}{_unit(q)}"
                    for q in made.all
                ),
            ),
        ),
        rows=tuple(rows),
        note="Runs that oversharp trained with the same seed saw the same prompts in the same order. Brackets: "
        f"{numbers.NINETY_FIVE} t CI over the differences by seed, for at least {LEAST_SEEDS} seeds.{several}",
    )


def means_figure(context: Context, chosen: Sequence[SeededObjective], made: Quantities) -> Figure:
    """Return the figure of pass@1 and pass@k over steps: mean over seeds with CI."""
    shown = (made.p1, *made.pk[-1:])
    panels = []
    body = []
    for q in shown:
        lines = []
        for i, objective in enumerate(chosen):
            steps = sorted(set.intersection(*({*q.courses.get(run.name, {})} for run in objective.runs.values())))
            means = [q.mean(q.values_at(step, objective)) for step in steps]
            if not steps:
                continue
            lines.append(_line(objective.name, steps, means, i))
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
        title=f"{numbers.listing(tuple(q.title for q in shown))} over training, mean over seeds{_exact(made)}",
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


def _line(name: str, steps: Sequence[int], means: Sequence[SeedMean], i: int) -> Line:
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
    """Return a table of single seeds, so that readers can check each mean."""
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
        title=f"Single seeds{_exact(made)}",
        columns=(
            Column(name="objective", numeric=False),
            Column(name="seed"),
            Column(name="verdict", numeric=False),
            Column(name="where", numeric=False),
            *_columns(made.all),
        ),
        rows=tuple(rows),
        folded=True,
    )
