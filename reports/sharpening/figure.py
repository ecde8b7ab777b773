"""Better, or only sharper? A run in the plane of pass@1 and pass@k, beside its base drawn at lower temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oversharp.diagnostics.statistics.frontier import FrontierPoints, frontier_curve
from oversharp.diagnostics.verdict.sentence import sharpening_text
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import series_colour
from oversharp.reports.findings.tables import display_of
from oversharp.reports.records import Cell, Colour, Figure, Line, Plane, Spot, Table, columns
from oversharp.reports.sharpening.points import Point, Points, k_of, points_of
from oversharp.reports.wording import bound, known

TITLE = "better, or only sharper?"
COLDER = "base at lower temperatures"
POWER = "base, reweighted to p^α"
#: What the figure says where the base was not drawn sharper.
HOW = (
    "How much of this path drawing the base sharper would give was not measured: oversharp audit with --controls draws "
    "the base at lower temperatures."
)
#: The same of samples that another tool drew.
HOW_OF_SAMPLES = (
    "How much of this path drawing the base sharper would give was not measured: these samples have no draws of the "
    "base at lower temperatures, and it takes the checkpoints themselves to draw them (oversharp audit --controls)."
)
_MOST_STEPS = 4  # named on a path
_SOLID_STYLES = 6  # from one style with a solid line to the next
_PROBABILITY = display_of("probability", signed=False)

Plain = tuple[float, float]


def sharpening_figure(context: Context, series: SeriesSource) -> Figure | None:
    """The run of ``series`` beside its base drawn sharper, or the run alone; None where there is no path to draw.

    What `oversharp ship` recommends of all series is ringed where it lies in this figure.
    """
    points = points_of(context, series)
    if points is None:
        return None
    place = [one.name for one in context.series].index(series.name)
    line = _path(points, place)
    return replace(
        _figure([points], [line]),
        figure_id=f"sharpening-{place + 1}",
        title=f"{series.name}: {TITLE}",
        notes=_notes_of(context, [points]),
        finding="" if series.verdict is None else sharpening_text(series.verdict),
    )


def first_figure(context: Context) -> Figure | None:
    """What stands beside the decision: one picture of all series if they share a base, else a panel per base."""
    if len(context.series) == 1:
        return sharpening_figure(context, context.series[0])
    return shared_figure(context) or _side_by_side(context, _by_base(context))


def figures_of_joined(context: Context) -> tuple[Figure, ...]:
    """Each series by itself beside its base, of those that share a picture with others on the first screen."""
    one_picture = shared_figure(context) is not None
    groups = [[points.series for points in group] for group in _by_base(context)]
    joined = context.series if one_picture else [one for group in groups if len(group) > 1 for one in group]
    found = (sharpening_figure(context, series) for series in joined)
    return tuple(one for one in found if one is not None)


def _by_base(context: Context) -> list[list[Points]]:
    """The series that have a path, in groups that share the base's draws and the k that they are seen at."""
    groups: dict[tuple[object, ...], list[Points]] = {}
    for series in context.series:
        if (points := points_of(context, series)) is not None:
            groups.setdefault(_base(points), []).append(points)
    return list(groups.values())


def _side_by_side(context: Context, groups: Sequence[Sequence[Points]]) -> Figure | None:
    """A panel per base, each at its own k."""
    if not groups:
        return None
    places = {one.name: place for place, one in enumerate(context.series)}
    made = [_figure(group, [_path(one, places[one.series.name]) for one in group]) for group in groups]
    titles = [f"{numbers.listing(tuple(one.series.name for one in group))}: pass@{group[0].k}" for group in groups]
    rows = [
        (*row[:3], Cell.count(group[0].k), row[3])
        for group, figure in zip(groups, made, strict=True)
        for row in figure.table.rows
    ]
    all_points = [one for group in groups for one in group]
    return replace(
        made[0],
        title=f"{TITLE[0].upper()}{TITLE[1:]}",
        caption=_caption(
            all_points,
            is_colder=any(len(one.colder) > 1 for one in all_points),
            has_ring=any(isinstance(panel, Plane) and panel.ringed for one in made for panel in one.panels),
        ),
        y_label="pass@k (probability)",
        panels=tuple(replace(one.panels[0], title=title) for one, title in zip(made, titles, strict=True)),
        notes=tuple(dict.fromkeys(note for group in groups for note in _notes_of(context, group))),
        table=replace(
            made[0].table,
            note=" ".join(dict.fromkeys(one.table.note for one in made if one.table.note)),
            columns=columns("series", "checkpoint", numbers=("pass@1", "k", "pass@k")),
            rows=tuple(rows),
        ),
    )


