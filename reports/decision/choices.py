"""What there is to ship: the recommended, of each series the best that is not out, and its last checkpoint. Pure."""

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
    """One checkpoint, or what was drawn of it at another temperature, as something to ship.

    ``series`` are those that it belongs to, several for a base that they share. ``first`` and ``worst`` are the changes
    of pass@1 and of pass@k at the k with the lowest, ``lost`` counts the problems of ``n_problems`` without a correct
    sample that the base solved, ``sure`` those of them that are no chance; all None where unknown. Their intervals are
    of each k ``by_itself`` where no band over all that is compared holds this one. ``of`` is the series that it belongs
    to where the report does not show that one.
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
    by_itself: bool = False
    of: str | None = None


def groups(context: Context) -> tuple[tuple[Recommendation | None, tuple[SeriesSource, ...]], ...]:
    """The recommendations with the series that each is of; None for series without one.

    The verdict of each series holds the recommendation of all of them, with its own steps alone.
    """
    found: dict[tuple[object, ...], tuple[Recommendation | None, list[SeriesSource]]] = {}
    for series in context.series:
        said = _said(series)
        key = () if said is None else (said.series, said.sentence)
        found.setdefault(key, (said, []))[1].append(series)
    return tuple((_whole(said, own), tuple(own)) for said, own in found.values())


def is_graded_again(context: Context, series: SeriesSource) -> bool:
    """Whether these are the samples of another series of the report, by a second verifier (`oversharp regrade`)."""
    return series.verifier is not None and any(
        series.name == f"{one.name} ({series.verifier})"
        and set(one.checkpoints["checkpoint_id"]) == set(series.checkpoints["checkpoint_id"])
        for one in context.series
    )


def _whole(said: Recommendation | None, members: Sequence[SeriesSource]) -> Recommendation | None:
    """The recommendation with the steps of all its series."""
    if said is None:
        return None
    held = [one for series in members if (own := _said(series)) is not None for one in own.steps]
    return replace(said, steps=tuple(dict.fromkeys(held)))


def _said(series: SeriesSource) -> Recommendation | None:
    return None if series.verdict is None else series.verdict.shipping


def choices(context: Context, said: Recommendation | None, members: Sequence[SeriesSource]) -> Iterator[Choice]:
    """The recommended one first; then of each series the best that is not out, and the last."""
    chosen = None if said is None else said.recommended
    if chosen is not None:
        own = [one for one in members if chosen.is_base or one.name == chosen.series]
        made = _of_step(context, own, chosen) if own else _of_another(members, chosen)
        yield replace(made, is_recommended=True)
    for series in members:
        steps = [one for one in (said.steps if said else ()) if one.series == series.name and not one.is_base]
        best = max(
            (one for one in steps if one.role == "candidate" and one.temperature is None),
            key=lambda one: one.pass_at_1 or 0.0,
            default=None,
        )
        last = next((one for one in steps if one.step == series.last_step and one.temperature is None), None)
        if last is not None and last.first is None:
            last = _twin(context, said, last) or last
        if best is not None and best != last:
            yield _of_step(context, [series], best)
        if last is not None and last.role != "recommended" and last.first is not None:
            yield _of_step(context, [series], last)
        elif last is None or last.role != "recommended":
            yield from _of_findings(context, series)


def _twin(context: Context, said: Recommendation | None, step: ShippingStep) -> ShippingStep | None:
    """What is said of the same weights in another series, as of this step: they are compared once."""
    weights = {
        (series.name, int(row.step)): row.checkpoint_id
        for series in context.series
        for row in series.checkpoints.itertuples()
    }
    own = weights.get((step.series, step.step))
    same = [
        one
        for one in (said.steps if said else ())
        if weights.get((one.series, one.step)) == own and one.temperature is None and one.first is not None
    ]
    return replace(same[0], series=step.series, step=step.step, role=step.role) if same else None


def _of_step(context: Context, series: Sequence[SeriesSource], one: ShippingStep) -> Choice:
    counted = not one.is_base and one.temperature is None
    lost, sure = _lost(context, series[0], one.step) if counted else (None, None)
    return Choice(
        series=tuple(series),
        step=one.step,
        is_base=one.is_base,
        is_last=not one.is_base and one.step == series[0].last_step,
        temperature=one.temperature,
        may_be_shipped=one.role == "candidate",
        pass_at_1=one.pass_at_1,
        first=one.first,
        worst=one.worst,
        lost=lost,
        sure=sure,
        n_problems=len(series[0].problem_ids),
    )


def _of_another(members: Sequence[SeriesSource], one: ShippingStep) -> Choice:
    """A checkpoint of a series that this report does not show: nobody read what became of its problems."""
    return Choice(
        series=tuple(members),
        of=one.series,
        step=one.step,
        is_base=False,
        is_last=False,
        temperature=one.temperature,
        pass_at_1=one.pass_at_1,
        first=one.first,
        worst=one.worst,
    )


def _of_findings(context: Context, series: SeriesSource) -> Iterator[Choice]:
    """The last checkpoint where nothing is recommended: from the findings, each k by itself."""
    if series.base_step == series.last_step:
        return
    ks = context.inference_ks(series) or context.known_ks(series)
    changes = {k: change for k in ks if (change := context.pass_change(series, k)) is not None}
    larger = {k: change for k, change in changes.items() if k > 1}
    worst = min(larger, key=lambda k: larger[k].delta, default=None)
    first = changes.get(1)
    lost, sure = _lost(context, series, series.last_step)
    yield Choice(
        series=(series,),
        step=series.last_step,
        is_base=False,
        is_last=True,
        pass_at_1=None if first is None else first.after,
        first=None if first is None else _banded(1, first),
        worst=None if worst is None else _banded(worst, larger[worst]),
        lost=lost,
        sure=sure,
        n_problems=len(series.problem_ids),
        by_itself=True,
    )


def _banded(k: int, change: Change) -> BandedChange | None:
    if change.low is None or change.high is None:
        return None
    return BandedChange(k=k, change=change.delta, low=change.low, high=change.high)


def _lost(context: Context, series: SeriesSource, step: int) -> tuple[int | None, int | None]:
    """Problems that the base solved and this checkpoint did not, and those of them that are no chance."""
    changes = problem_changes(context.source, series, step)
    if changes.empty:
        return None, None
    lost = changes[changes["state"] == "lost"]
    return len(lost), None if series.why_untested else int((lost["p_adjusted"] <= SURE).sum())
