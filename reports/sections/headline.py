"""Headline of the report: definition, verdict cards, figure of the changes over k, and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from oversharp.diagnostics.verdict.words.sentence import largest_fall
from oversharp.diagnostics.verifiers.names import correct_means
from oversharp.reports import citations, numbers
from oversharp.reports.context import Context, problems_of_tasks
from oversharp.reports.evidence.comparable import differences_text
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import describe_panel, interval_end, line_of, series_colour
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.records import (
    Card,
    Cell,
    Direction,
    Figure,
    Headline,
    Line,
    Missing,
    Panel,
    Span,
    Table,
    columns,
)
from oversharp.reports.sections.tiles import mode_tiles, pass_tile
from oversharp.reports.sections.verdict_card import verdict_text
from oversharp.reports.sections.verdict_tables import window_text
from oversharp.reports.wording import WITH_MODES, Change, change_of_probability

DEFINITION = (
    "Over-sharpening, by Definition 2.1 of [A]: some correct mode of a problem is less probable than under the base. A "
    "mode is one distinct way to answer. If no correct mode lost probability, sharpening is moderate."
)


def headline(context: Context) -> Headline:
    """Build the headline: the definition, one verdict card per series, the figure, and the limits."""
    return Headline(
        definition=f"{DEFINITION} {citations.references('A')[0]}.",
        cards=tuple(_card(context, series) for series in context.series),
        limits=_limits(context),
        figure=_figure(context),
    )


def _card(context: Context, series: SeriesSource) -> Card:
    ends = _ends(context, series)
    changes = {k: change for k in ends.shown if (change := context.pass_change(series, k)) is not None}
    reading, direction = _reading({k: change for k, change in changes.items() if k in ends.spoken})
    return Card(
        series=series.name,
        subtitle=f"{numbers.plural(len(series.problem_ids), 'problem')}, "
        f"{series.samples_text()} each{series.stop_text}, {numbers.plural(len(series.checkpoints), 'checkpoint')} "
        f"({series.step_text(series.base_step)} to {series.step_text(series.last_step).rpartition(' ')[2]})",
        reading=reading,
        direction=direction,
        sentences=_sentences(context, series),
        tiles=(
            *(pass_tile(k, change, chosen=k == ends.chosen) for k, change in changes.items()),
            *mode_tiles(context, series),
        ),
        verdict=verdict_text(series, _first(context, series)),
    )


def _first(context: Context, series: SeriesSource) -> Mapping[int, float]:
    """Return step → pass@1, for the steps with a known value."""
    rows = context.source.known_findings("pass_at_k", series=series.name)
    rows = rows[rows["k"] == 1]
    return dict(zip(rows["step"].astype(int), rows["value"].astype(float), strict=True))


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Values of k on a card.

    The summary line uses ``spoken`` and the tiles use ``shown``. ``chosen`` has the largest significant fall, None if
    no k has one.
    """

    spoken: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()
    chosen: int | None = None


def _ends(context: Context, series: SeriesSource) -> Ends:
    """Choose the values of k on the card of a series.

    The summary line uses the smallest k and the k with the largest significant fall. If no k fell significantly, it
    uses the largest k instead. The tiles always include the largest k. Only k with a paired CI are used, if any.
    """
    ks = context.inference_ks(series) or context.known_ks(series)
    if not ks:
        return Ends()
    changes = {k: change for k in ks if (change := context.pass_change(series, k)) is not None}
    falls = {k: change.delta for k, change in changes.items() if change.direction == "fell"}
    chosen = min(falls, key=falls.__getitem__) if len(ks) > 1 and falls else None
    spoken = {ks[0], ks[-1] if chosen is None else chosen}
    return Ends(spoken=tuple(sorted(spoken)), shown=tuple(sorted({*spoken, ks[-1]})), chosen=chosen)


