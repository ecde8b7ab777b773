"""First screen: recommendation, table of candidates, and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oversharp.diagnostics.statistics.problem_changes import SURE
from oversharp.diagnostics.verdict.recommendation import BandedChange, Recommendation
from oversharp.diagnostics.verdict.results import Sharpening, SharpeningLabel
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.shipping.words import alternatives_text, step_text
from oversharp.diagnostics.verdict.words.numbers import at_least_text, bounds_text, signed_text
from oversharp.diagnostics.verdict.words.sharpening import sharpening_text
from oversharp.reports import citations, numbers
from oversharp.reports.budget import budget_figure, budget_sentence
from oversharp.reports.context import Context
from oversharp.reports.decision.choices import Choice, group_by_recommendation, is_graded_again, list_choices
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.pictures.plane import Plane
from oversharp.reports.problems.table import test_name
from oversharp.reports.records import Advice, Cell, Column, Decision, Figure, Table
from oversharp.reports.sections.coverage_figures import change_map
from oversharp.reports.sections.headline import DEFINITION
from oversharp.reports.sections.verdict_card import LOOKS, NO_VERDICT
from oversharp.reports.sharpening.figure import HOW, HOW_OF_SAMPLES, first_figure

_BAND = (
    f"Changes against the base in percentage points. Brackets: simultaneous {numbers.NINETY_FIVE} CI over all compared "
    "checkpoints, temperatures and k. Worst pass@k: the change at the k with the lowest estimate."
)
_ALONE = f"Changes against the base in percentage points. Brackets: pointwise {numbers.NINETY_FIVE} CI at each k."
_LOST = (
    "Problems lost: the base has a correct sample, the checkpoint has none among the same number of samples. "
    f"Significant: {{}}, p ≤ {SURE:g} after Holm's correction over the problems that have correct and "
    "wrong samples. Problems are not counted at other temperatures."
)
_BEYOND = (
    "Better, or only sharper: compares the last third of the checkpoints with the base at lower temperatures. The "
    "difference is in percentage points of pass@1 at the same pass@k, or of pass@k at the same pass@1. Brackets: "
    f"{numbers.NINETY_FIVE} CI."
)
#: Note on the axes of all panels. It is not in the caption, because each panel is exported separately.
_ONE_SCALE = (
    "Better, or only sharper? The axes of all panels span equal ranges, so equal changes have equal lengths. The axes "
    "start at different values."
)
#: Result of the comparison of late checkpoints with the base at lower temperatures → text in the table.
_SHARPENING_LABELS: Mapping[SharpeningLabel, str] = {
    "better": "better",
    "sharpening_only": "only sharper",
    "worse": "worse than the base at a lower temperature",
    "not_shown": "not shown",
}


def decision(context: Context) -> Decision:
    """Build the first screen: one recommendation per group of compared series, a table of candidates, figures."""
    recommendations = group_by_recommendation(context)
    made = [
        choice
        for recommendation, members in recommendations
        for choice in list_choices(context, recommendation, members)
    ]
    figures = _figures(context)
    again = [series for series in context.series if is_graded_again(context, series)]
    own = [
        (recommendation, members)
        for recommendation, members in recommendations
        if any(member not in again for member in members)
    ]
    n_own = len(context.series) - len(again)
    advice = tuple(_advice(recommendation, members, n_own) for recommendation, members in own)
    second = tuple(
        _second_advice(recommendation, members)
        for recommendation, members in recommendations
        if (recommendation, members) not in own
    )
    return Decision(
        title=advice[0].title if len(advice) == 1 else f"What to ship: {len(advice)} answers",
        advice=(*advice, *second),
        table=_table(context, made),
        table_first=len(context.series) > 1,
        chosen=tuple(option.is_recommended and option.series[0] not in again for option in made),
        sentences=_sentences(context),
        reading=(
            f"{DEFINITION} {citations.references('A')[0]}.",
            *_brackets(made),
            *([_BEYOND] if len(context.series) > 1 and _has_sharpening(context) else []),
            _LOST.format(" or ".join(dict.fromkeys(test_name(series) for series in context.series))),
            *([_ONE_SCALE] if figures and sum(isinstance(panel, Plane) for panel in figures[0].panels) > 1 else []),
        ),
        figures=figures,
    )


def _brackets(made: Sequence[Choice]) -> tuple[str, ...]:
    """Return the explanation of the table's brackets, whose meaning may differ by row."""
    bracketed = [choice for choice in made if choice.first is not None]
    alone = [f"{choice.series[0].name} step {choice.step}" for choice in bracketed if choice.by_itself]
    if len(alone) == len(bracketed):
        return (_ALONE,) if alone else ()
    if not alone:
        return (_BAND,)
    return (
        _BAND,
        f"{numbers.listing(tuple(alone))} (not in that band): {_ALONE[0].lower()}{_ALONE[1:]}",
    )