def _notes_of(context: Context, group: Sequence[Points]) -> tuple[str, ...]:
    without = tuple(note for one in group for note in _without(context, one))
    return (*without, *_not_hotter(group), *_truncated(group, whole=len(group) == len(context.series)))


def shared_figure(context: Context) -> Figure | None:
    """All series that were audited from one base beside it, or one that is not drawn sharper; None for fewer than two.

    Their frontiers are one: the base's samples and controls are shared by all series of a store that were drawn alike.
    At the largest k that all of them are seen at.
    """
    ks = [k for series in context.series if (k := k_of(context, series)) is not None]
    at = min(ks, default=None)
    found = [points for series in context.series if (points := points_of(context, series, at)) is not None]
    if len(found) < 2 or len(found) < len(context.series) or any(_base(one) != _base(found[0]) for one in found):
        return None
    paths = [_path(points, place, style=_SOLID_STYLES * place) for place, points in enumerate(found)]
    title = f"{numbers.listing(tuple(one.series.name for one in found))}: {TITLE}"
    notes = tuple(dict.fromkeys(_notes_of(context, found)))
    return replace(_figure(found, paths), figure_id="compare-sharpening", title=title, notes=notes)


def _base(points: Points) -> tuple[object, ...]:
    """What series must share for their base's draws to be the same ones."""
    series = points.series
    colder = tuple(one.place for one in points.colder)
    return (series.base_id, series.settings_id, series.problem_ids, points.k, series.verifier, colder)


# ---------------------------------------------------------------- the picture


def _figure(all_points: Sequence[Points], paths: Sequence[Line]) -> Figure:
    """Paths of one base, beside the base drawn sharper where it was."""
    first = all_points[0]
    is_colder = len(first.colder) > 1
    ringed = _recommended(all_points)
    names = [_names(points, ringed, is_short=len(all_points) > 1) for points in all_points]
    panel = Plane(
        title="",
        lines=tuple(paths),
        names=(*names[:1], *(("", *others[1:]) for others in names[1:])),  # one base, one name
        hotter=_hotter(all_points, paths),
        ringed=() if ringed is None else (_named_once(ringed, all_points),),
        description=_described(all_points),
    )
    if is_colder:
        panel = _beside_base(panel, first)
    return Figure(
        figure_id="sharpening",
        title=TITLE,
        caption=_caption(all_points, is_colder=is_colder, has_ring=bool(panel.ringed)),
        x_label="pass@1 (probability)",
        y_label=f"pass@{first.k} (probability)",
        panels=(panel,),
        table=replace(_table(all_points), note=_below(panel, first)),
    )


def _beside_base(panel: Plane, points: Points) -> Plane:
    """``panel`` with the base drawn sharper; there the base has its name, and on the paths none."""
    frontier = Line(
        label=COLDER,
        x=tuple(one.one[0] for one in points.colder),
        y=tuple(one.many[0] for one in points.colder),
        colour="muted",
        style=1,
    )
    power = _power(points, lowest=min(y for line in (frontier, *panel.lines) for y in line.y))
    return replace(
        panel,
        lines=(frontier, *power, *panel.lines),
        names=(
            tuple(one.name for one in points.colder),
            *(("",) * (len(line.x) - 1) + (_last_power(points, line),) for line in power),
            *(("", *names[1:]) for names in panel.names),
        ),
        curve=_curve(points, [one.place for one in points.colder]),
        band=_band(points),
        greedy=None if points.greedy is None else Spot(name="greedy", x=points.greedy[0], y=points.greedy[0]),
    )


def _power(points: Points, *, lowest: float) -> tuple[Line, ...]:
    """The base ideally sharpened, as far down as something else lies: beyond, it would flatten all of them."""
    shown = [one for one in points.power if one.many[0] >= lowest]
    if not shown:
        return ()
    xs, ys = zip(*(one.place for one in (points.run[0], *shown)), strict=True)
    return (Line(label=POWER, x=xs, y=ys, colour="muted", style=2),)


def _below(panel: Plane, points: Points) -> str:
    """Which rows of the table the picture does not reach down to."""
    n_drawn = next((len(line.x) - 1 for line in panel.lines if line.label == POWER), 0)
    names = tuple(f"base reweighted, {one.name}" for one in points.power[n_drawn:])
    return f"Below the picture, not drawn: {numbers.listing(names)}." if names else ""


def _last_power(points: Points, line: Line) -> str:
    return points.power[len(line.x) - 2].name


