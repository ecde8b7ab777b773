"""Candidates to ship: the recommended checkpoint, and the best eligible and the last checkpoint of each series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oversharp.diagnostics.statistics.problem_changes import SURE
from oversharp.diagnostics.verdict.recommendation import BandedChange, Recommendation, ShippingStep
from oversharp.reports.context import Context
from oversharp.reports.evidence.problem_changes import problem_changes
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.wording import Change


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Checkpoint at one temperature, as a candidate to ship.

    Attributes:
        series: Series of the checkpoint; several if they share a base.
        first: Change of pass@1, None if unknown.
        worst: Change of pass@k at the k with the lowest estimate, None if unknown.
        lost: Number of problems that the base solved and that have no correct sample here, None if unknown.
        sure: Number of lost problems whose change is significant, None if unknown.
        is_toss_up: Whether it has the highest expected pass@1, but is not probable enough to be above the base.
        by_itself: Whether the CIs are pointwise, because the simultaneous band does not include this checkpoint.
        of: Name of its series, if the report does not include that series.
    """

    series: tuple[SeriesSource, ...]
    step: int
    is_base: bool
    is_last: bool
    temperature: float | None = None
    is_recommended: bool = False
    may_be_shipped: bool = False
    pass_at_1: float | None = None
    first: BandedChange | None = None
    worst: BandedChange | None = None
    lost: int | None = None
    sure: int | None = None
    n_problems: int = 0
    is_toss_up: bool = False
    by_itself: bool = False
    of: str | None = None


def group_by_recommendation(context: Context) -> tuple[tuple[Recommendation | None, tuple[SeriesSource, ...]], ...]:
    """Group the series by their recommendation, which is None for series without one.

    Series that were compared together have the same recommendation. The verdict of each series lists only its own
    steps, so the steps are merged.
    """
    by_recommendation: dict[tuple[object, ...], tuple[Recommendation | None, list[SeriesSource]]] = {}
    for series in context.series:
        recommendation = _recommendation(series)
        key = () if recommendation is None else (recommendation.series, recommendation.sentence)
        by_recommendation.setdefault(key, (recommendation, []))[1].append(series)
    return tuple((_merge_steps(recommendation, own), tuple(own)) for recommendation, own in by_recommendation.values())


def is_graded_again(context: Context, series: SeriesSource) -> bool:
    """Return whether the series has the samples of another series of the report, graded by `oversharp regrade`."""
    return series.verifier is not None and any(
        series.name == f"{other.name} ({series.verifier})"
        and set(other.checkpoints["checkpoint_id"]) == set(series.checkpoints["checkpoint_id"])
        for other in context.series
    )


def _merge_steps(recommendation: Recommendation | None, members: Sequence[SeriesSource]) -> Recommendation | None:
    """Return the recommendation with the steps of all series."""
    if recommendation is None:
        return None
    steps = [step for series in members if (own := _recommendation(series)) is not None for step in own.steps]
    return replace(recommendation, steps=tuple(dict.fromkeys(steps)))


def _recommendation(series: SeriesSource) -> Recommendation | None:
    return None if series.verdict is None else series.verdict.shipping


def list_choices(
    context: Context, recommendation: Recommendation | None, members: Sequence[SeriesSource]
) -> Iterator[Choice]:
    """Yield the recommended checkpoint, then the best eligible checkpoint and the last one of each series."""
    chosen = None if recommendation is None else recommendation.recommended
    if chosen is not None:
        own = [member for member in members if chosen.is_base or member.name == chosen.series]
        made = _of_step(context, own, chosen) if own else _of_another(members, chosen)
        yield replace(made, is_recommended=True)
    for series in members:
        steps = [
            step
            for step in (recommendation.steps if recommendation else ())
            if step.series == series.name and not step.is_base
        ]
        best = max(
            (step for step in steps if step.role == "candidate" and step.temperature is None),
            key=lambda step: step.pass_at_1 or 0.0,
            default=None,
        )
        last = next((step for step in steps if step.step == series.last_step and step.temperature is None), None)
        if last is not None and last.first is None:
            last = _find_same_weights(context, recommendation, last) or last
        for step in dict.fromkeys((best, last)):
            if step is not None and step.role != "recommended" and step.first is not None:
                yield replace(_of_step(context, [series], step), is_toss_up=_is_toss_up(recommendation, step))
        if last is None or (last.role != "recommended" and last.first is None):
            yield from _of_findings(context, series)