def _second_advice(recommendation: Recommendation | None, members: tuple[SeriesSource, ...]) -> Advice:
    """Return the advice from a second verifier's grades of the same samples, to show as a remark."""
    advice, (first, *_) = _advice(recommendation, members, len(members)), members
    return Advice(title=f"Graded by {first.verifier}: {advice.title} ({first.name})", text=advice.text)


def _advice(recommendation: Recommendation | None, members: tuple[SeriesSource, ...], n_series: int) -> Advice:
    """Return the sentence of `oversharp ship`, split into title and text.

    The title has the names of the series unless the advice covers all series of the report.
    """
    names = numbers.listing(tuple(series.name for series in members))
    of = f" for {names}" if len(members) < n_series else ""
    if recommendation is None or recommendation.recommended is None:
        why = _no_recommendation_reason(recommendation, members)
        return Advice(title=f"No checkpoint is recommended{of}", text=f"{why[0].upper()}{why[1:]}")
    chosen = recommendation.recommended
    title = f"Ship {step_text(chosen, recommendation.series)}"
    of = "" if title.endswith(f" of {names}") else of
    if chosen.is_base and not chosen.is_own_base:
        title += ", without any training"
    text = recommendation.sentence.removeprefix(title).removeprefix(":").strip()
    others = alternatives_text(recommendation)
    more = f" {others[0].upper()}{others[1:]}." if others else ""
    first = text if text.startswith("pass@") else f"{text[:1].upper()}{text[1:]}"
    return Advice(title=f"{title}{of}", text=f"{first}{more}")


def _no_recommendation_reason(recommendation: Recommendation | None, members: tuple[SeriesSource, ...]) -> str:
    if recommendation is not None:
        return f"{recommendation.why}."
    if all(series.verdict is None for series in members):
        return NO_VERDICT
    why = next((series.verdict.why for series in members if series.verdict is not None and series.verdict.why), None)
    return f"{why}." if why else "The verdict predates recommendations; run the same audit again."


def _table(context: Context, made: list[Choice]) -> Table:
    several = len(context.series) > 1
    sharper = _has_sharpening(context)
    columns = (
        *((Column(name="series", numeric=False),) if several else ()),
        Column(name="checkpoint", numeric=False),
        Column(name="pass@1"),
        Column(name="worst pass@k"),
        Column(name="problems lost"),
        Column(name="verdict", numeric=False),
        *((Column(name="better, or only sharper?", numeric=False),) if several and sharper else ()),
    )
    rows = tuple(
        (
            *((Cell(text=_series_text(context, choice)),) if several else ()),
            Cell(text=_checkpoint_text(choice)),
            Cell(text=_first_text(choice), sort=choice.pass_at_1),
            Cell(text=_worst_text(choice.worst), sort=None if choice.worst is None else choice.worst.change),
            Cell(text=_lost_text(choice), sort=choice.lost),
            Cell(text=_verdict_text(context, choice)),
            *((Cell(text=_sharpening_cell(choice)),) if several and sharper else ()),
        )
        for choice in made
    )
    return Table(title="Candidates to ship, and their cost", columns=columns, rows=rows)


def _has_sharpening(context: Context) -> bool:
    return any(series.verdict is not None and series.verdict.sharpening is not None for series in context.series)


def _series_text(context: Context, choice: Choice) -> str:
    """Return the series names of a row, or "all" for a base that all series share."""
    if choice.of is not None:
        return choice.of
    if choice.is_base and len(choice.series) > 1:
        return (
            "all"
            if len(choice.series) == len(context.series)
            else numbers.listing(tuple(s.name for s in choice.series))
        )
    return choice.series[0].name


def _checkpoint_text(choice: Choice) -> str:
    at = "" if choice.temperature is None else f" at T = {choice.temperature:g}"
    if choice.is_base:
        return f"base{at}"
    if choice.of is not None:
        return f"step {choice.step}{at} of {choice.of}, not in this report"
    return f"step {choice.step}{at}{', last' if choice.is_last else ''}"