def _hotter(all_points: Sequence[Points], paths: Sequence[Line]) -> tuple[tuple[Spot, Spot, Colour], ...]:
    return tuple(
        (next(one for one in points.run if one.step == hot.step).spot, hot.spot, line.colour)
        for points, line in zip(all_points, paths, strict=True)
        for hot in points.hotter
    )


def _recommended(all_points: Sequence[Points]) -> Point | None:
    """What is recommended of all series, where it is drawn here."""
    for points in all_points:
        verdict = points.series.verdict
        said = None if verdict is None or verdict.shipping is None else verdict.shipping.recommended
        if said is None or not (said.is_base or said.series == points.series.name):
            continue
        step = points.series.base_step if said.is_base else said.step
        drawn = points.run if said.temperature is None else (*points.colder[1:], *points.hotter)
        name = None if said.temperature is None else f"T={said.temperature:g}"
        found = [one for one in drawn if one.step == step and (name is None or one.name == name)]
        if found:
            return found[0]
    return None


def _named_once(ringed: Point, all_points: Sequence[Points]) -> Spot:
    """Where the ring is, with its name unless something else drawn there has it."""
    named = [one for points in all_points for one in (points.run[0], points.run[-1], *points.colder, *points.hotter)]
    return replace(ringed.spot, name="") if ringed in named else ringed.spot


def _path(points: Points, place: int, style: int = 0) -> Line:
    return Line(
        label=points.series.name,
        x=tuple(one.one[0] for one in points.run),
        y=tuple(one.many[0] for one in points.run),
        colour=series_colour(place),
        style=style,
    )


