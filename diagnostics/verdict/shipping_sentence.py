"""A recommendation in words."""

from __future__ import annotations

from collections.abc import Sequence

from diagnostics.verdict.recommendation import BandedChange, Guarantee, Recommendation, ShippingStep
from diagnostics.verdict.record import bounds_text, points_text
from diagnostics.verdict.rule import MARGIN


def shipping_sentence(said: Recommendation) -> str:
    """Which checkpoint to ship and what is sure of it, or why nothing can be said."""
    chosen = said.recommended
    if chosen is None:
        return f"No recommendation: {said.why}."
    if chosen.is_base:
        return f"Ship the base, {chosen.checkpoint}: {said.why}."
    head = f"Ship {step_text(chosen, said.series)}"
    if said.guarantee is None:
        highest = "its pass@1 is the highest of those that are not out"
        return f"{head}: {highest}. Nothing more is sure: {said.why_no_guarantee}."
    sure = said.guarantee
    ends = [f"pass@1 {_percent(sure.base_pass_at_1)} → {_percent(sure.pass_at_1)}", _sure_text(sure, said.ks)]
    large = sure.loss > max(MARGIN, said.allowed_loss)
    more = "A fall of that size is not excluded by these data; `oversharp plan` says how large an audit would show one."
    return f"{head}: {'; '.join(ends)}.{f' {more}' if large else ''}"


def _sure_text(sure: Guarantee, ks: Sequence[int]) -> str:
    """The guarantee: what pass@1 gained at least and pass@k lost at most."""
    these = f"these {sure.n_units:,}" if sure.units == "problems" else f"these, in {sure.n_units:,} clusters"
    where = f"problems like {these}; {100 * sure.confidence:g} % over {sure.over}"
    if sure.gain > 0:
        gain = f"surely up by {points_text(sure.gain)} points or more"
    else:
        gain = f"whether it rose is open, it may have fallen by {points_text(-sure.gain)} points"
    if len(ks) == 1:
        return f"{gain}; n is too small to look at larger k ({where})"
    down = f"is pass@k down by more than {points_text(sure.loss)}" if sure.loss > 0 else "is pass@k down at all"
    return f"{gain}, and at no k of {ks_text(ks)} {down} ({where})"


def ks_text(ks: Sequence[int]) -> str:
    """The k that were looked at.

    >>> ks_text((1, 2, 4, 8, 16)), ks_text((1, 2))
    ('1, 2, 4, … 16', '1, 2')
    """
    return ", ".join(map(str, ks)) if len(ks) < 5 else f"{', '.join(map(str, ks[:3]))}, … {ks[-1]}"


def step_text(one: ShippingStep, series: Sequence[str]) -> str:
    """A checkpoint by its label, with its series where there are several."""
    name = f"the base, {one.checkpoint}" if one.is_base else one.checkpoint
    return name if len(series) == 1 or one.is_base else f"{one.checkpoint} of {one.series}"


def alternatives_text(said: Recommendation) -> str | None:
    """What else may be shipped and may have as high a pass@1; None where nothing does."""
    names = [step_text(one, said.series) for one in said.alternatives]
    return f"as good in pass@1, for all these data say: {', '.join(names)}" if names else None


def choice_text(said: Recommendation) -> str:
    """What the choice rests on: problems, checkpoints, series, and what one band is simultaneous over."""
    n_compared = sum(one.first is not None for one in said.steps)
    several = "" if len(said.series) == 1 else f" of {len(said.series)} series"
    problems = plural(said.n_choosing, "problem")
    half = f", {problems} of {said.n_problems:,} choose" if said.held_out else f", {problems}"
    return f"one band over {plural(n_compared, 'checkpoint')}{several} and k = {ks_text(said.ks)}{half}"


def fell_text(change: BandedChange) -> str:
    """What a checkpoint surely lost."""
    return f"pass@{change.k} surely fell: {_size(change)}"


def estimated_text(change: BandedChange, most: float) -> str:
    """What a checkpoint may have lost, by the estimate more than ``most`` (probability)."""
    return f"pass@{change.k} fell by more than {100 * most:g} points in the estimate, not surely: {_size(change)}"


def plural(count: int, noun: str) -> str:
    """A number and its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _size(change: BandedChange) -> str:
    return f"{points_text(change.change)}{bounds_text(change.low, change.high)} points"


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %"
