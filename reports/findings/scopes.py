"""Figures of measures over few problems: one panel per scope to keep bands, and counts in the caption."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from oversharp.diagnostics.measures.contract import Measure
from oversharp.reports import numbers
from oversharp.reports.evidence.source import Source
from oversharp.reports.findings.figures import MAX_BANDS, describe_panel, line_of, series_colour
from oversharp.reports.findings.tables import Display, display_of, scope_label, scope_order
from oversharp.reports.records import Figure, Line, Panel
from oversharp.reports.wording import known_findings

#: (measure, scope) → noun of the counts n, if not problems.
_COUNTED = {
    ("kernel_prediction", ""): "response",
    ("kernel_lambda", ""): "response",
    ("kernel_lambda_per_token", ""): "response",
    ("kernel_rho_extremes", ""): "pair",
    ("kernel_effective_rank", "all"): "response",
}
_NO_VALUE = "No value"


def sample_size_text(rows: pd.DataFrame) -> str:
    """Return the number of problems (responses, pairs) behind the values of one measure.

    >>> rows = pd.DataFrame({"measure": "kernel_shift", "scope": ["seen correct", "seen wrong"], "n": [2, 8]})
    >>> sample_size_text(rows)
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


def split_by_scope(source: Source, measure: Measure, figure: Figure) -> Figure:
    """Add the number of problems to the caption, and use one panel per scope if bands would be dropped."""
    rows = known_findings(source.findings, measure.name, scope=None)
    reasons = _missing_notes(source, measure)
    kept = tuple(note for note in figure.notes if not note.startswith(_NO_VALUE))
    log_y = measure.plot.log_y and bool((rows["value"] > 0.0).all())
    made = replace(figure, notes=(*kept, *reasons), log_y=log_y)
    display = display_of(measure.unit, signed=measure.signed)
    scopes = sorted({str(scope) for scope in rows["scope"]}, key=scope_order)
    banded = bool((rows["low"].notna() & rows["high"].notna()).any())
    caption, cut = figure.caption, ""
    if measure.plot.group == "scope" and len(scopes) > MAX_BANDS and banded:
        low, high = _visible(rows, measure, display)
        panels = tuple(_panel(source, rows[rows["scope"] == scope], scope, display) for scope in scopes)
        limited = tuple(replace(p, lines=tuple(_clip_band(line, low, high) for line in p.lines)) for p in panels)
        cut = " Bands are clipped at the edge of the figure; the table has the full CIs." if limited != panels else ""
        made = replace(
            made,
            panels=tuple(describe_panel(panel, figure.title, display, "step") for panel in limited),
            notes=reasons,
        )
        if "Band:" not in caption:
            caption = f"{caption} Band: {numbers.NINETY_FIVE} CI over problems."
    return replace(made, caption=f"{caption} Based on {sample_size_text(rows)}.{cut}")


def _panel(source: Source, rows: pd.DataFrame, scope: str, display: Display) -> Panel:
    lines = tuple(
        line_of(own, x="step", label=series.name, colour=series_colour(i), style=i, factor=display.factor)
        for i, series in enumerate(source.series)
        if not (own := rows[rows["series"] == series.name]).empty
    )
    return Panel(title=scope_label(scope), lines=lines)


def _visible(rows: pd.DataFrame, measure: Measure, display: Display) -> tuple[float, float]:
    """Return y limits with a margin of half the range of values: CIs over two problems may be ten times as wide."""
    values = rows["value"].astype("float64") * display.factor
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    air = 0.5 * (high - low)
    least, most = measure.plot.y_range or (0.0, 0.0)
    return min(low - air, least * display.factor), max(high + air, most * display.factor)


def _clip_band(line: Line, low: float, high: float) -> Line:
    return replace(
        line,
        low=tuple(None if value is None else max(value, low) for value in line.low),
        high=tuple(None if value is None else min(value, high) for value in line.high),
    )


def _missing_notes(source: Source, measure: Measure) -> tuple[str, ...]:
    """Return one note per reason for missing values, with the scopes and checkpoints."""
    own = source.findings[source.findings["measure"] == measure.name]
    lacking = own[own["value"].isna() & own["why"].notna()]
    return tuple(f"{_NO_VALUE}{_where(rows, own)}: {why}." for why, rows in lacking.groupby("why", sort=False))


def _where(rows: pd.DataFrame, own: pd.DataFrame) -> str:
    """Return the scopes and the number of checkpoints of ``rows``, unless these are all of the measure."""
    total = own.groupby("scope")["step"].size()
    counts = rows.groupby("scope")["step"].size()
    scopes = sorted(counts.index, key=scope_order)
    if len(total) == 1:
        count, most = int(counts.iloc[0]), int(total.iloc[0])
        return "" if count == most else f" at {count} of {numbers.plural(most, 'checkpoint')}"
    is_whole = bool((counts == total[counts.index]).all())
    if is_whole:
        return "" if len(counts) == len(total) else f" for {numbers.listing(tuple(map(scope_label, scopes)))}"
    of = f" of {numbers.plural(int(total.max()), 'checkpoint')}"
    named = [f"{scope_label(scope)} ({int(counts[scope])}{of if i == 0 else ''})" for i, scope in enumerate(scopes)]
    return f" for {numbers.listing(tuple(named))}"
