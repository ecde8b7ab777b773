"""The decision in words and pictures: what to ship, what it costs, and where that lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oversharp.diagnostics.statistics.problem_changes import SURE
from oversharp.diagnostics.verdict.recommendation import BandedChange, Recommendation
from oversharp.diagnostics.verdict.record import Sharpening, SharpeningLabel, at_least_text, bounds_text, signed_text
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.sentence import sharpening_text
from oversharp.diagnostics.verdict.shipping.words import alternatives_text, step_text
from oversharp.reports import citations, numbers
from oversharp.reports.budget import budget_figure, budget_sentence
from oversharp.reports.context import Context
from oversharp.reports.decision.choices import Choice, choices, groups, is_graded_again
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Advice, Cell, Column, Decision, Figure, Plane, Table
from oversharp.reports.sections.coverage_figures import change_map
from oversharp.reports.sections.headline import DEFINITION
from oversharp.reports.sections.verdict_card import LOOKS, NO_VERDICT
from oversharp.reports.sharpening.figure import HOW, HOW_OF_SAMPLES, first_figure

_BAND = (
    f"Brackets: {numbers.NINETY_FIVE} band over all checkpoints, temperatures and k that were compared, in points "
    "against the base. Worst pass@k: at the k with the lowest estimate."
)
_ALONE = f"Brackets: {numbers.NINETY_FIVE} interval at each k by itself, in points against the base."
_LOST = (
    f"Problems lost: solved by the base, and by none of as many samples of the checkpoint; surely where Fisher's exact "
    f"test, with Holm's correction over the problems that have correct samples and wrong ones, has p ≤ {SURE:g}. Not "
    "counted at other temperatures."
)
_BEYOND = (
    "Better, or only sharper: the last third of the checkpoints against the base drawn colder, in points; pass@1 at "
    f"the same pass@k, or pass@k at the same pass@1. Brackets: {numbers.NINETY_FIVE} interval."
)
#: Not in the caption: a picture by itself has axes of its own.
_ONE_SCALE = (
    "Better, or only sharper? The axes of all pictures are equally long, so that equal moves look equal; they begin "
    "elsewhere."
)
#: Of the late checkpoints, against the base drawn colder.
_BESIDE: Mapping[SharpeningLabel, str] = {
    "better": "better",
    "sharpening_only": "only sharper",
    "worse": "worse than the colder base",
    "not_shown": "not shown",
}


def decision(context: Context) -> Decision:
    """What to ship of every group of series that were compared, the table of choices, and two pictures."""
    found = groups(context)
    made = [one for said, members in found for one in choices(context, said, members)]
    figures = _figures(context)
    again = [one for one in context.series if is_graded_again(context, one)]
    own = [(said, members) for said, members in found if any(one not in again for one in members)]
    n_own = len(context.series) - len(again)
    advice = tuple(_advice(said, members, n_own) for said, members in own)
    second = tuple(_second_advice(said, members) for said, members in found if (said, members) not in own)
    return Decision(
        title=advice[0].title if len(advice) == 1 else f"What to ship: {len(advice)} answers",
        advice=(*advice, *second),
        table=_table(context, made),
        table_first=len(context.series) > 1,
        chosen=tuple(one.is_recommended and one.series[0] not in again for one in made),
        sentences=_sentences(context),
        reading=(
            f"{DEFINITION} {citations.key('A')[0]}.",
            *_brackets(made),
            *([_BEYOND] if len(context.series) > 1 and _is_compared_with_colder(context) else []),
            _LOST,
            *([_ONE_SCALE] if figures and sum(isinstance(one, Plane) for one in figures[0].panels) > 1 else []),
        ),
        figures=figures,
    )


def _brackets(made: Sequence[Choice]) -> tuple[str, ...]:
    """What the brackets of the table mean, which is not the same in all rows."""
    bracketed = [one for one in made if one.first is not None]
    alone = [f"{one.series[0].name} step {one.step}" for one in bracketed if one.by_itself]
    if len(alone) == len(bracketed):
        return (_ALONE,) if alone else ()
    if not alone:
        return (_BAND,)
    return (
        _BAND,
        f"Of {numbers.listing(tuple(alone))}, which that band does not hold: {_ALONE[0].lower()}{_ALONE[1:]}",
    )


def _second_advice(said: Recommendation | None, members: tuple[SeriesSource, ...]) -> Advice:
    """The answer that the same samples would give if a second verifier graded them: a remark, not a second answer."""
    found, (first, *_) = _advice(said, members, len(members)), members
    return Advice(title=f"Graded by {first.verifier}: {found.title} ({first.name})", text=found.text)


def _advice(said: Recommendation | None, members: tuple[SeriesSource, ...], n_series: int) -> Advice:
    """The sentence of `oversharp ship`, its beginning as the title; with names where it is of some of ``n_series``."""
    names = numbers.listing(tuple(series.name for series in members))
    of = f" for {names}" if len(members) < n_series else ""
    if said is None or said.recommended is None:
        why = _why_none(said, members)
        return Advice(title=f"No checkpoint is recommended{of}", text=f"{why[0].upper()}{why[1:]}")
    chosen = said.recommended
    title = f"Ship {step_text(chosen, said.series)}"
    of = "" if title.endswith(f" of {names}") else of
    if chosen.is_base and not chosen.is_own_base:
        title += ", without any training"
    text = said.sentence.removeprefix(title).removeprefix(":").strip()
    others = alternatives_text(said)
    more = f" {others[0].upper()}{others[1:]}." if others else ""
    first = text if text.startswith("pass@") else f"{text[:1].upper()}{text[1:]}"
    return Advice(title=f"{title}{of}", text=f"{first}{more}")


def _why_none(said: Recommendation | None, members: tuple[SeriesSource, ...]) -> str:
    if said is not None:
        return f"{said.why}."
    if all(series.verdict is None for series in members):
        return NO_VERDICT
    why = next((series.verdict.why for series in members if series.verdict is not None and series.verdict.why), None)
    return (
        f"{why}." if why else "The verdict was written before checkpoints were recommended: run the same audit again."
    )


def _table(context: Context, made: list[Choice]) -> Table:
    several = len(context.series) > 1
    sharper = _is_compared_with_colder(context)
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
            *((Cell(text=_series_text(context, one)),) if several else ()),
            Cell(text=_checkpoint_text(one)),
            Cell(text=_first_text(one), sort=one.pass_at_1),
            Cell(text=_worst_text(one.worst), sort=None if one.worst is None else one.worst.change),
            Cell(text=_lost_text(one), sort=one.lost),
            Cell(text=_verdict_text(context, one)),
            *((Cell(text=_beside_text(one)),) if several and sharper else ()),
        )
        for one in made
    )
    return Table(title="What there is to ship, and what it costs", columns=columns, rows=rows)


def _is_compared_with_colder(context: Context) -> bool:
    return any(one.verdict is not None and one.verdict.sharpening is not None for one in context.series)


def _series_text(context: Context, one: Choice) -> str:
    """A base that all share is of none in particular."""
    if one.of is not None:
        return one.of
    if one.is_base and len(one.series) > 1:
        return "all" if len(one.series) == len(context.series) else numbers.listing(tuple(s.name for s in one.series))
    return one.series[0].name


def _checkpoint_text(one: Choice) -> str:
    at = "" if one.temperature is None else f" at T = {one.temperature:g}"
    if one.is_base:
        return f"base{at}"
    if one.of is not None:
        return f"step {one.step}{at} of {one.of}, not in this report"
    return f"step {one.step}{at}{', last' if one.is_last else ''}"


def _first_text(one: Choice) -> str:
    if one.pass_at_1 is None:
        return "–"
    level = numbers.percent(one.pass_at_1)
    return level if one.first is None else f"{level}, {_change_text(one.first)}"


def _worst_text(worst: BandedChange | None) -> str:
    return "–" if worst is None else f"{_change_text(worst)} at k = {worst.k}"


def _change_text(change: BandedChange) -> str:
    return f"{signed_text(change.change)}{bounds_text(change.low, change.high, signed=True)}"


def _lost_text(one: Choice) -> str:
    if one.lost is None:
        return "–"
    surely = f", {one.sure} surely" if one.lost and one.sure is not None else ""
    return f"{one.lost} of {one.n_problems}{surely}"


def _verdict_text(context: Context, one: Choice) -> str:
    """What the verdict says of the last checkpoints stands at the last; of the others, what shipping says."""
    verdict = one.series[0].verdict
    parts = []
    if one.is_recommended:
        by = f", graded by {one.series[0].verifier}" if is_graded_again(context, one.series[0]) else ""
        parts.append(f"recommended{by}")
    elif one.may_be_shipped:
        parts.append("may be shipped")
    if one.is_last and one.temperature is None:
        parts.append("No verdict" if verdict is None else f"{LOOKS[verdict.label][0]} {verdict.heading}")
    return "; ".join(parts)


def _beside_text(one: Choice) -> str:
    verdict = one.series[0].verdict
    if not one.is_last or one.temperature is not None:
        return ""
    found = None if verdict is None else verdict.sharpening
    return "not measured" if found is None else f"{_BESIDE[found.label]}: {_beyond_text(found)}"


def _beyond_text(found: Sharpening) -> str:
    """How far beyond the colder base, in the quantity that the verdict's own sentence tells.

    >>> from oversharp.diagnostics.verdict.record import Estimate
    >>> some = [Estimate(value=v, low=low, high=high) for v, low, high in ((0.2, 0.1, 0.3), (0.04, -0.01, 0.09))]
    >>> _beyond_text(Sharpening(label="not_shown", k=64, rise=some[0], gain=some[1], loss=some[1], share=some[0]))
    'pass@1 +4.0 [−1.0, +9.0]'

    Rounded outward, as there: what is not sure does not read as if it were.
    """
    is_of_loss = _is_told_by_loss(found)
    name, change = (f"pass@{found.k}", found.loss) if is_of_loss else ("pass@1", found.gain)
    if change.value is None:
        return f"{name} below every colder base" if is_of_loss else f"no colder base has such pass@1 and pass@{found.k}"
    value = f"{name} {numbers.points(change.value)}"
    if change.low is not None and change.high is not None:
        return f"{value}{bounds_text(change.low, change.high, signed=True)}"
    if change.low is None:
        return value
    worst = at_least_text(change.low)
    return f"{value}, at worst {worst if change.low < 0 else f'+{worst}'}"


def _is_told_by_loss(found: Sharpening) -> bool:
    """Whether the verdict's sentence compares pass@k at the same pass@1, rather than the other way round."""
    no_gain = found.gain.value is None and found.loss.value is not None
    is_open = found.gain.high is None or found.gain.high > MARGIN
    return no_gain or (found.label == "sharpening_only" and is_open)


def _sentences(context: Context) -> tuple[str, ...]:
    """Of a single series whether it is better than its base drawn sharper; of several the table says it of each."""
    if len(context.series) > 1:
        return ()
    (series,) = context.series
    said = "" if series.verdict is None else sharpening_text(series.verdict)
    budget = budget_sentence(context, series)
    made_of = (budget,) if budget else ()
    if said:
        return (said, *made_of)
    if series.base_step == series.last_step:
        return made_of
    return (HOW_OF_SAMPLES if series.recorded else HOW, *made_of)


def _figures(context: Context) -> tuple[Figure, ...]:
    """The runs beside their bases drawn sharper, the map of checkpoints and k, and what the change is made of."""
    found = (first_figure(context), change_map(context), budget_figure(context))
    return tuple(one for one in found if isinstance(one, Figure))
