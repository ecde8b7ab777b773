"""Coverage figures: pass@k over k with k*, changes over steps with band and onset, map of changes by step and k."""

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
    DASH,
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
from oversharp.reports.wording import float_or_none

POINTWISE, SIMULTANEOUS = "pass_at_k_delta", "pass_at_k_band"
BAND = f"simultaneous {numbers.NINETY_FIVE} band"
#: Candidates for the value of the map's darkest shade, in percentage points. The smallest that covers all values is
#: used.
SCALES = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0)


def curves(context: Context) -> Block:
    """Return the figure of pass@k over k at base, middle and last checkpoint. If pass@k fell, k* is marked."""
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
        chance = "" if star.value is None or lost_coverage(verdict) else "; not significant, so it may be chance"
        where = f"{window_text(verdict)}{', averaged' if len(verdict.window) > 1 else ''}, against the base"
        notes.append(context.with_series_name(series, f"{text} ({where}){chance}."))
        if star.value is not None and lost_coverage(verdict):
            high = star.high if star.high is not None or star.low is None else verdict.k_most
            mark = Mark(label=text.split(",")[0], x=star.value, low=star.low, high=high)
            panel = replace(panel, marks=(mark,), description=f"{panel.description} {text}.")
        panels.append(panel)
    star_note = ("k*: above this k, pass@k of the late checkpoints is below the base.",) if notes else ()
    return replace(figure, panels=tuple(panels), notes=(*star_note, *notes, *figure.notes))


def changes_over_steps(context: Context) -> tuple[Block, ...]:
    """Return the figure of the change of pass@k over steps, with a simultaneous band and the onset of a loss.

    Its table has the pointwise CIs. If there is no simultaneous band, the figure has the pointwise CIs, and a second
    block has the reason.
    """
    pointwise, band = context.block(POINTWISE), context.block(SIMULTANEOUS)
    if not isinstance(pointwise, Figure):
        return (pointwise,)
    lacking: tuple[Block, ...] = ()
    if isinstance(band, Figure):
        table = replace(pointwise.table, title=f"{pointwise.table.title}, with pointwise CIs")
        figure = replace(
            pointwise,
            panels=band.panels,
            notes=band.notes,
            table=table,
            caption=f"pass@k of each checkpoint minus pass@k of the base. Band: {BAND} over all k and checkpoints of a "
            "series. If the band is below 0 anywhere, the loss is significant.",
        )
    else:
        figure = pointwise
        why = band.why if isinstance(band, Missing) else ("all its values are equal",)
        lacking = (Missing(title="Simultaneous band of the changes", why=why),)
    panels, notes = [], []
    for series, panel in _by_series(context, figure):
        marks, text = _onset(series)
        panels.append(replace(panel, marks=marks, description=" ".join(filter(None, (panel.description, text)))))
        if text:
            notes.append(context.with_series_name(series, text))
    return (replace(figure, panels=tuple(panels), notes=(*notes, *figure.notes)), *lacking)


def _onset(series: SeriesSource) -> tuple[tuple[Mark, ...], str]:
    """Return marks and a sentence on when the decline began and was detected; empty unless the verdict is a loss."""
    verdict = series.verdict
    if verdict is None or not lost_coverage(verdict):
        return (), ""
    marks, parts = [], []
    began = verdict.decline_began
    if began is not None and began.value is not None:
        label = f"decline began, step {numbers.decimal(began.value, 0)}"
        marks.append(Mark(label=label, x=began.value, low=began.low, high=began.high))
        parts.append(f"the decline began at {decline_text(began)} (piecewise linear fit to the changes)")
    if verdict.detected_by is not None:
        marks.append(Mark(label=f"detected by step {verdict.detected_by}", x=float(verdict.detected_by)))
        parts.append(f"detected by step {verdict.detected_by}, the first step with a one-sided band below 0")
    else:
        parts.append("no single checkpoint has a one-sided band below 0")
    return tuple(marks), f"{'; '.join(parts)}."


