"""Build the figure record of a measure from its findings and plot spec."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pandas as pd

from oversharp.diagnostics.measures.contract import Measure
from oversharp.reports import numbers
from oversharp.reports.evidence.source import SeriesSource, Source
from oversharp.reports.findings.hints import missing_value
from oversharp.reports.findings.tables import (
    Display,
    display_of,
    is_ordered,
    measure_table,
    scope_label,
    scope_order,
    spread_evenly,
)
from oversharp.reports.records import STEP_LABEL, Colour, Constant, Figure, Line, Missing, Panel
from oversharp.reports.wording import WITH_MODES, float_or_none, reasons

SERIES_COLOURS: tuple[Colour, ...] = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")
ORDERED_COLOURS: tuple[Colour, ...] = ("q1", "q2", "q3", "q4", "q5", "q6")
MAX_ORDERED_LINES = 4
MAX_BINS = 5
MAX_BANDS = 3  # with more lines, bands would hide each other; the table has the CIs
MAX_SCOPES = 8
MAX_NAME = 50
#: Scopes that only help to interpret other scopes. A measure with values for no other scope has no figure.
QUALIFIERS = frozenset({"noise"})


def series_colour(index: int) -> Colour:
    """Return the colour of the series at ``index``. There are eight colours, which repeat."""
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def ordered_colours(count: int) -> tuple[Colour, ...]:
    """Return ``count`` colours, evenly spread over the ordered colours.

    >>> ordered_colours(3)
    ('q1', 'q3', 'q6')
    """
    if count == 1:
        return (ORDERED_COLOURS[-1],)
    last = len(ORDERED_COLOURS) - 1
    return tuple(ORDERED_COLOURS[min(last, int(i * last / (count - 1)))] for i in range(count))


def checkpoint_role(series: SeriesSource, step: int) -> str:
    """Return the role of ``step`` in figures that show three checkpoints: base, middle or last."""
    if step == series.base_step:
        return "base"
    return "last" if step == series.last_step else "middle"


def step_ticks(source: Source) -> tuple[float, ...]:
    """Return every audited step. All figures over steps have these ticks."""
    return tuple(sorted({float(step) for series in source.series for step in series.checkpoints["step"]}))


def first_sentence(doc: str) -> str:
    """Return the first sentence of a measure's docstring, without markup and without the leading name.

    >>> first_sentence("Pass: chance that ``k`` tries hold one. More.\\n\\nUnit: probability.")
    'Chance that k tries hold one.'
    """
    paragraph = " ".join(doc.strip().split("\n\n")[0].split()).replace("``", "")
    match = re.match(r"(.+?[.!?])(?=\s+[A-Z(]|$)", paragraph)
    sentence = match.group(1) if match else paragraph
    name, _, meaning = sentence.partition(": ")
    if meaning and len(name) < MAX_NAME:
        sentence = meaning
    return sentence[:1].upper() + sentence[1:]


def line_of(
    rows: pd.DataFrame,
    *,
    x: str,
    label: str,
    colour: Colour,
    style: int,
    factor: float = 1.0,
    bands: bool = True,
) -> Line:
    """Return a line through ``rows`` in ascending order of the column ``x``, with CIs if ``bands``."""
    rows = rows.sort_values(x, kind="stable")
    low = tuple(None if (v := float_or_none(cell)) is None else factor * v for cell in rows["low"])
    high = tuple(None if (v := float_or_none(cell)) is None else factor * v for cell in rows["high"])
    banded = bands and any(value is not None for value in low) and any(value is not None for value in high)
    return Line(
        label=label,
        x=tuple(float(v) for v in rows[x]),
        y=tuple(factor * float(v) for v in rows["value"]),
        colour=colour,
        style=style,
        low=low if banded else (),
        high=high if banded else (),
    )


def series_lines(source: Source, rows: pd.DataFrame, display: Display) -> tuple[Line, ...]:
    """Return a line over steps for each series with rows."""
    return tuple(
        line_of(own, x="step", label=series.name, colour=series_colour(i), style=i, factor=display.factor)
        for i, series in enumerate(source.series)
        if not (own := rows[rows["series"] == series.name]).empty
    )


def measure_block(source: Source, measure: Measure) -> Figure | Constant | Missing:
    """Return the figure of ``measure``; a sentence if it is constant, or the reason if it has no values."""
    title = measure.title
    scope = None if measure.plot.group == "scope" else "all"
    rows = source.known_findings(measure.name, scope=scope)
    if scope is None and "mode_logps" in measure.needs and WITH_MODES in source.scopes:
        title = f"{title}, {scope_label(WITH_MODES)}"
    why = reasons(source.findings_of(measure.name))
    if rows.empty and not (rows := source.known_findings(measure.name, scope=WITH_MODES)).empty:
        # only some problems list their modes, so the title must not suggest values over all problems
        title = f"{title}, {scope_label(WITH_MODES)}"
    elif rows.empty:
        rows = source.known_findings(measure.name, scope=None)
    if rows.empty or set(rows["scope"]) <= QUALIFIERS:
        why = why or (f"this store has no finding of {measure.name}",)
        return missing_value(source, title, why, unmeasured=measure.missing)
    display = display_of(str(rows["unit"].iloc[0]), signed=measure.signed)
    one_k: tuple[str, ...] = ()
    if measure.plot.group == "scope" and rows["k"].nunique() > 1:  # a line per scope can show one k only
        rows = rows[rows["k"] == rows["k"].min()]
        one_k = (f"Shown: k = {int(rows['k'].iloc[0])}; the findings in the store have every k.",)
    if measure.plot.x == "step" and (constant := _constant(source, measure, rows, display)) is not None:
        return replace(constant, title=title)
    drawn = _add_base_rows(source, rows) if display.is_difference and measure.plot.x == "step" else rows
    panels, dropped = _panels(source, measure, drawn, display)
    panels = tuple(describe_panel(panel, title, display, measure.plot.x) for panel in panels)
    banded = any(line.low for panel in panels for line in panel.lines)
    of = first_round_text(source) if measure.first_round else ""
    caption = f"{first_sentence(measure.doc)}{of}"
    if banded:
        caption = f"{caption} Band: {numbers.NINETY_FIVE} CI over {_units(rows)}.".strip()
    y_range = measure.plot.y_range
    unknown = "No value" if title == measure.title else "No value for all problems"
    return Figure(
        figure_id=f"measure-{measure.name.replace('_', '-')}",
        title=title,
        caption=caption,
        x_label="k (samples per problem)" if measure.plot.x == "k" else STEP_LABEL,
        y_label=_y_label(measure, display),
        panels=panels,
        table=measure_table(source, measure, rows, display),
        log_x=measure.plot.log_x,
        x_ticks=step_ticks(source) if measure.plot.x == "step" else (),
        y_range=None if y_range is None else (y_range[0] * display.factor, y_range[1] * display.factor),
        zero_line=measure.signed,
        notes=(
            *interval_end(source, rows, measure.plot.x, first_round=measure.first_round),
            *one_k,
            *dropped,
            *(f"{unknown}: {reason}." for reason in why),
            *(f"No CI: {reason}." for reason in rows["why_no_interval"].dropna().unique()),
        ),
    )


def _units(rows: pd.DataFrame) -> str:
    """Return the resampling unit of the CIs of ``rows``, for a caption."""
    return "clusters of related problems" if (rows["interval_over"] == "clusters").any() else "problems"


def interval_end(source: Source, rows: pd.DataFrame, x: str, *, first_round: bool = False) -> tuple[str, ...]:
    """Return a note on the largest k with a band. The audit computes CIs up to half the number of samples."""
    has_interval = rows["low"].notna() & rows["high"].notna()
    ks = rows["k"].astype("float64")
    if not has_interval.any() or not (ks[~has_interval] > ks[has_interval].max()).any():
        return ()
    sizes = {
        series.first_round if first_round and series.first_round is not None else series.n for series in source.series
    }
    ends = numbers.listing(tuple(f"{n // 2} of {n}" for n in sorted(sizes)))
    beyond = "the curve continues without a band" if x == "k" else "larger k have no band"
    is_cap = not first_round and any(series.is_stopped for series in source.series)
    largest = "largest " if is_cap else ""
    return (f"CIs end at half the {largest}number of samples per problem ({ends}); {beyond}.",)


def first_round_text(source: Source) -> str:
    """Return the sentence that a figure uses the first round only, "" if no series has a stopping rule."""
    sizes = tuple(dict.fromkeys(str(series.first_round) for series in source.series if series.is_stopped))
    if not sizes:
        return ""
    return f" From the first round of sampling: {numbers.listing(sizes)} samples per problem."


def _constant(source: Source, measure: Measure, rows: pd.DataFrame, display: Display) -> Constant | None:
    """Return a sentence in place of the figure if each scope is constant over checkpoints and series, else None."""
    by = "k" if measure.plot.group == "k" else "scope"
    spans = rows.groupby(by, sort=True)["value"].agg(["min", "max"])
    if len(rows) < 2 or (spans["min"] != spans["max"]).any() or display.is_difference:
        return None
    parts = [
        display.text(float(value)) if len(spans) == 1 else f"{scope_label(str(name))} {display.text(float(value))}"
        for name, value in spans["min"].items()
    ]
    meaning = f"{first_sentence(measure.doc)}{first_round_text(source) if measure.first_round else ''}"
    return Constant(
        title=measure.title,
        text=f"{meaning} It is the same at every checkpoint: {', '.join(parts)} ({display.unit}).",
        table=measure_table(source, measure, rows, display),
    )


def _add_base_rows(source: Source, rows: pd.DataFrame) -> pd.DataFrame:
    """Add a row per series with difference 0 at the base."""
    groups = rows[["series", "measure", "scope", "k", "unit"]].drop_duplicates()
    base_step = {series.name: series.base_step for series in source.series}
    origin = groups.assign(step=groups["series"].map(base_step), value=0.0, low=0.0, high=0.0)
    is_base = rows["step"] == rows["series"].map(base_step)
    return pd.concat([origin, rows[~is_base]], ignore_index=True)


def _y_label(measure: Measure, display: Display) -> str:
    label = measure.plot.y_label or measure.title
    if display.is_difference:
        return f"{label} (percentage points)"
    return label if display.unit in label or label.startswith("share of") else f"{label} ({display.unit})"


def _panels(
    source: Source, measure: Measure, rows: pd.DataFrame, display: Display
) -> tuple[tuple[Panel, ...], tuple[str, ...]]:
    """Return the panels and notes on omitted lines.

    There is one panel per series, or a single panel if the measure has one line per series.
    """
    plot = measure.plot
    whole = rows[rows["scope"] == "all"]
    as_one = plot.group == "scope" and len(source.series) > 1 and not whole.empty
    if plot.x == "step" and (plot.group == "none" or as_one):
        lines = series_lines(source, whole if as_one else rows, display)
        return (Panel(title="", lines=lines),), _left_to_table(rows) if as_one else ()
    dropped: tuple[str, ...] = ()
    groups: tuple[Any, ...] = ()
    if plot.group == "k":
        every = sorted({int(k) for k in rows["k"].dropna()})
        groups = spread_evenly(every, MAX_ORDERED_LINES)
        if len(groups) < len(every):
            dropped = (f"Shown: {len(groups)} of {len(every)} values of k; the table has all.",)
    elif plot.group == "scope":
        largest = rows.groupby("scope", sort=True)["value"].max().sort_values(ascending=False, kind="stable")
        names = sorted((str(scope) for scope in largest.index), key=scope_order)
        if is_ordered(names):
            counts = rows.groupby("scope", sort=True)["n"].max().sort_values(ascending=False, kind="stable")
            largest_bins = {str(scope) for scope in counts.index[:MAX_BINS]}
            groups = tuple(name for name in names if name in largest_bins)
            if len(groups) < len(names):
                dropped = (
                    f"Shown: the {len(groups)} of {len(names)} groups with the most problems; the table has all.",
                )
        else:
            groups = tuple(sorted((str(scope) for scope in largest.index[:MAX_SCOPES]), key=scope_order))
            if len(groups) < len(names):
                dropped = (f"Shown: the {len(groups)} of {len(names)} groups with the largest values.",)
    panels = []
    for series in source.series:
        own = rows[rows["series"] == series.name]
        if own.empty:
            continue
        name = series.name if len(source.series) > 1 else ""
        panels.append(Panel(title=name, lines=_lines(source, series, own, plot.x, plot.group, groups, display)))
    return tuple(panels), dropped


def _left_to_table(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return a note on the scopes that are in the table but not in the figure."""
    names = tuple(scope_label(scope) for scope in sorted({str(scope) for scope in rows["scope"]} - {"all"}))
    return (f"Also in the table: {numbers.listing(names)}.",) if names else ()


