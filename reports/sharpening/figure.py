"""Figure of pass@k against pass@1, with runs and their base at lower temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oversharp.diagnostics.statistics.frontier import FrontierPoints, frontier_curve
from oversharp.diagnostics.verdict.words.sharpening import sharpening_text
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import series_colour
from oversharp.reports.findings.tables import display_of
from oversharp.reports.pictures.plane import Plane, Spot
from oversharp.reports.records import Cell, Colour, Figure, Line, Table, columns
from oversharp.reports.sharpening.points import Point, Points, k_of, points_of
from oversharp.reports.wording import float_or_none

TITLE = "better, or only sharper?"
LOWER_T = "base at lower temperatures"
POWER = "base, reweighted to p^α"
#: Note for a base that was not sampled at lower temperatures.
HOW = (
    "Not measured: how much of this change a lower temperature of the base would give. To measure it, run oversharp "
    "audit with --controls, which samples the base at lower temperatures."
)
#: Note for a base without weights here, imported or behind a server, that was not sampled at lower temperatures.
HOW_OF_SAMPLES = (
    "Not measured: how much of this change a lower temperature of the base would give. There are no samples of "
    "the base at lower temperatures. To sample them, run oversharp audit --controls on the checkpoints."
)
_MOST_STEPS = 4  # maximum number of labelled points on a path
_SOLID_STYLES = 6  # every sixth line style is a solid line
_PROBABILITY = display_of("probability", signed=False)

Plain = tuple[float, float]


def sharpening_figure(context: Context, series: SeriesSource) -> Figure | None:
    """Return the figure of one series; None if it has no path of at least two points.

    It includes the base at lower temperatures if that was sampled. A ring marks the recommendation of `oversharp ship`
    if it is in the figure.
    """
    points = points_of(context, series)
    if points is None:
        return None
    place = [other.name for other in context.series].index(series.name)
    line = _path(points, place)
    return replace(
        _figure([points], [line]),
        figure_id=f"sharpening-{place + 1}",
        title=f"{series.name}: {TITLE}",
        notes=_notes_of(context, [points]),
        finding="" if series.verdict is None else sharpening_text(series.verdict),
    )


def first_figure(context: Context) -> Figure | None:
    """Return the figure for the first screen, with one panel per base."""
    if len(context.series) == 1:
        return sharpening_figure(context, context.series[0])
    return shared_figure(context) or _side_by_side(context, _by_base(context))


def separate_figures(context: Context) -> tuple[Figure, ...]:
    """Return a separate figure for every series that shares a panel with another series on the first screen."""
    one_picture = shared_figure(context) is not None
    groups = [[points.series for points in group] for group in _by_base(context)]
    joined = context.series if one_picture else [series for group in groups if len(group) > 1 for series in group]
    figures = (sharpening_figure(context, series) for series in joined)
    return tuple(figure for figure in figures if figure is not None)


def _by_base(context: Context) -> list[list[Points]]:
    """Group the series that have a path. A group shares the samples of the base and k."""
    groups: dict[tuple[object, ...], list[Points]] = {}
    for series in context.series:
        if (points := points_of(context, series)) is not None:
            groups.setdefault(_base(points), []).append(points)
    return list(groups.values())


def _side_by_side(context: Context, groups: Sequence[Sequence[Points]]) -> Figure | None:
    """Return a figure with one panel per base. Panels may have different k."""
    if not groups:
        return None
    places = {series.name: place for place, series in enumerate(context.series)}
    made = [_figure(group, [_path(points, places[points.series.name]) for points in group]) for group in groups]
    titles = [
        f"{numbers.listing(tuple(points.series.name for points in group))}: pass@{group[0].k}" for group in groups
    ]
    rows = [
        (*row[:3], Cell.count(group[0].k), row[3])
        for group, figure in zip(groups, made, strict=True)
        for row in figure.table.rows
    ]
    all_points = [points for group in groups for points in group]
    return replace(
        made[0],
        title=f"{TITLE[0].upper()}{TITLE[1:]}",
        caption=_caption(
            all_points,
            has_lower_t=any(len(point.lower_t) > 1 for point in all_points),
            has_ring=any(isinstance(panel, Plane) and panel.ringed for figure in made for panel in figure.panels),
        ),
        y_label="pass@k (probability)",
        panels=tuple(replace(figure.panels[0], title=title) for figure, title in zip(made, titles, strict=True)),
        notes=tuple(dict.fromkeys(note for group in groups for note in _notes_of(context, group))),
        table=replace(
            made[0].table,
            note=" ".join(dict.fromkeys(figure.table.note for figure in made if figure.table.note)),
            columns=columns("series", "checkpoint", numbers=("pass@1", "k", "pass@k")),
            rows=tuple(rows),
        ),
    )


def _notes_of(context: Context, group: Sequence[Points]) -> tuple[str, ...]:
    without = tuple(note for points in group for note in _missing_controls_notes(context, points))
    return (*without, *_omitted_notes(group), *_truncation_notes(group, whole=len(group) == len(context.series)))


def shared_figure(context: Context) -> Figure | None:
    """Return one figure of all series, at the largest k that all have.

    None for a single series, or if the series have different bases or no path. The figure has one frontier, because
    series with the same base and settings share the base's samples in a store, at every temperature.
    """
    ks = [k for series in context.series if (k := k_of(context, series)) is not None]
    at = min(ks, default=None)
    all_points = [points for series in context.series if (points := points_of(context, series, at)) is not None]
    if (
        len(all_points) < 2
        or len(all_points) < len(context.series)
        or any(_base(other) != _base(all_points[0]) for other in all_points)
    ):
        return None
    paths = [_path(points, place, style=_SOLID_STYLES * place) for place, points in enumerate(all_points)]
    title = f"{numbers.listing(tuple(other.series.name for other in all_points))}: {TITLE}"
    notes = tuple(dict.fromkeys(_notes_of(context, all_points)))
    return replace(_figure(all_points, paths), figure_id="compare-sharpening", title=title, notes=notes)


def _base(points: Points) -> tuple[object, ...]:
    """Return a key of the base's samples. Series that share these samples have equal keys."""
    series = points.series
    lower_t = tuple(point.place for point in points.lower_t)
    return (series.base_id, series.settings_id, series.problem_ids, points.k, series.verifier, lower_t)