def _reading(changes: Mapping[int, Change]) -> tuple[str, Direction]:
    """Summarize the changes in one line, and return it with the direction of the change at the largest k.

    >>> rise = Change(before=0.3, after=0.5, delta=0.2, low=0.1, high=0.3)
    >>> fall = Change(before=0.9, after=0.8, delta=-0.1, low=-0.2, high=-0.05)
    >>> _reading({1: rise, 64: fall})
    ('pass@1 rose while pass@64 fell', 'fell')
    >>> _reading({})
    ('No comparison with the base yet', 'unknown')
    """
    if not changes:
        return "No comparison with the base yet", "unknown"
    names = {f"pass@{k}": change for k, change in changes.items()}
    directions = [change.direction for change in changes.values()]
    if len(names) == 2 and len(set(directions)) == 1 and directions[0] != "unknown":
        first, second = names
        if directions[0] == "unchanged":
            return f"no change detected in {first} or {second}", "unchanged"
        if directions[0] == "unclear":
            return f"Too few problems ({next(iter(changes.values())).n_problems}) to decide", "unclear"
        return f"{first} and {second} both {directions[0]}", directions[0]
    joint = " while " if set(directions) == {"rose", "fell"} else "; "
    return joint.join(_phrase(name, change) for name, change in names.items()), directions[-1]


def _phrase(name: str, change: Change) -> str:
    match change.direction:
        case "unchanged":
            return f"no change detected in {name}"
        case "unclear":
            return f"too few problems ({change.n_problems}) to decide about {name}"
        case "unknown":
            return f"{name} changed by {numbers.points(change.delta)} points (no CI)"
        case verb:
            return f"{name} {verb}"


def _sentences(context: Context, series: SeriesSource) -> tuple[str, ...]:
    """Return sentences on results that have no tile: all k that fell, exact pass@k, problems lost and gained."""
    sentences = []
    changes = {k: context.pass_change(series, k) for k in context.inference_ks(series)}
    fallen = [k for k, change in changes.items() if change is not None and change.direction == "fell"]
    if fallen:
        sentences.append(f"pass@k is below the base for {numbers.k_range(fallen, series.ks)}.")
    if exact := _exact_of_verdict(context, series) or _exact_at_last(context, series):
        sentences.append(f"Without sampling noise: {exact}.")
    if why := _partly_exact(context, series):
        sentences.append(f"Exact values for all problems are unknown: {why}.")
    lost, gained = (context.level(series, name, series.last_step) for name in ("problems_lost", "problems_gained"))
    if lost is not None and gained is not None:
        count = len(series.problem_ids)
        sentences.append(
            f"{round(lost * count)} of {numbers.plural(count, 'problem')} lost every correct sample, "
            f"{round(gained * count)} gained a first one."
        )
    return tuple(sentences)


def _exact_of_verdict(context: Context, series: SeriesSource) -> str:
    """Return the exact change of pass@k over the verdict's window, as text.

    k is that of the verdict's largest fall; if pass@k fell at no k, it is the verdict's largest k. The text is empty
    if a checkpoint of the window has no exact value.
    """
    verdict = series.verdict
    if verdict is None or not verdict.changes:
        return ""
    k = (largest_fall(verdict.changes) or verdict.changes[-1]).k
    name = "pass_at_k_exact_delta"
    rows = {step: context.source.value_at(name, series.name, step, k=k) for step in verdict.window}
    deltas = {step: float(row["value"]) for step, row in rows.items() if row is not None}
    if len(deltas) < len(verdict.window):
        return ""
    mean = fmean(deltas.values())
    where = window_text(verdict)
    each = ", ".join(f"{numbers.points(delta)} at {series.step_text(step)}" for step, delta in deltas.items())
    text = f"exact pass@{k} changed by {numbers.points(mean)} points"
    return f"{text} at {where}" if len(deltas) == 1 else f"{text} over {where}, the mean of {each}"


def _exact_at_last(context: Context, series: SeriesSource) -> str:
    ks = context.inference_ks(series, exact=True)
    if not ks or (change := context.pass_change(series, ks[-1], exact=True)) is None:
        return ""
    return f"at the last checkpoint alone, {change_of_probability(f'exact pass@{ks[-1]}', change)}"


def _partly_exact(context: Context, series: SeriesSource) -> str:
    """Return why no exact value covers all problems; empty unless some problems list their modes."""
    measure = "problems_over_sharpened"
    findings = context.source.findings_of(measure)
    if context.source.value_at(measure, series.name, series.last_step, scope=WITH_MODES) is None:
        return ""
    at = (findings["series"] == series.name) & (findings["scope"] == "all")
    why = findings.loc[at & (findings["step"] == series.last_step), "why"].dropna()
    return "" if why.empty else str(why.iloc[0])


