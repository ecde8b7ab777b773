"""Section on the metrics that the trainer logged."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.findings.figures import describe_panel, series_colour
from oversharp.reports.findings.tables import Display
from oversharp.reports.records import (
    DASH,
    STEP_LABEL,
    Block,
    Cell,
    Constant,
    Figure,
    Line,
    Panel,
    Section,
    Table,
    columns,
)

#: Metrics whose names contain one of these are shown first, in this order. Trainers use different names.
PREFERRED = ("reward", "entropy", "kl", "loss", "grad_norm", "length", "clip", "lr", "learning_rate")
SHOWN_METRICS = 8
MAX_POINTS = 200
MAX_ROWS = 50  # maximum number of rows of the table under a figure


def training(context: Context) -> Section:
    """Build the section: figures of the preferred metrics, a sentence on constant metrics, a table of the others."""
    logged = context.source.training
    if logged.empty:
        lead = ("No run directory has training metrics.",)
        return Section(section_id="training", title="Training metrics", lead=lead)
    names = sorted({str(name) for name in logged["name"]}, key=_rank)
    varying, constant = _split_constant(logged, names)
    steps = tuple(
        f"{series.name}: {numbers.plural(own['name'].nunique(), 'metric')} over steps {own['step'].min()} "
        f"to {own['step'].max()}"
        for series in context.series
        if not (own := logged[logged["series"] == series.name]).empty
    )
    blocks: list[Block] = [
        _figure(context, i, name, logged[logged["name"] == name]) for i, name in enumerate(varying[:SHOWN_METRICS])
    ]
    if constant:
        blocks.append(_constant_metrics(context, logged, constant))
    if len(varying) > SHOWN_METRICS:
        blocks.append(_other_metrics(logged[logged["name"].isin(varying[SHOWN_METRICS:])]))
    return Section(
        section_id="training", title="Training metrics", lead=(f"{'; '.join(steps)}.",), blocks=tuple(blocks)
    )


def _rank(name: str) -> tuple[int, str]:
    places = [i for i, part in enumerate(PREFERRED) if part in name.lower()]
    return (min(places, default=len(PREFERRED)), name)


def _split_constant(logged: pd.DataFrame, names: list[str]) -> tuple[list[str], list[str]]:
    """Return the names of the metrics that vary within a series, and the names of the constant ones.

    A metric that was logged once counts as varying.
    """
    spans = logged.groupby(["name", "series"])["value"].agg(["min", "max", "size"])
    is_constant = (spans["min"] == spans["max"]) & (spans["size"] > 1)
    constant = {str(name) for name, in_all in is_constant.groupby("name").all().items() if in_all}
    return [name for name in names if name not in constant], [name for name in names if name in constant]


def _constant_metrics(context: Context, logged: pd.DataFrame, names: list[str]) -> Constant:
    """Return one sentence that lists all constant metrics."""
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


def average_neighbours(rows: pd.DataFrame, limit: int = MAX_POINTS) -> pd.DataFrame:
    """Average ``rows`` (step, value) over groups of neighbouring steps. Return at most ``limit`` rows."""
    if len(rows) <= limit:
        return rows
    size = -(-len(rows) // limit)
    group = [i // size for i in range(len(rows))]
    return rows[["step", "value"]].groupby(group, sort=True).mean()


def _figure(context: Context, place: int, name: str, rows: pd.DataFrame) -> Figure:
    lines, is_averaged = [], False
    values: dict[str, dict[float, float]] = {}
    for i, series in enumerate(context.series):
        own = rows[rows["series"] == series.name].sort_values("step")
        if own.empty:
            continue
        points = average_neighbours(own)
        is_averaged = is_averaged or len(points) < len(own)
        xs, ys = tuple(float(v) for v in points["step"]), tuple(float(v) for v in points["value"])
        lines.append(Line(label=series.name, x=xs, y=ys, colour=series_colour(i), style=i))
        few = average_neighbours(own, MAX_ROWS)
        values[series.name] = dict(zip(few["step"].astype(float), few["value"].astype(float), strict=True))
    display = Display(factor=1.0, unit="as logged", is_difference=False)
    return Figure(
        figure_id=f"training-{place}",
        title=name,
        caption="As logged by the trainer" + (", averaged over neighbouring steps." if is_averaged else "."),
        x_label=STEP_LABEL,
        y_label=f"{name} (as logged)",
        panels=(describe_panel(Panel(title="", lines=tuple(lines)), name, display, "step"),),
        table=Table(
            title=f"{name}: data",
            columns=columns(numbers=("step", *values)),
            rows=_rows_by_step(values),
            note=f"At most {MAX_ROWS} rows, averaged over neighbouring steps. The view training_metrics has every step."
            if len(rows) > MAX_ROWS
            else "",
            folded=True,
        ),
    )


def _rows_by_step(values: Mapping[str, Mapping[float, float]]) -> tuple[tuple[Cell, ...], ...]:
    """Return one row per step with one cell per series. The cell is a dash if the series has no value there."""
    return tuple(
        (
            Cell(text=f"{step:g}", sort=step),
            *(
                DASH if step not in own else Cell(text=numbers.format_brief(own[step]), sort=own[step])
                for own in values.values()
            ),
        )
        for step in sorted({step for own in values.values() for step in own})
    )


def _other_metrics(rows: pd.DataFrame) -> Table:
    """Return a table with the first and the last value of the metrics that have no figure."""
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