def _is_toss_up(recommendation: Recommendation | None, step: ShippingStep) -> bool:
    toss_up = None if recommendation is None else recommendation.toss_up
    return toss_up is not None and (toss_up.series, toss_up.step, toss_up.temperature) == (
        step.series,
        step.step,
        step.temperature,
    )


def _find_same_weights(
    context: Context, recommendation: Recommendation | None, step: ShippingStep
) -> ShippingStep | None:
    """Return the step of another series with the same weights, relabelled as ``step``; None without one.

    A recommendation compares equal weights only once, so only one of these steps has results.
    """
    weights = {
        (series.name, int(row.step)): row.checkpoint_id
        for series in context.series
        for row in series.checkpoints.itertuples()
    }
    own = weights.get((step.series, step.step))
    same = [
        other
        for other in (recommendation.steps if recommendation else ())
        if weights.get((other.series, other.step)) == own and other.temperature is None and other.first is not None
    ]
    return replace(same[0], series=step.series, step=step.step, role=step.role) if same else None


def _of_step(context: Context, series: Sequence[SeriesSource], step: ShippingStep) -> Choice:
    counted = not step.is_base and step.temperature is None
    lost, sure = _count_lost(context, series[0], step.step) if counted else (None, None)
    return Choice(
        series=tuple(series),
        step=step.step,
        is_base=step.is_base,
        is_last=not step.is_base and step.step == series[0].last_step,
        temperature=step.temperature,
        may_be_shipped=step.role == "candidate",
        pass_at_1=step.pass_at_1,
        first=step.first,
        worst=step.worst,
        lost=lost,
        sure=sure,
        n_problems=len(series[0].problem_ids),
    )


def _of_another(members: Sequence[SeriesSource], step: ShippingStep) -> Choice:
    """Return the choice for a checkpoint whose series is not in the report.

    So the problems that it lost are unknown.
    """
    return Choice(
        series=tuple(members),
        of=step.series,
        step=step.step,
        is_base=False,
        is_last=False,
        temperature=step.temperature,
        pass_at_1=step.pass_at_1,
        first=step.first,
        worst=step.worst,
    )


def _of_findings(context: Context, series: SeriesSource) -> Iterator[Choice]:
    """Yield the last checkpoint with pointwise CIs from the findings, for a series without a recommendation."""
    if series.base_step == series.last_step:
        return
    ks = context.inference_ks(series) or context.known_ks(series)
    changes = {k: change for k in ks if (change := context.pass_change(series, k)) is not None}
    larger = {k: change for k, change in changes.items() if k > 1}
    worst = min(larger, key=lambda k: larger[k].delta, default=None)
    first = changes.get(1)
    lost, sure = _count_lost(context, series, series.last_step)
    yield Choice(
        series=(series,),
        step=series.last_step,
        is_base=False,
        is_last=True,
        pass_at_1=None if first is None else first.after,
        first=None if first is None else _banded_change(1, first),
        worst=None if worst is None else _banded_change(worst, larger[worst]),
        lost=lost,
        sure=sure,
        n_problems=len(series.problem_ids),
        by_itself=True,
    )


def _banded_change(k: int, change: Change) -> BandedChange | None:
    if change.low is None or change.high is None:
        return None
    return BandedChange(k=k, change=change.delta, low=change.low, high=change.high)


def _count_lost(context: Context, series: SeriesSource, step: int) -> tuple[int | None, int | None]:
    """Return the number of lost problems, and the number of significantly lost problems; None if unknown."""
    changes = problem_changes(context.source, series, step)
    if changes.empty:
        return None, None
    lost = changes[changes["state"] == "lost"]
    return len(lost), None if series.why_untested else int((lost["p_adjusted"] <= SURE).sum())