def _names(points: Points, ringed: Point | None, *, is_short: bool) -> tuple[str, ...]:
    """Of the base, the last checkpoint, and a few between them; the ring names the recommended one."""
    last = len(points.run) - 1
    every = -(-last // _MOST_STEPS)
    named = [i for i in range(1, last) if not is_short and not (last - i) % every]
    between = [i for i in named if points.run[i] is not ringed]
    return tuple(
        one.name if i in (0, last) else str(one.step) if i in between else "" for i, one in enumerate(points.run)
    )


def _curve(points: Points, places: Sequence[Plain]) -> tuple[Plain, ...]:
    """The interpolated frontier through ``places``, made monotone, as the comparison takes it."""
    x_S1, y_S1 = (np.array([[place[i]] for place in places]) for i in (0, 1))
    sharpness_S = np.array([one.sharpness for one in points.colder])
    x_R, y_R = frontier_curve(FrontierPoints(sharpness_S=sharpness_S, x_SP=x_S1, y_SP=y_S1, limit_P=None))
    return tuple(zip(x_R.tolist(), y_R.tolist(), strict=True))


def _band(points: Points) -> tuple[Plain, ...]:
    """From the curve through the lower bounds, on to greedy, to that through the upper ones; empty without bounds."""
    corners: list[list[Plain]] = [[], []]
    for one in points.colder:
        for corner, x, y in zip(corners, one.one[1:], one.many[1:], strict=True):
            if x is None or y is None:
                return ()
            corner.append((x, y))
    low, high = (_curve(points, corner) for corner in corners)
    greedy = () if points.greedy is None else points.greedy[1:]
    return (*low, *((end, end) for end in greedy if end is not None), *reversed(high))


# ---------------------------------------------------------------- its words


def _caption(all_points: Sequence[Points], *, is_colder: bool, has_ring: bool) -> str:
    repaired = [one.series.is_repaired for one in all_points]
    order = "of their λ" if all(repaired) else "of their steps" if any(repaired) else "of training"
    path = f"One point per checkpoint, joined in the order {order} from the base on"
    ring = ["Ringed: what oversharp ship recommends, of all series."] if has_ring else []
    if not is_colder:
        return " ".join((f"{path}.", *ring))
    parts = [
        f"Solid: {path[0].lower()}{path[1:]}. Dashed: the base itself at lower temperatures T, without any training; "
        "what lies above it or to its right is more than they give."
    ]
    if any(points.power for points in all_points):
        parts.append("Dotted, without names but the last: its sampled responses reweighted to p^α, ideal sharpening.")
    if any(points.hotter for points in all_points):
        parts.append("Hollow: the checkpoint at the other end of the dotted line, at higher temperatures.")
    if any(_band(points) for points in all_points):
        parts.append(
            f"Band: {numbers.NINETY_FIVE} intervals of the base's points over problems; the comparison in words pairs "
            "run and base on each problem, which the band does not show."
        )
    return " ".join((*parts, *ring))


def _without(context: Context, points: Points) -> tuple[str, ...]:
    """What there is to say where the base was not drawn sharper."""
    if len(points.colder) > 1:
        return ()
    if not points.series.recorded:
        return (HOW,)
    return (*_agreeing(context, points.series), HOW_OF_SAMPLES)


def _truncated(group: Sequence[Points], *, whole: bool) -> tuple[str, ...]:
    """What the curve of one base is where a truncation acts after the temperature."""
    first = group[0]
    top_p, top_k = (first.series.settings.get(name) for name in ("top_p", "top_k"))
    law = [f"top-p {top_p:g}"] if top_p is not None and top_p < 1.0 else []
    law += [f"top-k {top_k:g}"] if top_k else []
    if len(first.colder) < 2 or not law:
        return ()
    of = "it" if whole else numbers.listing(tuple(one.series.name for one in group))
    return (
        f"All of {of} is drawn under {' and '.join(law)}, which sharpens by itself: the dashed curve is that of the "
        "base so truncated, at lower temperatures.",
    )


def _not_hotter(all_points: Sequence[Points]) -> tuple[str, ...]:
    """Which hotter checkpoints are not drawn, for they end below the k of the figure, and what draws them."""
    short = [points for points in all_points if points.hotter_k is not None]
    if not short:
        return ()
    k, reached = short[0].k, max(points.hotter_k or 0 for points in short)
    whose = numbers.listing(tuple(points.series.name for points in short))
    of = f" of {whose}" if len(short) < len(all_points) else ""
    return (
        f"Checkpoints{of} drawn hotter are not shown: their samples reach only k = {reached}, this figure is of "
        f"k = {k} (oversharp audit --control-n {k}).",
    )


def _agreeing(context: Context, series: SeriesSource) -> tuple[str, ...]:
    """The last checkpoint against the answers on which several draws of the base agree: from counts alone."""
    rows = known(context.source.findings, "frontier_gain", scope="answers", series=series.name)
    rows = rows[rows["step"] == series.last_step]
    if rows.empty:
        return ()
    row = rows.iloc[0]
    value, low, high = float(row["value"]), bound(row["low"]), bound(row["high"])
    interval = f" ({numbers.points_interval(low, high)})" if low is not None and high is not None else ""
    side = "above" if value >= 0 else "below"
    said = (
        f"Sharpening by agreement, from counts alone: with the same pass@{int(row['k'])}, pass@1 of the last "
        f"checkpoint is {numbers.points(abs(value), signed=False)} points{interval} {side} that of the base's answers "
        "on which several draws agree."
    )
    return (context.named(series, said),)


def _described(all_points: Sequence[Points]) -> str:
    first = all_points[0]
    parts = [f"pass@1 across, pass@{first.k} up."]
    for points in all_points:
        base, last = points.run[0], points.run[-1]
        where = points.series.step_text(last.step)
        parts.append(f"{points.series.name}: from {_at(base)} at the base to {_at(last)} at {where}.")
        hotter = [f"{_at(one)} at {one.name}" for one in points.hotter]
        if hotter:
            where = points.series.step_text(points.hotter[0].step)
            parts.append(f"Drawn hotter at {where}: {', '.join(hotter)}.")
    if len(first.colder) > 1:
        colder = ", ".join(f"{_at(one)} at {one.name}" for one in first.colder[1:])
        greedy = "" if first.greedy is None else f"; greedy {numbers.fixed(first.greedy[0], 3)}"
        parts.append(f"The base drawn sharper: {colder}{greedy}.")
    return " ".join(parts)


def _at(point: Point) -> str:
    return " and ".join(numbers.fixed(value, 3) for value in point.place)


def _table(all_points: Sequence[Points]) -> Table:
    """The base and what was made of it without training, then every series' checkpoints."""
    first, names = all_points[0], [points.series.name for points in all_points]
    of_all = names[0] if len(names) == 1 else "all"
    rows = [(of_all, "base", first.run[0])]
    rows += [(of_all, f"base at {one.name}", one) for one in first.colder[1:]]
    rows += [(of_all, f"base reweighted, {one.name}", one) for one in first.power]
    for name, points in zip(names, all_points, strict=True):
        rows += [(name, one.name, one) for one in points.run[1:]]
        rows += [(name, f"{points.series.step_text(one.step)} at {one.name}", one) for one in points.hotter]
    return Table(
        title="pass@1 and coverage, run and controls: data",
        columns=columns("series", "checkpoint", numbers=("pass@1", f"pass@{first.k}")),
        rows=tuple(
            (Cell(text=name), Cell(text=text), _PROBABILITY.cell(*one.one), _PROBABILITY.cell(*one.many))
            for name, text, one in rows
        ),
        folded=True,
    )