# ---------------------------------------------------------------- plot


def _figure(all_points: Sequence[Points], paths: Sequence[Line]) -> Figure:
    """Return the figure of paths from one base, including the base at lower temperatures if that was sampled."""
    first = all_points[0]
    has_lower_t = len(first.lower_t) > 1
    ringed = _recommended_point(all_points)
    names = [_names(points, ringed, is_short=len(all_points) > 1) for points in all_points]
    panel = Plane(
        title="",
        lines=tuple(paths),
        names=(*names[:1], *(("", *others[1:]) for others in names[1:])),  # only the first path labels the base
        higher_t=_higher_t_spots(all_points, paths),
        ringed=() if ringed is None else (_ring_spot(ringed, all_points),),
        description=_describe_plane(all_points),
    )
    if has_lower_t:
        panel = _add_base_frontier(panel, first)
    return Figure(
        figure_id="sharpening",
        title=TITLE,
        caption=_caption(all_points, has_lower_t=has_lower_t, has_ring=bool(panel.ringed)),
        x_label="pass@1 (probability)",
        y_label=f"pass@{first.k} (probability)",
        panels=(panel,),
        table=replace(_table(all_points), note=_below_plot_note(panel, first)),
    )


def _add_base_frontier(panel: Plane, points: Points) -> Plane:
    """Add the base at lower temperatures to ``panel``. Its curve has the label of the base, not the paths."""
    frontier = Line(
        label=LOWER_T,
        x=tuple(point.at_1[0] for point in points.lower_t),
        y=tuple(point.at_k[0] for point in points.lower_t),
        colour="muted",
        style=1,
    )
    power = _power(points, lowest=min(y for line in (frontier, *panel.lines) for y in line.y))
    return replace(
        panel,
        lines=(frontier, *power, *panel.lines),
        names=(
            tuple(point.name for point in points.lower_t),
            *(("",) * (len(line.x) - 1) + (_last_power(points, line),) for line in power),
            *(("", *names[1:]) for names in panel.names),
        ),
        curve=_curve(points, [point.place for point in points.lower_t]),
        band=_band(points),
        greedy=None if points.greedy is None else Spot(name="greedy", x=points.greedy[0], y=points.greedy[0]),
    )