def change_map(context: Context) -> Block:
    """Return the map of changes by checkpoint and k. Cells are marked if the simultaneous band excludes 0.

    The row of the recommendation of `oversharp ship` is outlined. If it is the base, or a checkpoint at another
    temperature, the map has an additional row for it.
    """
    title = "Change of pass@k by checkpoint and k"
    name = SIMULTANEOUS if not context.source.known_findings(SIMULTANEOUS).empty else POINTWISE
    rows = context.source.known_findings(name)
    rows = rows[rows["k"].notna()]
    rows = rows[rows["step"] != rows["series"].map({series.name: series.base_step for series in context.series})]
    if rows.empty:
        return Missing(title=title, why=("the store has no paired differences of pass@k against the base",))
    scale = scale_of([100.0 * float(value) for value in rows["value"]])
    own = [(series, rows[rows["series"] == series.name]) for series in context.series]
    is_band = name == SIMULTANEOUS
    panels = tuple(_map(context, series, frame, scale, is_band=is_band) for series, frame in own if not frame.empty)
    note = (
        f"Corner marks: the {BAND} of the series excludes 0 (top: rise; bottom: fall). A row for another temperature "
        "uses the band of the recommendation instead, over all compared series and temperatures. It can have marks at "
        "the first k and at the k of its lowest change only. The recommendation also uses a posterior: a fall without "
        "a mark may exclude a checkpoint, and the base is recommended if the gain of the best checkpoint is a toss-up."
        if is_band
        else "No marks: there is no simultaneous band."
    )
    outlined = " Outlined: recommendation of oversharp ship." if any(p.outlined is not None for p in panels) else ""
    return Figure(
        figure_id="coverage-map",
        title=title,
        caption="Change of pass@k against the base in percentage points: blue above, orange below, darker if larger. "
        f"{note}{outlined}",
        x_label="k (samples per problem)",
        y_label=STEP_LABEL,
        panels=panels,
        table=_map_table(context, rows, is_band=is_band),
    )


def scale_of(values: Sequence[float]) -> float:
    """Return the value of the map's darkest shade, in percentage points.

    >>> scale_of([-7.2, 1.0]), scale_of([])
    (10.0, 5.0)
    """
    largest = max((abs(value) for value in values), default=0.0)
    return next((scale for scale in SCALES if largest <= scale), SCALES[-1])


def _map(context: Context, series: SeriesSource, rows: pd.DataFrame, scale: float, *, is_band: bool) -> ChangeMap:
    """Return the map of one series. Without a band, no cells are marked: some of many pointwise CIs miss by chance."""
    steps = sorted({int(step) for step in rows["step"]})
    ks = sorted({int(k) for k in rows["k"]})
    by_place = {(int(row["k"]), int(row["step"])): row for row in rows.to_dict("records")}
    cells, sure = [], []
    for step in steps:
        at_step = [by_place.get((k, step)) for k in ks]
        cells.append(tuple(None if row is None else 100.0 * float(row["value"]) for row in at_step))
        sure.append(tuple(is_band and row is not None and _excludes_0(row["low"], row["high"]) for row in at_step))
    signs = [
        value > 0
        for values, marks in zip(cells, sure, strict=True)
        for value, is_sure in zip(values, marks, strict=True)
        if is_sure and value is not None
    ]
    text = f"{series.name}: changes of pass@k for k = {ks[0]} to {ks[-1]} at steps {steps[0]} to {steps[-1]}"
    if is_band:
        n_above, n_below = sum(signs), len(signs) - sum(signs)
        text += f"; of {len(ks) * len(steps)}, {n_above} are significantly above the base and {n_below} below"
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


def _find_recommendation(series: SeriesSource) -> ShippingStep | None:
    """Return the recommended step if it is the base or a checkpoint of this series, else None."""
    verdict = series.verdict
    choice = None if verdict is None or verdict.shipping is None else verdict.shipping.recommended
    return choice if choice is not None and (choice.is_base or choice.series == series.name) else None


def _recommended_step(series: SeriesSource) -> int | None:
    """Return the recommended step if it is a checkpoint at the audit's temperature, else None."""
    choice = _find_recommendation(series)
    return None if choice is None or choice.is_base or choice.temperature is not None else choice.step


@dataclass(frozen=True, kw_only=True)
class _ExtraRow:
    """Additional row of the map, for a recommendation of the base or of another temperature.

    ``changes`` are in percentage points, one per k. ``sure`` has the k at which the band of the recommendation excludes
    0. That band is known only at the first k and at the k of the lowest change.
    """

    name: str
    changes: tuple[float | None, ...]
    sure: frozenset[int] = frozenset()


