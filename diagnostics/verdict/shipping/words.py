"""Which checkpoint to ship, in words."""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.verdict.explanations import CAUSES, Cause
from oversharp.diagnostics.verdict.recommendation import (
    BandedChange,
    BeyondSharpening,
    Guarantee,
    Recommendation,
    ShippingStep,
)
from oversharp.diagnostics.verdict.record import Estimate
from oversharp.diagnostics.verdict.rule import MARGIN
from oversharp.diagnostics.verdict.words.numbers import at_least_text, at_most_text, bounds_text, points_text
from oversharp.diagnostics.verdict.words.sentence import difference_text


def shipping_sentence(said: Recommendation) -> str:
    """Which checkpoint to ship and what is sure of it, or why nothing can be said."""
    chosen = said.recommended
    if chosen is None:
        return f"No recommendation: {said.why}."
    if chosen.is_own_base:
        return _sentences(f"Ship {step_text(chosen, said.series)}: {said.why}.", said.cannot_tell)
    head = f"Ship {step_text(chosen, said.series)}"
    if chosen.is_base:
        head += ", without any training"
    return _sentences(f"{head}: {_sure(said)}", said.why and f"{said.why}.", said.without_training)


def _sentences(*parts: str | None) -> str:
    return " ".join(part[0].upper() + part[1:] for part in parts if part)


def _sure(said: Recommendation) -> str:
    """What is sure of the choice, as the rest of its sentence, with what is not excluded."""
    if said.guarantee is None:
        highest = "its pass@1 is the highest of those that are not out"
        return f"{highest}. Nothing more is sure: {said.why_no_guarantee}."
    sure = said.guarantee
    ends = [f"pass@1 {percent_text(sure.base_pass_at_1)} → {percent_text(sure.pass_at_1)}", _sure_text(sure, said.ks)]
    large = sure.loss > max(MARGIN, said.allowed_loss)
    more = "A fall of up to that size is not excluded by these data; oversharp plan says how large an audit shows one."
    return f"{'; '.join(ends)}.{f' {more}' if large else ''}"


def _sure_text(sure: Guarantee, ks: Sequence[int]) -> str:
    """The guarantee: what pass@1 gained at least and pass@k lost at most."""
    these = f"these {sure.n_units:,}" if sure.units == "problems" else f"these, in {sure.n_units:,} clusters"
    where = f"problems like {these}; {100 * sure.confidence:g} % over {sure.over}"
    if sure.gain > 0:
        gain = f"surely up by {at_least_text(sure.gain)} points or more"
    else:
        gain = f"whether it rose is open, it may have fallen by {at_most_text(-sure.gain)} points"
    if len(ks) == 1:
        return f"{gain}; n is too small to look at larger k ({where})"
    down = f"is pass@k down by more than {at_most_text(sure.loss)}" if sure.loss > 0 else "is pass@k down at all"
    return f"{gain}, and at no k of {ks_text(ks)} {down} ({where})"


def ks_text(ks: Sequence[int]) -> str:
    """The k that were looked at.

    >>> ks_text((1, 2, 4, 8, 16)), ks_text((1, 2))
    ('1, 2, 4, … 16', '1, 2')
    """
    return ", ".join(map(str, ks)) if len(ks) < 5 else f"{', '.join(map(str, ks[:3]))}, … {ks[-1]}"


def step_text(one: ShippingStep, series: Sequence[str]) -> str:
    """A checkpoint by its label, with its series where there are several, and its temperature where that is another."""
    if one.is_base:
        return f"the base, {one.checkpoint}" if one.temperature is None else colder_text(one.temperature)
    name = one.checkpoint if len(series) == 1 else f"{one.checkpoint} of {one.series}"
    return name if one.temperature is None else f"{name} drawn at T = {one.temperature:g}"


def colder_text(temperature: float) -> str:
    """The base at another temperature."""
    return f"the base drawn at T = {temperature:g}"


def alternatives_text(said: Recommendation) -> str | None:
    """What else may be shipped and may have as high a pass@1; None where the sentence has named all of it."""
    chosen = said.recommended
    told = said.best_trained if chosen is not None and chosen.is_base and not chosen.is_own_base else None
    colder = chosen is not None and not chosen.is_base and said.without_training is not None
    others = [one for one in said.alternatives if one != told and not (colder and one.is_base)]
    names = [step_text(one, said.series) for one in others]
    return f"as good in pass@1, for all these data say: {', '.join(names)}" if names else None


def choice_text(said: Recommendation) -> str:
    """What the choice rests on: problems, checkpoints, series, and what one band is simultaneous over."""
    drawn = [one for one in said.steps if one.first is not None]
    n_controls = sum(one.temperature is not None for one in drawn)
    over = plural(len(drawn) - n_controls, "checkpoint")
    over += "" if len(said.series) == 1 else f" of {len(said.series)} series"
    over += f", {plural(n_controls, 'draw')} at other temperatures" if n_controls else ""
    band = f"one band over {over} and k = {ks_text(said.ks)}"
    if not said.held_out:
        return f"{band}, {plural(said.n_choosing, 'problem')}"
    on = f"{said.n_choosing} of {plural(said.n_problems, 'problem')}"
    return f"chosen, and all that follows measured, on {on}: {band}; {_of_the_others(said)}"