def _power(points: Points, *, lowest: float) -> tuple[Line, ...]:
    """Return the line of the reweighted base. Points below ``lowest`` are omitted, as they would compress the plot."""
    shown = [point for point in points.power if point.at_k[0] >= lowest]
    if not shown:
        return ()
    xs, ys = zip(*(point.place for point in (points.run[0], *shown)), strict=True)
    return (Line(label=POWER, x=xs, y=ys, colour="muted", style=2),)


def _below_plot_note(panel: Plane, points: Points) -> str:
    """Return a note on points that are in the table but below the plot, or "" without any."""
    n_drawn = next((len(line.x) - 1 for line in panel.lines if line.label == POWER), 0)
    names = tuple(f"base reweighted, {point.name}" for point in points.power[n_drawn:])
    return f"Below the plot, not shown: {numbers.listing(names)}." if names else ""


def _last_power(points: Points, line: Line) -> str:
    return points.power[len(line.x) - 2].name


def _higher_t_spots(all_points: Sequence[Points], paths: Sequence[Line]) -> tuple[tuple[Spot, Spot, Colour], ...]:
    return tuple(
        (next(own for own in points.run if own.step == point.step).spot, point.spot, line.colour)
        for points, line in zip(all_points, paths, strict=True)
        for point in points.higher_t
    )


def _recommended_point(all_points: Sequence[Points]) -> Point | None:
    """Return the point of the recommendation; None if it is not in this figure."""
    for points in all_points:
        verdict = points.series.verdict
        recommended = None if verdict is None or verdict.shipping is None else verdict.shipping.recommended
        if recommended is None or not (recommended.is_base or recommended.series == points.series.name):
            continue
        step = points.series.base_step if recommended.is_base else recommended.step
        drawn = points.run if recommended.temperature is None else (*points.lower_t[1:], *points.higher_t)
        name = None if recommended.temperature is None else f"T={recommended.temperature:g}"
        matching = [point for point in drawn if point.step == step and (name is None or point.name == name)]
        if matching:
            return matching[0]
    return None


def _ring_spot(ringed: Point, all_points: Sequence[Points]) -> Spot:
    """Return the spot of the ring. It has no label if another point at this position has the same label."""
    named = [
        point for points in all_points for point in (points.run[0], points.run[-1], *points.lower_t, *points.higher_t)
    ]
    return replace(ringed.spot, name="") if ringed in named else ringed.spot


def _path(points: Points, place: int, style: int = 0) -> Line:
    return Line(
        label=points.series.name,
        x=tuple(point.at_1[0] for point in points.run),
        y=tuple(point.at_k[0] for point in points.run),
        colour=series_colour(place),
        style=style,
    )