def _lines(
    source: Source,
    series: SeriesSource,
    rows: pd.DataFrame,
    x: str,
    group: str,
    groups: tuple[Any, ...],
    display: Display,
) -> tuple[Line, ...]:
    if group in ("k", "scope"):
        colours: tuple[Colour, ...] = tuple(series_colour(i) for i in range(len(groups)))
        if group == "k":
            colours = ordered_colours(len(groups))
        elif is_ordered([str(value) for value in groups]):
            bins = [scope for scope in groups if scope != "all"]
            whole: tuple[Colour, ...] = ("ink",) if "all" in groups else ()
            colours = (*whole, *ordered_colours(len(bins)))
        return tuple(
            line_of(
                own,
                x=x,
                label=f"k = {value}" if group == "k" else scope_label(str(value)),
                colour=colour,
                style=i,
                factor=display.factor,
                bands=group == "k" or len(groups) <= MAX_BANDS,
            )
            for i, (value, colour) in enumerate(zip(groups, colours, strict=True))
            if not (own := rows[rows[group] == value]).empty
        )
    looks: dict[str, tuple[Colour, int]] = {"base": ("muted", 1), "middle": ("q2", 2), "last": ("q5", 0)}
    lines = []
    for step in series.shown_steps:
        own = rows[rows["step"] == step]
        if not own.empty:
            role = checkpoint_role(series, step)
            colour, style = looks[role]
            label = role
            if len({other.shown_steps for other in source.series}) == 1:
                label = f"base (step {step})" if role == "base" else f"step {step}"
            lines.append(line_of(own, x=x, label=label, colour=colour, style=style, factor=display.factor))
    return tuple(lines)


def describe_panel(panel: Panel, title: str, display: Display, x: str) -> Panel:
    """Return ``panel`` with a text alternative for screen readers: start and end of every line."""
    shown = Display(factor=1.0, unit=display.unit, is_difference=False)
    at = "k" if x == "k" else "step"
    parts = []
    for line in panel.lines:
        part = f"{line.label}: {shown.text(line.y[0])} at {at} {_plain(line.x[0])}"
        if len(line.x) > 1:
            part += f", {shown.text(line.y[-1])} at {at} {_plain(line.x[-1])}"
        if (span := line.beyond) is not None:
            part += f", between {shown.text(span.low)} and {shown.text(span.high)} at {at} {_plain(span.x)}"
        parts.append(part)
    name = f"{title}, {panel.title}" if panel.title else title
    return replace(panel, description=f"{name}. {'; '.join(parts)}.")


def _plain(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and float(value).is_integer() else f"{value:g}"