def _recommended_row(context: Context, series: SeriesSource, ks: Sequence[int]) -> _ExtraRow | None:
    """Return the additional row, which is above the checkpoints; None if the recommendation needs none."""
    choice = _find_recommendation(series)
    if choice is None or _recommended_step(series) is not None:
        return None
    if choice.temperature is None:
        return _ExtraRow(name="base", changes=(0.0,) * len(ks))
    step = series.base_step if choice.is_base else choice.step
    scope = f"T={choice.temperature:g}"
    pairs = [
        (
            context.source.value_at("control_pass_at_k", series.name, step, k=k, scope=scope),
            context.source.value_at("pass_at_k", series.name, series.base_step, k=k),
        )
        for k in ks
    ]
    changes = tuple(
        None if control is None or base is None else 100.0 * float(control["value"] - base["value"])
        for control, base in pairs
    )
    banded = [change for change in (choice.first, choice.worst) if change is not None]
    sure = frozenset(change.k for change in banded if _excludes_0(change.low, change.high))
    return _ExtraRow(name=scope if choice.is_base else f"{step}, {scope}", changes=changes, sure=sure)


def _excludes_0(low: object, high: object) -> bool:
    low_f, high_f = float_or_none(low), float_or_none(high)
    return low_f is not None and high_f is not None and (low_f > 0.0 or high_f < 0.0)


def _map_table(context: Context, rows: pd.DataFrame, *, is_band: bool) -> Table:
    several = len(context.series) > 1
    ks = sorted({int(k) for k in rows["k"]})
    by_place = {(row["series"], int(row["step"]), int(row["k"])): row for row in rows.to_dict("records")}
    body = []
    for series in context.series:
        lead = [Cell(text=series.name)] if several else []
        steps = sorted({int(step) for step in rows.loc[rows["series"] == series.name, "step"]})
        extra = _recommended_row(context, series, ks) if steps else None
        if extra is not None:
            shares = (None if change is None else change / 100.0 for change in extra.changes)
            cells = [DASH if share is None else POINTS.cell(share, None, None) for share in shares]
            body.append((*lead, Cell(text=extra.name), *cells))
        for step in steps:
            at_step = [by_place.get((series.name, step, k)) for k in ks]
            cells = [DASH if row is None else POINTS.cell(row["value"], row["low"], row["high"]) for row in at_step]
            body.append((*lead, Cell.count(step), *cells))
    return Table(
        title="Changes of all checkpoints and k: data",
        columns=(
            *([Column(name="series", numeric=False)] if several else []),
            Column(name="step"),
            *(Column(name=f"k = {k}") for k in ks),
        ),
        rows=tuple(body),
        note=f"Unit: percentage points. Brackets: {BAND if is_band else f'pointwise {numbers.NINETY_FIVE} CI'}.",
        folded=True,
    )


def ends_table(context: Context) -> tuple[Table, ...]:
    """Return a table per series with pass@k at base and last checkpoint, and the change with CI and band."""
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
                    DASH if band is None else _band_cell(band),
                )
            )
        if rows:
            table = Table(
                title=f"pass@k of base and last checkpoint{f': {series.name}' if len(context.series) > 1 else ''}",
                columns=columns(numbers=("k", "base", "last", "change (points)", "simultaneous")),
                rows=tuple(rows),
                note=f"Brackets: pointwise {numbers.NINETY_FIVE} CI of the change, then the {BAND} over all k and "
                "checkpoints. Changes are in percentage points.",
                narrow=True,
            )
            tables.append(table)
    return tuple(tables)


def _band_cell(row: pd.Series) -> Cell:
    low, high = float_or_none(row["low"]), float_or_none(row["high"])
    if low is None or high is None:
        return DASH
    return Cell(text=f"[{numbers.points(low)}, {numbers.points(high)}]", sort=low)


def _by_series(context: Context, figure: Figure) -> tuple[tuple[SeriesSource, Panel], ...]:
    """Return the panels of a figure that has one panel per series, each with its series."""
    if len(context.series) == 1:
        return tuple((context.series[0], panel) for panel in figure.panels)
    named = {series.name: series for series in context.series}
    return tuple((named[panel.title], panel) for panel in figure.panels)