def _names(points: Points, ringed: Point | None, *, is_short: bool) -> tuple[str, ...]:
    """Return the labels of a path: the base, the last checkpoint and a few in between.

    The recommended point has no label here, because the ring has one.
    """
    last = len(points.run) - 1
    every = -(-last // _MOST_STEPS)
    named = [i for i in range(1, last) if not is_short and not (last - i) % every]
    between = [i for i in named if points.run[i] is not ringed]
    return tuple(
        point.name if i in (0, last) else str(point.step) if i in between else "" for i, point in enumerate(points.run)
    )


def _curve(points: Points, places: Sequence[Plain]) -> tuple[Plain, ...]:
    """Return the monotone interpolation through ``places`` that the comparison with the frontier uses."""
    x_S1, y_S1 = (np.array([[place[i]] for place in places]) for i in (0, 1))
    sharpness_S = np.array([point.sharpness for point in points.lower_t])
    x_R, y_R = frontier_curve(FrontierPoints(sharpness_S=sharpness_S, x_SP=x_S1, y_SP=y_S1, limit_P=None))
    return tuple(zip(x_R.tolist(), y_R.tolist(), strict=True))


def _band(points: Points) -> tuple[Plain, ...]:
    """Return the outline of the CI: lower curve, greedy point, upper curve. Empty without bounds."""
    corners: list[list[Plain]] = [[], []]
    for point in points.lower_t:
        for corner, x, y in zip(corners, point.at_1[1:], point.at_k[1:], strict=True):
            if x is None or y is None:
                return ()
            corner.append((x, y))
    low, high = (_curve(points, corner) for corner in corners)
    greedy = () if points.greedy is None else points.greedy[1:]
    return (*low, *((end, end) for end in greedy if end is not None), *reversed(high))


# ---------------------------------------------------------------- texts


def _caption(all_points: Sequence[Points], *, has_lower_t: bool, has_ring: bool) -> str:
    repaired = [point.series.is_repaired for point in all_points]
    order = "of their λ" if all(repaired) else "of their steps" if any(repaired) else "of training"
    path = f"One point per checkpoint, joined in the order {order}, starting at the base"
    ring = ["Ringed: recommendation of oversharp ship over all series."] if has_ring else []
    if not has_lower_t:
        return " ".join((f"{path}.", *ring))
    parts = [
        f"Solid: {path[0].lower()}{path[1:]}. Dashed: the base at lower temperatures T, without training. Points above "
        "or to the right of it exceed what a lower temperature of the base gives."
    ]
    if any(points.power for points in all_points):
        parts.append("Dotted: the base's responses reweighted to p^α (ideal sharpening), labelled at the last point.")
    if any(points.higher_t for points in all_points):
        parts.append("Hollow: a checkpoint at a higher temperature; a dotted line joins it to the same checkpoint.")
    if any(_band(points) for points in all_points):
        parts.append(
            f"Band: {numbers.NINETY_FIVE} CIs of the base's points over problems. The comparison in the text is "
            "paired by problem. The band does not show this pairing."
        )
    return " ".join((*parts, *ring))


def _missing_controls_notes(context: Context, points: Points) -> tuple[str, ...]:
    """Return notes on missing samples of the base at lower temperatures; empty if it was sampled."""
    if len(points.lower_t) > 1:
        return ()
    if not points.series.is_recorded:
        return (HOW,)
    return (*_agreement_sentence(context, points.series), HOW_OF_SAMPLES)


def _truncation_notes(group: Sequence[Points], *, whole: bool) -> tuple[str, ...]:
    """Return a note if top-p or top-k truncates the sampled distribution, because that also sharpens it."""
    first = group[0]
    top_p, top_k = (first.series.settings.get(name) for name in ("top_p", "top_k"))
    truncations = [f"top-p {top_p:g}"] if top_p is not None and top_p < 1.0 else []
    truncations += [f"top-k {top_k:g}"] if top_k else []
    if len(first.lower_t) < 2 or not truncations:
        return ()
    of = "it" if whole else numbers.listing(tuple(points.series.name for points in group))
    return (
        f"All of {of} is sampled with {' and '.join(truncations)}, which also sharpens. The dashed curve is the base "
        "with the same truncation, at lower temperatures.",
    )


def _omitted_notes(all_points: Sequence[Points]) -> tuple[str, ...]:
    """Return a note on checkpoints at higher temperatures whose samples are too few for the k of the figure."""
    short = [points for points in all_points if points.higher_t_k is not None]
    if not short:
        return ()
    k, reached = short[0].k, max(points.higher_t_k or 0 for points in short)
    whose = numbers.listing(tuple(points.series.name for points in short))
    of = f" of {whose}" if len(short) < len(all_points) else ""
    return (
        f"Checkpoints{of} at higher temperatures are not shown: they have only enough samples for k = {reached}, and "
        f"this figure has k = {k} (pass oversharp audit --control-n {k}).",
    )


def _agreement_sentence(context: Context, series: SeriesSource) -> tuple[str, ...]:
    """Return a sentence that compares the last checkpoint with the answers on which samples of the base agree."""
    rows = context.source.known_findings("frontier_gain", scope="answers", series=series.name)
    rows = rows[rows["step"] == series.last_step]
    if rows.empty:
        return ()
    row = rows.iloc[0]
    value, low, high = float(row["value"]), float_or_none(row["low"]), float_or_none(row["high"])
    interval = f" ({numbers.points_interval(low, high)})" if low is not None and high is not None else ""
    side = "above" if value >= 0 else "below"
    sentence = (
        f"Sharpening by agreement, from counts only: at the same pass@{int(row['k'])}, pass@1 of the last checkpoint "
        f"is {numbers.points(abs(value), signed=False)} points{interval} {side} that of the base's answers on which "
        "several samples agree."
    )
    return (context.with_series_name(series, sentence),)


def _describe_plane(all_points: Sequence[Points]) -> str:
    first = all_points[0]
    parts = [f"x: pass@1, y: pass@{first.k}."]
    for points in all_points:
        base, last = points.run[0], points.run[-1]
        where = points.series.step_text(last.step)
        parts.append(f"{points.series.name}: from {_place_text(base)} at the base to {_place_text(last)} at {where}.")
        higher_t = [f"{_place_text(point)} at {point.name}" for point in points.higher_t]
        if higher_t:
            where = points.series.step_text(points.higher_t[0].step)
            parts.append(f"Higher temperatures at {where}: {', '.join(higher_t)}.")
    if len(first.lower_t) > 1:
        lower_t = ", ".join(f"{_place_text(point)} at {point.name}" for point in first.lower_t[1:])
        greedy = "" if first.greedy is None else f"; greedy {numbers.decimal(first.greedy[0], 3)}"
        parts.append(f"The base at lower temperatures: {lower_t}{greedy}.")
    return " ".join(parts)


def _place_text(point: Point) -> str:
    return " and ".join(numbers.decimal(value, 3) for value in point.place)


def _table(all_points: Sequence[Points]) -> Table:
    """Return a table of the base, its samples at other temperatures, and the checkpoints of every series."""
    first, names = all_points[0], [points.series.name for points in all_points]
    of_all = names[0] if len(names) == 1 else "all"
    rows = [(of_all, "base", first.run[0])]
    rows += [(of_all, f"base at {point.name}", point) for point in first.lower_t[1:]]
    rows += [(of_all, f"base reweighted, {point.name}", point) for point in first.power]
    for name, points in zip(names, all_points, strict=True):
        rows += [(name, point.name, point) for point in points.run[1:]]
        rows += [(name, f"{points.series.step_text(point.step)} at {point.name}", point) for point in points.higher_t]
    return Table(
        title="pass@1 and pass@k, run and controls: data",
        columns=columns("series", "checkpoint", numbers=("pass@1", f"pass@{first.k}")),
        rows=tuple(
            (Cell(text=name), Cell(text=text), _PROBABILITY.cell(*point.at_1), _PROBABILITY.cell(*point.at_k))
            for name, text, point in rows
        ),
        folded=True,
    )