def _of_the_others(said: Recommendation) -> str:
    """What rests on the problems that had no part in the choice: nothing where no checkpoint was chosen."""
    others = f"the {said.n_certifying} others, which had no part in the choice"
    if said.guarantee is not None or said.why_no_guarantee is not None:
        return f"what is sure in the sentence above is about {others}"
    if any(one.out_by == "veto" for one in said.steps):
        return f"the veto is that of {others}"
    return f"nothing above rests on {others}"


def fell_text(change: BandedChange) -> str:
    """What a checkpoint surely lost."""
    return f"pass@{change.k} surely fell: {_size(change)}"


def cause_text(cause: Cause | None) -> str:
    """What else may be why a checkpoint lost something, as a clause; empty where nothing that is known of is.

    >>> cause_text("guessing")
    ' (wrong answers that were accepted at the base may be why)'
    """
    return "" if cause is None else f" ({CAUSES[cause]} may be why)"


def estimated_text(change: BandedChange, most: float) -> str:
    """What a checkpoint may have lost, by the estimate more than ``most`` (probability)."""
    return f"pass@{change.k} fell by more than {100 * most:g} points in the estimate, not surely: {_size(change)}"


#: The verdict tests each checkpoint by itself and these very problems too; a band over all does not show as much.
VERDICT_LOST = "the verdict's own test of it shows a loss: pass@k fell at some k, which the wider band does not show"


def unseen_text(k: int, reach_k: int, n: int, most: float) -> str:
    """Why a control is not shipped whose samples do not reach as far as the checkpoints'."""
    return (
        f"whether pass@{k} fell by more than {100 * most:g} points is not known: {plural(n, 'sample')} "
        f"{'shows' if n == 1 else 'show'} pass@k up to k = {reach_k} (--control-n draws more)"
    )


#: Why nothing is recommended where the label is *format*, or where only the base is eligible and unread
#: answers explain a checkpoint's loss.
NOT_READ = (
    "falls of pass@k come from answers that could not be read; grade again with a verifier that reads them "
    "(oversharp regrade)"
)


def base_text(reasons: Sequence[str | None], allowed_loss: float) -> str:
    """Why it is the base; ``reasons`` say of each checkpoint why it is out, None where it is not."""
    if all(one is not None for one in reasons):
        how = "surely" if allowed_loss == 0.0 else f"surely by more than {100 * allowed_loss:g} points"
        most = 100 * max(MARGIN, allowed_loss)
        each = "the only checkpoint" if len(reasons) == 1 else "each checkpoint"
        return f"at {each} some pass@k fell, {how} or by more than {most:g} points in the estimate"
    return "no checkpoint that is not out has a higher pass@1"


def trained_text(best: ShippingStep, series: Sequence[str], *, where: str) -> str:
    """Why it is the base drawn colder, although a checkpoint may be shipped too."""
    how = "though it may be as good" if best.may_be_best else "and surely is not the best"
    return (
        f"the best of the checkpoints that are not out, {step_text(best, series)}, has no higher pass@1{where} "
        f"({percent_text(best.pass_at_1 or 0.0)}), {how}"
    )


def same_text(colder: ShippingStep, *, where: str) -> str:
    """The base drawn colder gives what training gave, for all these data say."""
    assert colder.temperature is not None
    assert colder.pass_at_1 is not None
    return (
        f"For all these data say, drawing the base at T = {colder.temperature:g} gives the same without training: "
        f"its pass@1{where} is {percent_text(colder.pass_at_1)}, not surely lower, and by the same rule it is not out."
    )


def beyond_text(beyond: BeyondSharpening) -> str | None:
    """That the choice is better than drawing the base colder is not shown; None where it is."""
    if beyond.is_better:
        return None
    what = "That it is better than the base drawn at some lower temperature is not shown"
    if beyond.gain is None:
        return f"{what}."
    found = difference_text(Estimate(value=beyond.gain, low=beyond.low, high=beyond.high))
    return f"{what}: with the same pass@{beyond.k}, its pass@1 lies {found}."


def cannot_tell_text(*, n_units: int, units: str, width: float, most: float) -> str:
    """Nothing could have qualified at this size.

    >>> cannot_tell_text(n_units=12, units="problems", width=0.15, most=0.02)
    'These data cannot tell: for problems like these 12 no fall is sure, and the band reaches 15.0 points down at least,
    so that none could be shown to have lost less than 2. Some 680 problems would narrow it to that (the width goes with
    one over the root of their number); oversharp plan says what such audits find and cost.'
    """
    these = f"{n_units:,}" if units == "problems" else f"in {n_units:,} clusters"
    needed = n_units * (width / most) ** 2
    return (
        f"These data cannot tell: for problems like these {these} no fall is sure, and the band reaches "
        f"{points_text(width)} points down at least, so that none could be shown to have lost less than "
        f"{100 * most:g}. Some {float(f'{needed:.2g}'):,.0f} {units} would narrow it to that (the width goes with one "
        "over the root of their number); oversharp plan says what such audits find and cost."
    )


def percent_text(probability: float) -> str:
    """With one decimal."""
    return f"{100 * probability:.1f} %"


def _size(change: BandedChange) -> str:
    return f"{points_text(change.change)}{bounds_text(change.low, change.high)} points"
