"""Figures of measures over few problems: a panel per scope, so that bands stay, and the number of problems in words."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from oversharp.diagnostics.measures.contract import Measure
from oversharp.reports import numbers
from oversharp.reports.evidence.source import Source
from oversharp.reports.findings.figures import MAX_BANDS, described, line_of, series_colour
from oversharp.reports.findings.tables import Display, display_of, scope_label, scope_order
from oversharp.reports.records import Figure, Line, Panel
from oversharp.reports.wording import known

#: What n counts where it is not problems.
_COUNTED = {
    ("kernel_prediction", ""): "response",
    ("kernel_lambda", ""): "response",
    ("kernel_lambda_per_token", ""): "response",
    ("kernel_rho_extremes", ""): "pair",
    ("kernel_effective_rank", "all"): "response",
}
_NO_VALUE = "No value"


def rests_on(rows: pd.DataFrame) -> str:
    """How many problems (responses, pairs) the values of one measure rest on.

    >>> rests_on(pd.DataFrame({"measure": "kernel_shift", "scope": ["seen correct", "seen wrong"], "n": [2, 8]}))
    '2 to 8 problems'
    """
    counts: dict[str, list[int]] = {}
    for measure, scope, n in zip(rows["measure"], rows["scope"], rows["n"], strict=True):
        if pd.notna(n):
            noun = _COUNTED.get((measure, scope), _COUNTED.get((measure, ""), "problem"))
            counts.setdefault(noun, []).append(int(n))
    parts = []
    for noun, ns in sorted(counts.items()):
        low, high = min(ns), max(ns)
        parts.append(numbers.plural(high, noun) if low == high else f"{low} to {numbers.plural(high, noun)}")
    return numbers.listing(tuple(parts))


def by_scope(source: Source, measure: Measure, figure: Figure, *, log_y: bool = False) -> Figure:
    """``figure`` with the number of problems in its caption, and a panel per scope where one would lose its bands."""
    rows = known(source.findings, measure.name, scope=None)
    told = _missing(source, measure)
    kept = tuple(note for note in figure.notes if not note.startswith(_NO_VALUE))
    made = replace(figure, notes=(*kept, *told), log_y=log_y and bool((rows["value"] > 0.0).all()))
    display = display_of(measure.unit, signed=measure.signed)
    scopes = sorted({str(scope) for scope in rows["scope"]}, key=scope_order)
    banded = bool((rows["low"].notna() & rows["high"].notna()).any())
    caption, cut = figure.caption, ""
    if measure.plot.group == "scope" and len(scopes) > MAX_BANDS and banded:
        low, high = _visible(rows, measure, display)
        panels = tuple(_panel(source, rows[rows["scope"] == scope], scope, display) for scope in scopes)
        limited = tuple(replace(p, lines=tuple(_limited(line, low, high) for line in p.lines)) for p in panels)
        cut = " Bands are cut at the edge of the picture; the table has them whole." if limited != panels else ""
        made = replace(
            made,
            panels=tuple(described(panel, figure.title, display, "step") for panel in limited),
            notes=told,
        )
        if "Band:" not in caption:
            caption = f"{caption} Band: {numbers.NINETY_FIVE} interval over problems."
    return replace(made, caption=f"{caption} Values rest on {rests_on(rows)}.{cut}")


def _panel(source: Source, rows: pd.DataFrame, scope: str, display: Display) -> Panel:
    lines = tuple(
        line_of(own, x="step", label=series.name, colour=series_colour(i), style=i, factor=display.factor)
        for i, series in enumerate(source.series)
        if not (own := rows[rows["series"] == series.name]).empty
    )
    return Panel(title=scope_label(scope), lines=lines)


def _visible(rows: pd.DataFrame, measure: Measure, display: Display) -> tuple[float, float]:
    """Half as much above and below the values as they span: the interval of two problems may be ten times as wide."""
    values = rows["value"].astype("float64") * display.factor
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    air = 0.5 * (high - low)
    least, most = measure.plot.y_range or (0.0, 0.0)
    return min(low - air, least * display.factor), max(high + air, most * display.factor)


def _limited(line: Line, low: float, high: float) -> Line:
    return replace(
        line,
        low=tuple(None if value is None else max(value, low) for value in line.low),
        high=tuple(None if value is None else min(value, high) for value in line.high),
    )


def _missing(source: Source, measure: Measure) -> tuple[str, ...]:
    """Why values are missing, and where: equal reasons are one sentence."""
    own = source.findings[source.findings["measure"] == measure.name]
    lacking = own[own["value"].isna() & own["why"].notna()]
    return tuple(f"{_NO_VALUE}{_where(rows, own)}: {why}." for why, rows in lacking.groupby("why", sort=False))


def _where(rows: pd.DataFrame, own: pd.DataFrame) -> str:
    """Scopes of ``rows`` and at how many checkpoints, each as far as it is not all that the measure has."""
    total = own.groupby("scope")["step"].size()
    held = rows.groupby("scope")["step"].size()
    scopes = sorted(held.index, key=scope_order)
    if len(total) == 1:
        count, most = int(held.iloc[0]), int(total.iloc[0])
        return "" if count == most else f" at {count} of {numbers.plural(most, 'checkpoint')}"
    is_whole = bool((held == total[held.index]).all())
    if is_whole:
        return "" if len(held) == len(total) else f" for {numbers.listing(tuple(map(scope_label, scopes)))}"
    of = f" of {numbers.plural(int(total.max()), 'checkpoint')}"
    named = [f"{scope_label(scope)} ({int(held[scope])}{of if i == 0 else ''})" for i, scope in enumerate(scopes)]
    return f" for {numbers.listing(tuple(named))}"