def _limits(context: Context) -> tuple[str, ...]:
    source = context.source
    verifiers = sorted({name for series in context.series for name in series.graders})
    ks = sorted({max(found) for series in context.series if (found := context.inference_ks(series))})
    limits = [
        "Each series is one training run, and other training seeds may give other results.",
        f"The audit used {problems_of_tasks(source)}, and other kinds of problems may give other results.",
        f"Errors of the grader are errors of this report: {correct_means(verifiers)}.",
    ]
    if any(_ends(context, series).chosen is not None for series in context.series):
        limits.append(
            "A card shows the k with the largest fall, chosen after looking at the data. That overstates the fall, and "
            "its CI does not account for the choice. The largest k with a CI is shown next to it."
        )
    if ks:
        limits.append(
            f"There are no pointwise CIs for k above {numbers.listing(tuple(str(k) for k in ks))}, because they end at "
            "half the number of samples."
        )
    limits.append(
        "Pointwise CIs are for one k and one checkpoint each, so about one CI in twenty misses the true value. The "
        "verdict and the simultaneous band are corrected for the number of k and checkpoints."
    )
    if source.known_findings("problems_over_sharpened", scope=None).empty:
        limits.append(
            "The probability of single modes, which Definition 2.1 uses, is unknown: it needs problems that list every "
            "accepted response."
        )
    if unlike := differences_text(context.series):
        limits.append(
            f"Differences between series may have other causes than training: {unlike}. The figures still show these "
            "series together."
        )
    elif len({series.settings_id for series in context.series}) > 1 or len({s.n for s in context.series}) > 1:
        limits.append(
            "Differences between series may have other causes than training: they were sampled with different settings "
            "(see Method and reproducibility)."
        )
    if len({series.problem_ids for series in context.series}) > 1:
        limits.append("The series were audited on different problem sets, so their values are not comparable.")
    return tuple(limits)


def _figure(context: Context) -> Figure | Missing:
    """Return the figure of the change of pass@k from base to last checkpoint, over k."""
    title = "Change of pass@k from base to last checkpoint"
    rows = context.source.known_findings("pass_at_k_delta")
    lines, body = [], []
    for i, series in enumerate(context.series):
        own = rows[(rows["series"] == series.name) & (rows["step"] == series.last_step)]
        if own.empty or series.base_step == series.last_step:
            continue
        line = line_of(own, x="k", label=series.name, colour=series_colour(i), style=i, factor=100.0)
        lines.append(replace(line, beyond=_dashed_bar(series)))
        body += [
            (Cell(text=series.name), Cell.count(k), POINTS.cell(value, low, high))
            for k, value, low, high in zip(own["k"], own["value"], own["low"], own["high"], strict=True)
        ]
        if (span := lines[-1].beyond) is not None:
            ends = f"[{numbers.points(span.low / 100)}, {numbers.points(span.high / 100)}]"
            body.append((Cell(text=series.name), Cell.count(int(span.x)), Cell(text=f"{ends} of the late window")))
    if not lines:
        return Missing(title=title, why=("the store has no paired differences of pass@k from the base",))
    panel = describe_panel(Panel(title="", lines=tuple(lines)), title, POINTS, "k")
    return Figure(
        figure_id="headline-delta",
        title=title,
        caption="Above zero: the checkpoint solves more problems with k samples than the base. Below zero: fewer. "
        f"Band: {numbers.NINETY_FIVE} CI over problems, paired with the base.",
        notes=(*interval_end(context.source, rows, "k"), *_bar_note(lines)),
        x_label="k (samples per problem)",
        y_label="change of pass@k (points)",
        panels=(panel,),
        log_x=True,
        zero_line=True,
        table=Table(
            title="Change of pass@k: data",
            columns=columns("series", numbers=("k", "change (points)")),
            rows=tuple(body),
            folded=True,
        ),
    )


def _dashed_bar(series: SeriesSource) -> Span | None:
    """Return the interval of the late window's change beyond the sampled k, in points; None if it is unknown."""
    beyond = None if series.verdict is None else series.verdict.beyond
    if beyond is None or beyond.low is None or beyond.high is None:
        return None
    return Span(x=beyond.k, low=100 * beyond.low, high=100 * beyond.high)


def _bar_note(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return what a dashed bar shows."""
    if all(line.beyond is None for line in lines):
        return ()
    return (
        f"Dashed bar, at twice the sampled k: {numbers.NINETY_FIVE} CI of the change from the base to the mean of the "
        "late checkpoints, which the verdict compares. It has no estimate. It is from all success rates that fit the "
        "samples, which are assumed to be independent, and may be narrower than the band.",
    )
