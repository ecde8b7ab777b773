"""Sentences on the checkpoint to ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.verdict.causes.explanations import CAUSES, Cause
from oversharp.diagnostics.verdict.recommendation import (
    BandedChange,
    BeyondSharpening,
    Guarantee,
    OutBy,
    Recommendation,
    ShippingStep,
    TossUp,
)
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.words.numbers import (
    at_least_text,
    at_most_text,
    bounds_text,
    points_text,
    signed_text,
)
from oversharp.diagnostics.verdict.words.sharpening import difference_text


def shipping_sentence(recommendation: Recommendation) -> str:
    """Return the recommended checkpoint with its guarantee, or why there is none."""
    chosen, why = recommendation.recommended, recommendation.why
    if chosen is None:
        return f"No recommendation: {why}."
    head = f"Ship {step_text(chosen, recommendation.series)}"
    if chosen.is_own_base:
        return _join(f"{head}: {why}.", recommendation.cannot_tell)
    if chosen.is_base:
        head += ", without any training"
    return _join(f"{head}: {_guarantee(recommendation)}", why and f"{why}.", recommendation.without_training)


def _join(*parts: str | None) -> str:
    return " ".join(part[0].upper() + part[1:] for part in parts if part)


def _guarantee(recommendation: Recommendation) -> str:
    """Return the rest of the sentence after the chosen checkpoint."""
    guarantee = recommendation.guarantee
    if guarantee is None:
        highest = "its expected pass@1 is the highest of the eligible checkpoints"
        return f"{highest}. There is no guarantee: {recommendation.why_no_guarantee}."
    levels = f"pass@1 {percent_text(guarantee.base_pass_at_1)} → {percent_text(guarantee.pass_at_1)}"
    is_large = guarantee.loss > max(MARGIN, recommendation.allowed_loss)
    more = (
        " The data do not exclude a fall of that size; oversharp plan prints how large an audit must be to detect one."
    )
    return f"{levels}; {_bounds(guarantee, recommendation.ks)}.{more if is_large else ''}"


def _bounds(guarantee: Guarantee, ks: Sequence[int]) -> str:
    """Return the lower bound of the change of pass@1 and the upper bound of the fall of pass@k."""
    units = plural(guarantee.n_units, guarantee.units.removesuffix("s"))
    units += " of problems" if guarantee.units == "clusters" else ""
    where = f"{units}; {100 * guarantee.confidence:g} % over {guarantee.over}"
    if guarantee.gain > 0:
        gain = f"up by at least {at_least_text(guarantee.gain)} points"
    else:
        gain = f"a fall by up to {at_most_text(-guarantee.gain)} points is not excluded"
    if len(ks) == 1:
        return f"{gain}; n is too small for larger k ({where})"
    fall = f"down by at most {at_most_text(guarantee.loss)} points" if guarantee.loss > 0 else "not down"
    return f"{gain}, and pass@k is {fall} at k = {ks_text(ks)} ({where})"


def ks_text(ks: Sequence[int]) -> str:
    """Return the compared k.

    >>> ks_text((1, 2, 4, 8, 16)), ks_text((1, 2))
    ('1, 2, 4, … 16', '1, 2')
    """
    return ", ".join(map(str, ks)) if len(ks) < 5 else f"{', '.join(map(str, ks[:3]))}, … {ks[-1]}"


def step_text(step: ShippingStep | TossUp, series: Sequence[str]) -> str:
    """Return a checkpoint's label, with its series if there are several, and its temperature if not the audit's."""
    if step.is_base:
        return f"the base, {step.checkpoint}" if step.temperature is None else sampled_base_text(step.temperature)
    name = step.checkpoint if len(series) == 1 else f"{step.checkpoint} of {step.series}"
    return name if step.temperature is None else f"{name} sampled at T = {step.temperature:g}"


def sampled_base_text(temperature: float) -> str:
    """Return the name of the base at another temperature."""
    return f"the base sampled at T = {temperature:g}"


def alternatives_text(recommendation: Recommendation) -> str | None:
    """Return the eligible checkpoints with possibly as high a pass@1; None if the sentence already has all of them."""
    chosen = recommendation.recommended
    is_sampled_base = chosen is not None and chosen.is_base and not chosen.is_own_base
    mentioned = recommendation.best_trained if is_sampled_base else None
    has_base = chosen is not None and not chosen.is_base and recommendation.without_training is not None
    others = [step for step in recommendation.alternatives if step != mentioned and not (has_base and step.is_base)]
    names = [step_text(step, recommendation.series) for step in others]
    return f"pass@1 may be as high at {', '.join(names)}" if names else None


def fell_text(change: BandedChange) -> str:
    """Return the significant fall of a checkpoint."""
    return f"pass@{change.k} fell significantly: {_size(change)}"


def cause_text(cause: Cause | None) -> str:
    """Return another possible cause of a loss as a clause; empty if none is known.

    >>> cause_text("guessing")
    ' (possible cause: false accepts at the base)'
    """
    return "" if cause is None else f" (possible cause: {CAUSES[cause]})"


def estimated_text(change: BandedChange, most: float) -> str:
    """Return why a checkpoint is out whose estimated fall is above ``most`` (probability) but not significant."""
    return (
        f"the estimate of pass@{change.k} fell by more than {100 * most:g} points, not significantly: {_size(change)}"
    )


def expected_text(loss: float, most: float) -> str:
    """Return why a checkpoint is out whose estimated fall is within the limit, but not its expected fall.

    >>> expected_text(0.031, 0.02)
    'the expected fall of pass@k at the worst k is 3.1 points, more than 2'
    """
    return f"the expected fall of pass@k at the worst k is {points_text(loss)} points, more than {100 * most:g}"


def toss_up_text(toss_up: TossUp, series: Sequence[str]) -> str:
    """Return why the base is recommended although a checkpoint has a higher measured pass@1."""
    return (
        f"toss-up with the base, the safe choice: {step_text(toss_up, series)} has an expected gain of "
        f"{signed_text(toss_up.expected_gain)} points of pass@1 ({signed_text(toss_up.gain)} measured), and the "
        f"probability that its pass@1 is above the base's is {toss_up.better:.2f}, below {toss_up.needed:g}"
    )


#: The band also covers samples at other temperatures, so it can be wide enough to miss a fall that the verdict detects.
VERDICT_LOST = "the verdict found a significant fall of pass@k in the population, which the wider band does not show"


def unseen_text(k: int, reach_k: int, n: int, most: float) -> str:
    """Return why a control is out that has too few samples for the largest k."""
    return (
        f"a fall of pass@{k} by more than {100 * most:g} points is not excluded: {plural(n, 'sample')} "
        f"{'gives' if n == 1 else 'give'} pass@k up to k = {reach_k} (raise --control-n)"
    )


#: Reason for no recommendation: the label is *format*, or only the base is eligible and unparsed answers explain a
#: checkpoint's loss.
NOT_READ = (
    "unparsed or misread answers explain a fall of pass@k; grade again with a verifier that parses them "
    "(oversharp regrade)"
)


#: How it is known that pass@k is lower, and the reasons to be out that mean this.
_LOWER: Mapping[str, frozenset[OutBy]] = {
    "estimated": frozenset({"estimate", "reach", "veto"}),
    "expected": frozenset({"expected"}),
}


def base_text(out_by: Sequence[OutBy | None], allowed_loss: float) -> str:
    """Return why the base is recommended. ``out_by`` has the reason why each checkpoint is out, or None.

    >>> base_text(["band", "verdict"], 0.0), base_text(["estimate"], 0.0)
    ('each checkpoint is out: some pass@k fell significantly', 'the only compared checkpoint is out: some pass@k is
    estimated to be more than 2 points lower')
    """
    if None in out_by:
        return "no eligible checkpoint has a higher pass@1"
    each = "the only compared checkpoint" if len(out_by) == 1 else "each checkpoint"
    how = "" if allowed_loss == 0.0 else f" by more than {100 * allowed_loss:g} points"
    reasons = [f"fell significantly{how}"] if {"band", "verdict"} & set(out_by) else []
    if others := set(out_by) - {"band", "verdict"}:
        most = 100 * max(MARGIN, allowed_loss)
        ways = [way for way, kinds in _LOWER.items() if kinds & others]
        reasons.append(f"is {' or '.join(ways)} to be more than {most:g} points lower")
    return f"{each} is out: some pass@k {' or '.join(reasons)}"


def trained_text(best: ShippingStep, series: Sequence[str], *, where: str) -> str:
    """Return why the base at a lower temperature is recommended although a checkpoint is eligible."""
    how = "but may be as good" if best.may_be_best else "and is significantly below the best"
    return (
        f"the best eligible checkpoint, {step_text(best, series)}, has no higher expected pass@1{where} "
        f"({percent_text(best.pass_at_1 or 0.0)}), {how}"
    )


def same_text(base: ShippingStep, *, where: str) -> str:
    """Return the sentence that the base at another temperature may be as good as the recommended checkpoint."""
    assert base.temperature is not None
    assert base.pass_at_1 is not None
    return (
        f"The base at T = {base.temperature:g} may be as good without training: its pass@1{where} is "
        f"{percent_text(base.pass_at_1)}, not significantly lower, and it is eligible too."
    )


def beyond_text(beyond: BeyondSharpening) -> str | None:
    """Return the sentence that the base at a lower temperature may be as good; None if the checkpoint is better."""
    if beyond.is_better:
        return None
    start = "It is not significantly better than the base at a lower temperature"
    if beyond.gain is None:
        return f"{start}."
    distance = difference_text(Estimate(value=beyond.gain, low=beyond.low, high=beyond.high))
    return f"{start}: at the same pass@{beyond.k}, its pass@1 is {distance}."


def cannot_tell_text(*, n_units: int, units: str, width: float, most: float) -> str:
    """Return the sentence that these problems are too few to show that a checkpoint kept pass@k.

    >>> cannot_tell_text(n_units=12, units="problems", width=0.15, most=0.02)
    'Too few data: with 12 problems no fall is significant in the confidence band of all checkpoints and k, which
    extends at least 15.0 points below the estimates. So no checkpoint can be shown to have lost less than 2 points.
    With about 680 problems the band would extend 2 points, as its width is proportional to 1/√(number of problems).
    oversharp plan prints what such audits detect and cost.'
    """
    needed = n_units * (width / most) ** 2
    return (
        f"Too few data: with {n_units:,} {units} no fall is significant in the confidence band of all checkpoints and "
        f"k, which extends at least {points_text(width)} points below the estimates. So no checkpoint can be shown to "
        f"have lost less than {100 * most:g} points. With about {float(f'{needed:.2g}'):,.0f} {units} the band would "
        f"extend {100 * most:g} points, as its width is proportional to 1/√(number of {units}). oversharp plan prints "
        "what such audits detect and cost."
    )


def percent_text(probability: float) -> str:
    """Return the percentage with one decimal."""
    return f"{100 * probability:.1f} %"


def _size(change: BandedChange) -> str:
    return f"{points_text(change.change)}{bounds_text(change.low, change.high)} points"
