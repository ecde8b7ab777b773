"""What the trainer itself logged."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.findings.figures import describe_panel, series_colour
from oversharp.reports.findings.tables import Display
from oversharp.reports.records import STEP_LABEL, Block, Cell, Constant, Figure, Line, Panel, Section, Table, columns

#: Shown first, by substring, in this order; trainers differ in their names.
PREFERRED = ("reward", "entropy", "kl", "loss", "grad_norm", "length", "clip", "lr", "learning_rate")
SHOWN_METRICS = 8
MAX_POINTS = 200
MAX_ROWS = 50  # of the table under a figure


def training(context: Context) -> Section:
    """The trainer's metrics: the telling ones drawn, constant ones in a sentence, the rest in a table."""
    logged = context.source.training
    if logged.empty:
        lead = ("The run directory of no series held metrics of the trainer.",)
        return Section(section_id="training", title="Training metrics", lead=lead)
    names = sorted({str(name) for name in logged["name"]}, key=_rank)
    moving, resting = _split(logged, names)
    steps = tuple(
        f"{series.name}: {numbers.plural(own['name'].nunique(), 'metric')} over steps {own['step'].min()} "
        f"to {own['step'].max()}"
        for series in context.series
        if not (own := logged[logged["series"] == series.name]).empty
    )
    blocks: list[Block] = [
        _figure(context, i, name, logged[logged["name"] == name]) for i, name in enumerate(moving[:SHOWN_METRICS])
    ]
    if resting:
        blocks.append(_resting(context, logged, resting))
    if len(moving) > SHOWN_METRICS:
        blocks.append(_rest(logged[logged["name"].isin(moving[SHOWN_METRICS:])]))
    return Section(
        section_id="training", title="Training metrics", lead=(f"{'; '.join(steps)}.",), blocks=tuple(blocks)
    )


def _rank(name: str) -> tuple[int, str]:
    places = [i for i, part in enumerate(PREFERRED) if part in name.lower()]
    return (min(places, default=len(PREFERRED)), name)


def _split(logged: pd.DataFrame, names: list[str]) -> tuple[list[str], list[str]]:
    """Metrics that moved within some series, and those that did not: a flat line says less than a sentence.

    A metric logged once has moved nowhere that anyone can know; it stays with the figures.
    """
    spans = logged.groupby(["name", "series"])["value"].agg(["min", "max", "size"])
    rests = (spans["min"] == spans["max"]) & (spans["size"] > 1)
    resting = {str(name) for name, still in rests.groupby("name").all().items() if still}
    return [name for name in names if name not in resting], [name for name in names if name in resting]


def _resting(context: Context, logged: pd.DataFrame, names: list[str]) -> Constant:
    """One sentence for all constant metrics."""
    parts, body = [], []
    for name in names:
        values = {
            series.name: float(own["value"].iloc[0])
            for series in context.series
            if not (own := logged[(logged["name"] == name) & (logged["series"] == series.name)]).empty
        }
        if len(set(values.values())) == 1:
            parts.append(f"{name} constant at {numbers.format_brief(next(iter(values.values())))}")
        else:
            each = tuple(f"{numbers.format_brief(value)} ({series})" for series, value in values.items())
            parts.append(f"{name} constant at {numbers.listing(each)}")
        body += [
            (Cell(text=series), Cell(text=name), Cell(text=numbers.format_brief(value), sort=value))
            for series, value in values.items()
        ]
    return Constant(
        title="Constant over the run",
        text=f"{'; '.join(parts)}.",
        table=Table(
            title="Constant metrics: data",
            columns=columns("series", "metric", numbers=("value",)),
            rows=tuple(body),
            folded=True,
        ),
    )


def thinned(rows: pd.DataFrame, limit: int = MAX_POINTS) -> pd.DataFrame:
    """``rows`` (step, value) averaged within equal groups of neighbouring steps, so that at most ``limit`` remain."""
    if len(rows) <= limit:
        return rows
    size = -(-len(rows) // limit)
    group = [i // size for i in range(len(rows))]
    return rows[["step", "value"]].groupby(group, sort=True).mean()


def _figure(context: Context, place: int, name: str, rows: pd.DataFrame) -> Figure:
    lines, averaged = [], False
    tabled: dict[str, dict[float, float]] = {}
    for i, series in enumerate(context.series):
        own = rows[rows["series"] == series.name].sort_values("step")
        if own.empty:
            continue
        thin = thinned(own)
        averaged = averaged or len(thin) < len(own)
        xs, ys = tuple(float(v) for v in thin["step"]), tuple(float(v) for v in thin["value"])
        lines.append(Line(label=series.name, x=xs, y=ys, colour=series_colour(i), style=i))
        few = thinned(own, MAX_ROWS)
        tabled[series.name] = dict(zip(few["step"].astype(float), few["value"].astype(float), strict=True))
    display = Display(factor=1.0, unit="as logged", is_difference=False)
    return Figure(
        figure_id=f"training-{place}",
        title=name,
        caption="As logged by the trainer" + (", averaged over neighbouring steps." if averaged else "."),
        x_label=STEP_LABEL,
        y_label=f"{name} (as logged)",
        panels=(describe_panel(Panel(title="", lines=tuple(lines)), name, display, "step"),),
        table=Table(
            title=f"{name}: data",
            columns=columns(numbers=("step", *tabled)),
            rows=_by_step(tabled),
            note=f"At most {MAX_ROWS} rows: means over neighbouring steps. The store has every step: training_metrics."
            if len(rows) > MAX_ROWS
            else "",
            folded=True,
        ),
    )


def _by_step(tabled: Mapping[str, Mapping[float, float]]) -> tuple[tuple[Cell, ...], ...]:
    """One row per step, one cell per series; a dash where a series has no value of that step."""
    return tuple(
        (
            Cell(text=f"{step:g}", sort=step),
            *(
                Cell(text="–") if step not in own else Cell(text=numbers.format_brief(own[step]), sort=own[step])
                for own in tabled.values()
            ),
        )
        for step in sorted({step for own in tabled.values() for step in own})
    )


def _rest(rows: pd.DataFrame) -> Table:
    """First and last value of the metrics that got no figure."""
    body = []
    for (series, name), own in rows.groupby(["series", "name"], sort=True):
        first, last = own.sort_values("step").iloc[0], own.sort_values("step").iloc[-1]
        body.append(
            (
                Cell(text=str(series)),
                Cell(text=str(name)),
                Cell(text=numbers.format_brief(first["value"]), sort=float(first["value"])),
                Cell(text=numbers.format_brief(last["value"]), sort=float(last["value"])),
            )
        )
    return Table(
        title="Other metrics",
        columns=columns("series", "metric", numbers=("first", "last")),
        rows=tuple(body),
        folded=True,
    )
