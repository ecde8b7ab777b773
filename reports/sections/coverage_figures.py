"""The pictures of coverage: curves over k with k*, changes over steps with band and onset, and the map of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from oversharp.diagnostics.verdict.recommendation import ShippingStep
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.records import (
    STEP_LABEL,
    Block,
    Cell,
    ChangeMap,
    Column,
    Figure,
    Mark,
    Missing,
    Panel,
    Table,
    columns,
)
from oversharp.reports.sections.verdict_tables import decline_text, k_star_text, lost_coverage, window_text
from oversharp.reports.wording import bound, known_findings

POINTWISE, SIMULTANEOUS = "pass_at_k_delta", "pass_at_k_band"
BAND = f"simultaneous {numbers.NINETY_FIVE} band"
#: What the darkest shade of the map stands for, in points: the least of these that holds all values.
SCALES = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0)


def curves(context: Context) -> Block:
    """pass@k over k of base, middle and last checkpoint; k* is marked where the verdict is that pass@k fell."""
    figure = context.block("pass_at_k")
    if not isinstance(figure, Figure):
        return figure
    panels, notes = [], []
    for series, panel in _by_series(context, figure):
        verdict = series.verdict
        if verdict is None or verdict.k_star is None:
            panels.append(panel)
            continue
        star = verdict.k_star
        text = k_star_text(star, verdict.k_most)
        chance = "" if star.value is None or lost_coverage(verdict) else "; without a loss it may be chance"
        where = f"{window_text(verdict)}{', averaged' if len(verdict.window) > 1 else ''}, against the base"
        notes.append(context.with_series_name(series, f"{text} ({where}){chance}."))
        if star.value is not None and lost_coverage(verdict):
            high = star.high if star.high is not None or star.low is None else verdict.k_most
            mark = Mark(label=text.split(",")[0], x=star.value, low=star.low, high=high)
            panel = replace(panel, marks=(mark,), description=f"{panel.description} {text}.")
        panels.append(panel)
    star_note = ("k* is where pass@k of the late checkpoints falls below the base for good.",) if notes else ()
    return replace(figure, panels=tuple(panels), notes=(*star_note, *notes, *figure.notes))


def changes_over_steps(context: Context) -> tuple[Block, ...]:
    """Change of pass@k at every checkpoint inside one band for all k and steps, with the onset after a loss.

    The data table keeps the interval that each change has by itself.
    """
    pointwise, band = context.block(POINTWISE), context.block(SIMULTANEOUS)
    if not isinstance(pointwise, Figure):
        return (pointwise,)
    lacking: tuple[Block, ...] = ()
    if isinstance(band, Figure):
        table = replace(pointwise.table, title=f"{pointwise.table.title}, with the interval of each change by itself")
        figure = replace(
            pointwise,
            panels=band.panels,
            notes=band.notes,
            table=table,
            caption="pass@k of each checkpoint minus that of the base. Band: "
            f"{BAND}, for all k and checkpoints of a series together: below 0 anywhere, it shows a loss.",
        )
    else:
        figure = pointwise
        why = band.why if isinstance(band, Missing) else ("it never moves",)
        lacking = (Missing(title="Simultaneous band of the changes", why=why),)
    panels, notes = [], []
    for series, panel in _by_series(context, figure):
        marks, text = _onset(series)
        panels.append(replace(panel, marks=marks, description=" ".join(filter(None, (panel.description, text)))))
        if text:
            notes.append(context.with_series_name(series, text))
    return (replace(figure, panels=tuple(panels), notes=(*notes, *figure.notes)), *lacking)


def _onset(series: SeriesSource) -> tuple[tuple[Mark, ...], str]:
    """Marks and a sentence; nothing unless the verdict is that something was lost."""
    verdict = series.verdict
    if verdict is None or not lost_coverage(verdict):
        return (), ""
    marks, parts = [], []
    began = verdict.decline_began
    if began is not None and began.value is not None:
        label = f"decline began, step {numbers.decimal(began.value, 0)}"
        marks.append(Mark(label=label, x=began.value, low=began.low, high=began.high))
        parts.append(f"the decline began at {decline_text(began)} (a bent line fitted to the changes)")
    if verdict.detected_by is not None:
        marks.append(Mark(label=f"detected by step {verdict.detected_by}", x=float(verdict.detected_by)))
        parts.append(f"detected by step {verdict.detected_by}, where a one-sided band first lies below 0")
    else:
        parts.append("at no single checkpoint does a one-sided band lie below 0")
    return tuple(marks), f"{'; '.join(parts)}."


def change_map(context: Context) -> Block:
    """Every checkpoint × every k: the change in points, marked where the band leaves out 0.

    Outlined is the row of what `oversharp ship` recommends: a checkpoint, or a row of its own for the base or for what
    was drawn at another temperature.
    """
    title = "Where coverage moved: checkpoint × k"
    name = SIMULTANEOUS if not known_findings(context.source.findings, SIMULTANEOUS).empty else POINTWISE
    rows = known_findings(context.source.findings, name)
    rows = rows[rows["k"].notna()]
    rows = rows[rows["step"] != rows["series"].map({series.name: series.base_step for series in context.series})]
    if rows.empty:
        return Missing(title=title, why=("the store holds no paired differences of pass@k to the base",))
    scale = scale_of([100.0 * float(value) for value in rows["value"]])
    own = [(series, rows[rows["series"] == series.name]) for series in context.series]
    is_band = name == SIMULTANEOUS
    panels = tuple(_map(context, series, found, scale, is_band=is_band) for series, found in own if not found.empty)
    note = (
        f"A corner marks a {BAND} of one series alone that leaves out 0, at the top for a rise and at the bottom for a "
        "fall; what to ship is chosen by one over all series and temperatures that are compared, which marks the row "
        "of another temperature, at the first k and at that of its lowest change."
        if is_band
        else "Nothing is marked: the simultaneous band is missing."
    )
    return Figure(
        figure_id="coverage-map",
        title=title,
        caption="Change of pass@k against the base in points: blue above, orange below, the deeper the further. "
        + (
            f"{note} Outlined: what oversharp ship recommends."
            if any(one.outlined is not None for one in panels)
            else note
        ),
        x_label="k (samples per problem)",
        y_label=STEP_LABEL,
        panels=panels,
        table=_map_table(context, rows, is_band=is_band),
    )


def scale_of(values: Sequence[float]) -> float:
    """What the darkest shade stands for, in points.

    >>> scale_of([-7.2, 1.0]), scale_of([])
    (10.0, 5.0)
    """
    largest = max((abs(value) for value in values), default=0.0)
    return next((scale for scale in SCALES if largest <= scale), SCALES[-1])


def _map(context: Context, series: SeriesSource, rows: pd.DataFrame, scale: float, *, is_band: bool) -> ChangeMap:
    """Intervals of single changes mark nothing: among so many, some leave out 0 by chance."""
    steps = sorted({int(step) for step in rows["step"]})
    ks = sorted({int(k) for k in rows["k"]})
    found = {(int(row["k"]), int(row["step"])): row for row in rows.to_dict("records")}
    cells, sure = [], []
    for step in steps:
        at_step = [found.get((k, step)) for k in ks]
        cells.append(tuple(None if row is None else 100.0 * float(row["value"]) for row in at_step))
        sure.append(tuple(is_band and row is not None and _leaves_out_0(row["low"], row["high"]) for row in at_step))
    signs = [
        value > 0
        for values, marks in zip(cells, sure, strict=True)
        for value, is_sure in zip(values, marks, strict=True)
        if is_sure and value is not None
    ]
    text = f"{series.name}: changes of pass@k for k = {ks[0]} to {ks[-1]} at steps {steps[0]} to {steps[-1]}"
    if is_band:
        text += f"; {sum(signs)} of {len(ks) * len(steps)} lie surely above the base, {len(signs) - sum(signs)} below"
    names, outlined = [str(step) for step in steps], _recommended_step(series)
    extra = _recommended_row(context, series, ks)
    if extra is not None:
        names.insert(0, extra.name)
        cells.insert(0, extra.changes)
        sure.insert(0, tuple(is_band and k in extra.sure for k in ks))
    return ChangeMap(
        title=series.name if len(context.series) > 1 else "",
        lines=(),
        description=f"{text}.",
        columns=tuple(map(str, ks)),
        rows=tuple(names),
        cells=tuple(cells),
        sure=tuple(sure),
        scale=scale,
        outlined=0 if extra is not None else steps.index(outlined) if outlined in steps else None,
    )


def _recommended(series: SeriesSource) -> ShippingStep | None:
    """What is recommended of all series, where it is of this one; a base is of all of them."""
    verdict = series.verdict
    said = None if verdict is None or verdict.shipping is None else verdict.shipping.recommended
    return said if said is not None and (said.is_base or said.series == series.name) else None


def _recommended_step(series: SeriesSource) -> int | None:
    said = _recommended(series)
    return None if said is None or said.is_base or said.temperature is not None else said.step


@dataclass(frozen=True, kw_only=True)
class _ExtraRow:
    """What is recommended and is no checkpoint at the audit's temperature: its changes by k in points.

    ``sure`` are the ks, of the first and that of the worst change, at which the band of the choice leaves out 0.
    """

    name: str
    changes: tuple[float | None, ...]
    sure: frozenset[int] = frozenset()


def _recommended_row(context: Context, series: SeriesSource, ks: Sequence[int]) -> _ExtraRow | None:
    """The row that the map has above those of the checkpoints; None where the choice is one of them."""
    said = _recommended(series)
    if said is None or _recommended_step(series) is not None:
        return None
    if said.temperature is None:
        return _ExtraRow(name="base", changes=(0.0,) * len(ks))
    step = series.base_step if said.is_base else said.step
    scope = f"T={said.temperature:g}"
    pairs = [
        (
            context.source.value_at("control_pass_at_k", series.name, step, k=k, scope=scope),
            context.source.value_at("pass_at_k", series.name, series.base_step, k=k),
        )
        for k in ks
    ]
    changes = tuple(
        None if drawn is None or base is None else 100.0 * float(drawn["value"] - base["value"])
        for drawn, base in pairs
    )
    banded = [change for change in (said.first, said.worst) if change is not None]
    sure = frozenset(change.k for change in banded if _leaves_out_0(change.low, change.high))
    return _ExtraRow(name=scope if said.is_base else f"{step}, {scope}", changes=changes, sure=sure)


def _leaves_out_0(low: object, high: object) -> bool:
    low_f, high_f = bound(low), bound(high)
    return low_f is not None and high_f is not None and (low_f > 0.0 or high_f < 0.0)


def _map_table(context: Context, rows: pd.DataFrame, *, is_band: bool) -> Table:
    several = len(context.series) > 1
    ks = sorted({int(k) for k in rows["k"]})
    found = {(row["series"], int(row["step"]), int(row["k"])): row for row in rows.to_dict("records")}
    body = []
    for series in context.series:
        lead = [Cell(text=series.name)] if several else []
        steps = sorted({int(step) for step in rows.loc[rows["series"] == series.name, "step"]})
        extra = _recommended_row(context, series, ks) if steps else None
        if extra is not None:
            shares = (None if change is None else change / 100.0 for change in extra.changes)
            cells = [Cell(text="–") if share is None else POINTS.cell(share, None, None) for share in shares]
            body.append((*lead, Cell(text=extra.name), *cells))
        for step in steps:
            at_step = [found.get((series.name, step, k)) for k in ks]
            cells = [
                Cell(text="–") if row is None else POINTS.cell(row["value"], row["low"], row["high"]) for row in at_step
            ]
            body.append((*lead, Cell.count(step), *cells))
    return Table(
        title="Changes of all checkpoints and k: data",
        columns=(
            *([Column(name="series", numeric=False)] if several else []),
            Column(name="step"),
            *(Column(name=f"k = {k}") for k in ks),
        ),
        rows=tuple(body),
        note=f"Unit: points. Brackets: {BAND if is_band else f'{numbers.NINETY_FIVE} interval'}.",
        folded=True,
    )


def ends_table(context: Context) -> tuple[Table, ...]:
    """Base and last checkpoint at every k, with both intervals of the change; nothing without a difference."""
    tables = []
    for series in context.series:
        rows = []
        for k in context.known_ks(series):
            change = context.pass_change(series, k)
            if change is None:
                continue
            band = context.source.value_at(SIMULTANEOUS, series.name, series.last_step, k=k)
            rows.append(
                (
                    Cell.count(k),
                    Cell(text=numbers.decimal(change.before, 3), sort=change.before),
                    Cell(text=numbers.decimal(change.after, 3), sort=change.after),
                    POINTS.cell(change.delta, change.low, change.high),
                    Cell(text="–") if band is None else _band_cell(band),
                )
            )
        if rows:
            tables.append(_ends_of(series, tuple(rows), several=len(context.series) > 1))
    return tuple(tables)


def _ends_of(series: SeriesSource, rows: tuple[tuple[Cell, ...], ...], *, several: bool) -> Table:
    return Table(
        title=f"pass@k of base and last checkpoint{f': {series.name}' if several else ''}",
        columns=columns(numbers=("k", "base", "last", "change (points)", "simultaneous")),
        rows=rows,
        note=f"Brackets: {numbers.NINETY_FIVE} interval of each change by itself; the {BAND} is for all k and "
        "checkpoints together.",
        narrow=True,
    )


def _band_cell(row: pd.Series) -> Cell:
    low, high = bound(row["low"]), bound(row["high"])
    if low is None or high is None:
        return Cell(text="–")
    return Cell(text=f"[{numbers.points(low)}, {numbers.points(high)}]", sort=low)


def _by_series(context: Context, figure: Figure) -> tuple[tuple[SeriesSource, Panel], ...]:
    """The panels of a figure with a panel per series."""
    if len(context.series) == 1:
        return tuple((context.series[0], panel) for panel in figure.panels)
    named = {series.name: series for series in context.series}
    return tuple((named[panel.title], panel) for panel in figure.panels)