def _first_text(choice: Choice) -> str:
    if choice.pass_at_1 is None:
        return "–"
    level = numbers.percent(choice.pass_at_1)
    return level if choice.first is None else f"{level}, {_change_text(choice.first)}"


def _worst_text(worst: BandedChange | None) -> str:
    return "–" if worst is None else f"{_change_text(worst)} at k = {worst.k}"


def _change_text(change: BandedChange) -> str:
    return f"{signed_text(change.change)}{bounds_text(change.low, change.high, signed=True)}"


def _lost_text(choice: Choice) -> str:
    if choice.lost is None:
        return "–"
    significant = f", {choice.sure} significant" if choice.lost and choice.sure is not None else ""
    return f"{choice.lost} of {choice.n_problems}{significant}"


def _verdict_text(context: Context, choice: Choice) -> str:
    """Return whether the row is recommended or eligible; for a last checkpoint, also the verdict on its series."""
    verdict = choice.series[0].verdict
    parts = []
    if choice.is_recommended:
        by = f", graded by {choice.series[0].verifier}" if is_graded_again(context, choice.series[0]) else ""
        parts.append(f"recommended{by}")
    elif choice.may_be_shipped:
        parts.append("eligible, toss-up with the base" if choice.is_toss_up else "eligible")
    if choice.is_last and choice.temperature is None:
        parts.append("No verdict" if verdict is None else f"{LOOKS[verdict.label][0]} {verdict.title}")
    return "; ".join(parts)


def _sharpening_cell(choice: Choice) -> str:
    verdict = choice.series[0].verdict
    if not choice.is_last or choice.temperature is not None:
        return ""
    sharpening = None if verdict is None else verdict.sharpening
    return (
        "not measured"
        if sharpening is None
        else f"{_SHARPENING_LABELS[sharpening.label]}: {_distance_text(sharpening)}"
    )


def _distance_text(sharpening: Sharpening) -> str:
    """Return the difference from the base at a lower temperature, in pass@1 or pass@k as in the verdict's sentence.

    >>> from oversharp.diagnostics.verdict.results import Estimate
    >>> some = [Estimate(value=v, low=low, high=high) for v, low, high in ((0.2, 0.1, 0.3), (0.04, -0.01, 0.09))]
    >>> _distance_text(Sharpening(label="not_shown", k=64, rise=some[0], gain=some[1], loss=some[1], share=some[0]))
    'pass@1 +4.0 [−1.0, +9.0]'

    Bounds are rounded away from the estimate, so that rounding never makes a difference look significant.
    """
    is_of_loss = _uses_loss(sharpening)
    name, change = (f"pass@{sharpening.k}", sharpening.loss) if is_of_loss else ("pass@1", sharpening.gain)
    if change.value is None:
        no_match = f"no lower temperature of the base has this pass@1 and pass@{sharpening.k}"
        return f"{name} below the base at every lower temperature" if is_of_loss else no_match
    value = f"{name} {numbers.points(change.value)}"
    if change.low is not None and change.high is not None:
        return f"{value}{bounds_text(change.low, change.high, signed=True)}"
    if change.low is None:
        return value
    worst = at_least_text(change.low)
    return f"{value}, lower bound {worst if change.low < 0 else f'+{worst}'}"


def _uses_loss(sharpening: Sharpening) -> bool:
    """Return whether the verdict's sentence compares pass@k at the same pass@1. Otherwise it compares pass@1."""
    no_gain = sharpening.gain.value is None and sharpening.loss.value is not None
    is_open = sharpening.gain.high is None or sharpening.gain.high > MARGIN
    return no_gain or (sharpening.label == "sharpening_only" and is_open)


def _sentences(context: Context) -> tuple[str, ...]:
    """Return sentences on sharpening and decomposition for a single series. For several, the table has the results."""
    if len(context.series) > 1:
        return ()
    (series,) = context.series
    sentence = "" if series.verdict is None else sharpening_text(series.verdict)
    budget = budget_sentence(context, series)
    made_of = (budget,) if budget else ()
    if sentence:
        return (sentence, *made_of)
    if series.base_step == series.last_step:
        return made_of
    return (HOW_OF_SAMPLES if series.is_recorded else HOW, *made_of)


def _figures(context: Context) -> tuple[Figure, ...]:
    """Return three figures: pass@k against pass@1, the map of changes by checkpoint and k, and the decomposition."""
    figures = (first_figure(context), change_map(context), budget_figure(context))
    return tuple(figure for figure in figures if isinstance(figure, Figure))
