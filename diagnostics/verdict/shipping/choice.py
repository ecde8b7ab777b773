"""Which checkpoint to ship: from counts to a recommendation. Nothing is read here and nothing written.

One band around the change of pass@k since the base holds at all checkpoints of all series, at all that controls drew
at other temperatures, and at all k at once, so what it says of the one that was chosen by looking at all of them is as
sure as if that had been chosen beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
from jaxtyping import Bool

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.statistics.band import Band, simultaneous_band
from oversharp.diagnostics.statistics.units import by_cluster
from oversharp.diagnostics.verdict.counts import SeriesCounts
from oversharp.diagnostics.verdict.recommendation import (
    BeyondSharpening,
    Guarantee,
    OutBy,
    Recommendation,
    ShippingStep,
)
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MARGIN, STEP_LEVEL
from oversharp.diagnostics.verdict.sharpening import sharpening_of
from oversharp.diagnostics.verdict.shipping import words
from oversharp.diagnostics.verdict.shipping.options import (
    JudgedSeries,
    NoOption,
    Option,
    Stack,
    change_at,
    loss_at_most,
    options_of,
    stacked,
)
from oversharp.diagnostics.verdict.steps import rule_steps

#: Where all randomness of a recommendation starts.
SEED = 20_261_122


def certifying(names: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    """Which problems certify, where the others choose: a bit of the hash of each name (its cluster, or its id).

    The same problem is on the same side in every set of problems.

    >>> certifying(["a", "b", "e", "a"]).tolist()
    [False, False, True, False]
    """
    return np.array([sha256(name.encode()).digest()[0] % 2 == 1 for name in names], dtype=bool)


def recommend(
    series: Sequence[JudgedSeries],
    *,
    allowed_loss: float = 0.0,
    certifying_P: Bool[np.ndarray, " problem"] | None = None,
) -> Recommendation:
    """Which checkpoint to ship, of one or several series that share the base and, in one order, the problems.

    What controls drew at other temperatures can be shipped too: the base colder, a checkpoint hotter. Out is what some
    pass@k of surely fell by more than ``allowed_loss`` (probability), at 0 also a checkpoint that its verdict calls
    lost, and what some pass@k of is estimated to have fallen by more than ``MARGIN``, or by more than ``allowed_loss``
    where that is larger: few data show nothing surely, and what is surely lost is half lost before. A control of fewer
    samples is out where they do not show that much at the largest k. Of the others, and the base, the one with the
    highest pass@1. With ``certifying_P`` these problems have no part in the choice: they alone say what is sure of it,
    and veto it where some pass@k surely fell on them. A series whose label is *format* gets no
    recommendation: ``judged_series`` gives it a reason. Of other labels there is none either where only the base is
    eligible and unread answers explain a checkpoint's loss.

    Raises ``ValueError`` without a series.
    """
    first = next((one for one in series if one.why is None), series[0]).counts
    said = Recommendation(
        series=tuple(one.counts.series for one in series),
        allowed_loss=allowed_loss,
        held_out=certifying_P is not None,
        steps_of="all problems" if certifying_P is None else "the problems that choose",
        n_problems=len(first.base.correct_P),
    )
    choosing_P = np.ones(said.n_problems, dtype=bool) if certifying_P is None else ~certifying_P
    said = replace(said, n_choosing=int(choosing_P.sum()))
    options, left_out = options_of(series)
    why = _why_none(series, first, choosing_P, certifying_P)
    if why is not None:
        return _nothing(said, series, first, why)
    stack = stacked(series, options, choosing_P)
    choose_rng, best_rng, certify_rng, lost_rng, beyond_rng = np.random.default_rng(SEED).spawn(5)
    band = stack.band(choose_rng)
    lost = [one.lost for one in options] if certifying_P is None else _lost(stack, lost_rng)
    steps = _ruled(stack, band, lost, allowed_loss)
    chosen = _highest(steps)
    said = replace(said, ks=stack.ks)
    if chosen is not None and certifying_P is None:
        said = _with_guarantee(said, stack, band, row=chosen, chosen=chosen, over=f"{_counted(options)} and all k")
    elif chosen is not None and certifying_P is not None:
        said = _certified(said, stacked(series, options, certifying_P), chosen, certify_rng)
        if said.why is not None:
            steps[chosen], chosen = replace(steps[chosen], role="out", out_by="veto", why=said.why), None
    base, *told = _with_best(stack, [_base_step(first, stack), *steps], best_rng)
    if chosen is None and said.why is None and any(one.cause == "format" for one in options):
        return _nothing(said, series, first, words.NOT_READ)
    if chosen is None:
        recommended = base = replace(base, role="recommended")
        doubt = None if said.why else _cannot_tell(stack, band, steps, said)  # a veto is sure
        said = replace(said, why=said.why or _why_base(told, said), cannot_tell=doubt)
    else:
        recommended = told[chosen] = replace(told[chosen], role="recommended")
        said = _beside_the_colder_base(said, options[chosen], told, chosen, beyond_rng)
    told += [_unknown(one) for one in left_out]
    told.sort(key=lambda one: _place(one, said.series))
    return _told(replace(said, recommended=recommended, steps=(base, *told)))


def _place(one: ShippingStep, series: Sequence[str]) -> tuple[object, ...]:
    """The base's temperatures first, then each checkpoint before what was drawn of it at others."""
    own = one.temperature is not None
    return (not one.is_base, one.is_base or series.index(one.series), one.step, own, one.temperature or 0.0)


def _counted(options: Sequence[Option]) -> str:
    n_controls = sum(one.temperature is not None for one in options)
    checkpoints = plural(len(options) - n_controls, "checkpoint")
    return f"{checkpoints}, {plural(n_controls, 'draw')} at other temperatures" if n_controls else checkpoints


def _why_none(
    series: Sequence[JudgedSeries],
    first: SeriesCounts,
    choosing_P: Bool[np.ndarray, " problem"],
    certifying_P: Bool[np.ndarray, " problem"] | None,
) -> str | None:
    """Why nothing can be recommended; None where something can."""
    if all(one.why is not None for one in series):
        return series[0].why
    where = "" if certifying_P is None else " on one side of the split"
    for part_P in (choosing_P,) if certifying_P is None else (choosing_P, certifying_P):
        if len(_units(first, part_P)) < 2:
            return f"fewer than two {'problems' if first.cluster_P is None else 'clusters of problems'}{where}"
        if not first.base.correct_P[part_P].any():
            return f"the base solved nothing{where}, and what is out of reach cannot be lost"
    return None


def _nothing(said: Recommendation, series: Sequence[JudgedSeries], first: SeriesCounts, why: str) -> Recommendation:
    """Without a recommendation, and all checkpoints with the reason."""
    trained = [NoOption(of=of, drawn=one, why=of.why or one.why or why) for of in series for one in of.counts.trained]
    base = replace(_base_step(first, None), why=why)
    return _told(replace(said, why=why, steps=(base, *map(_unknown, trained))))


def _units(counts: SeriesCounts, part_P: Bool[np.ndarray, " problem"]) -> np.ndarray:
    return np.flatnonzero(part_P) if counts.cluster_P is None else np.unique(counts.cluster_P[part_P])


def _lost(stack: Stack, rng: np.random.Generator) -> list[bool]:
    """Which checkpoints surely lost something, by the verdict's rule on these problems alone; no control did."""
    if stack.few is not None:
        return [False] * len(stack.options)
    rulings = iter(
        rule_steps(
            stack.pairs,
            ks=stack.ks,
            level=STEP_LEVEL,
            exact_level=KEY_LEVEL,
            margin=MARGIN,
            rng=rng,
            cluster_P=stack.cluster_P,
        )
    )
    return [one.temperature is None and next(rulings).lost for one in stack.options]


def _ruled(stack: Stack, band: Band, lost: Sequence[bool], allowed_loss: float) -> list[ShippingStep]:
    """Every option, as a candidate or out."""
    steps = []
    for t, one in enumerate(stack.options):
        out_by, why = _why_out(stack, band, t, lost[t], allowed_loss)
        step = ShippingStep(
            series=one.of.counts.series,
            step=one.drawn.step,
            checkpoint=one.drawn.checkpoint,
            is_base=one.is_base,
            role="candidate" if why is None else "out",
            pass_at_1=stack.mean_pass_at_1(one.drawn),
            first=change_at(band, t, 0, stack.ks),
            worst=change_at(band, t, int(band.mean_TK[t, : _seen(stack, one)].argmin()), stack.ks),
            loss_at_most=loss_at_most(band, t),
            why=why,
            out_by=out_by,
            temperature=one.temperature,
        )
        steps.append(step)
    return steps


def _seen(stack: Stack, option: Option) -> int:
    """How many of the ks the option's own samples say something of; beyond them the band holds a lower bound."""
    return sum(k <= option.reach_k for k in stack.ks)


def _why_out(
    stack: Stack, band: Band, t: int, lost: bool, allowed_loss: float
) -> tuple[OutBy, str] | tuple[None, None]:
    """Why an option is not to be shipped, and what shows it; nothing where it may be."""
    seen = _seen(stack, stack.options[t])
    surely = _surely_fell(band, t, stack.ks[:seen], allowed_loss)
    why_else = words.cause_text(stack.options[t].cause)
    if surely is not None:
        return "band", surely + why_else
    if lost and allowed_loss == 0.0:
        return "verdict", words.VERDICT_LOST + why_else
    most = max(MARGIN, allowed_loss)
    lowest = int(band.mean_TK[t, :seen].argmin())
    if band.mean_TK[t, lowest] < -most:
        return "estimate", words.estimated_text(change_at(band, t, lowest, stack.ks), most)
    if band.mean_TK[t].min() < -most:
        return "reach", words.unseen_text(stack.ks[-1], stack.ks[seen - 1], stack.options[t].drawn.n, most)
    return None, None


def _surely_fell(band: Band, t: int, ks: Sequence[int], allowed_loss: float) -> str | None:
    worst = int(band.high_TK[t, : len(ks)].argmin())
    return words.fell_text(change_at(band, t, worst, ks)) if band.high_TK[t, worst] < -allowed_loss else None


def _base_step(counts: SeriesCounts, stack: Stack | None) -> ShippingStep:
    """The base as it is, a candidate where something can be said."""
    base = counts.base
    return ShippingStep(
        series=counts.series,
        step=base.step,
        checkpoint=base.checkpoint,
        is_base=True,
        role=None if stack is None else "candidate",
        pass_at_1=None if stack is None else stack.mean_pass_at_1(base),
    )


def _unknown(one: NoOption) -> ShippingStep:
    return ShippingStep(
        series=one.of.counts.series,
        step=one.drawn.step,
        checkpoint=one.drawn.checkpoint,
        is_base=False,
        role=None,
        why=one.why,
    )


def _highest(steps: Sequence[ShippingStep]) -> int | None:
    """The candidate with the highest pass@1, the earliest of equals; None where none lies above the base."""
    better = {
        t: one.pass_at_1
        for t, one in enumerate(steps)
        if one.role == "candidate" and one.pass_at_1 is not None and one.first is not None and one.first.change > 0
    }
    return min(better, key=lambda t: (-better[t], steps[t].step), default=None)


def _why_base(steps: Sequence[ShippingStep], said: Recommendation) -> str:
    reasons = [one.why for one in steps if not one.is_base and one.temperature is None]
    return words.base_text(reasons, said.allowed_loss)


def _cannot_tell(stack: Stack, band: Band, steps: Sequence[ShippingStep], said: Recommendation) -> str | None:
    """That no checkpoint could have qualified at this size; None where one could, or surely fell."""
    trained = [t for t, one in enumerate(stack.options) if one.temperature is None]
    most = max(MARGIN, said.allowed_loss)
    sure = any(one.lost for one in stack.options) or any((band.high_TK[t] < -said.allowed_loss).any() for t in trained)
    width = min(float((band.mean_TK - band.low_TK)[t].max()) for t in trained)
    if sure or width <= most or all(steps[t].role == "candidate" for t in trained):
        return None
    units = "problems" if stack.cluster_P is None else "clusters of problems"
    return words.cannot_tell_text(n_units=stack.n_units, units=units, width=width, most=most)


def _beside_the_colder_base(
    said: Recommendation, chosen: Option, steps: Sequence[ShippingStep], place: int, rng: np.random.Generator
) -> Recommendation:
    """With what the base drawn colder gives as well, where it was: the choice is that itself, or held against it."""
    where = f" on the {said.n_choosing} problems that chose" if said.held_out else ""
    if chosen.is_base:
        best = replace(said, recommended=None, steps=tuple(steps)).best_trained
        why = _why_base(steps, said) if best is None else words.trained_text(best, said.series, where=where)
        return replace(said, why=why)
    colder = [one for one in steps if one.is_base and one.role == "candidate" and one.may_be_best]
    beyond = _beyond(chosen, rng) if not said.held_out and chosen.temperature is None else None
    if colder:
        best = max(colder, key=lambda one: one.pass_at_1 or 0.0)
        text: str | None = words.same_text(best, where=where)
    else:
        text = None if beyond is None else words.beyond_text(beyond)
    return replace(said, beyond=beyond, without_training=text)


def _beyond(chosen: Option, rng: np.random.Generator) -> BeyondSharpening | None:
    """The chosen checkpoint alone against the base at every lower temperature, those between the drawn ones too."""
    counts = chosen.of.counts
    window = [one for one in counts.trained if one.step == chosen.drawn.step]
    found = sharpening_of(counts, window, rng)
    if found is None:
        return None
    gain = found.gain
    return BeyondSharpening(k=found.k, gain=gain.value, low=gain.low, high=gain.high, is_better=found.label == "better")


def _certified(said: Recommendation, stack: Stack, chosen: int, rng: np.random.Generator) -> Recommendation:
    """With what the held-out problems say of the choice alone, or why they veto it."""
    stack = replace(stack, ks=said.ks)
    option = stack.options[chosen]
    band = stack.band(rng, [option])
    why = _surely_fell(band, 0, stack.ks[: _seen(stack, option)], said.allowed_loss)
    if why is not None:
        name = f"{option.drawn.checkpoint} of {option.of.counts.series}"
        name += "" if option.temperature is None else f" at T = {option.temperature:g}"
        return replace(said, why=f"the {said.n_certifying} held-out problems veto {name}, {why}")
    over = "all k, on problems that had no part in the choice"
    return _with_guarantee(said, stack, band, row=0, chosen=chosen, over=over)


def _with_guarantee(
    said: Recommendation, stack: Stack, band: Band, *, row: int, chosen: int, over: str
) -> Recommendation:
    """With what ``row`` of the band says of the choice."""
    if stack.few is not None:
        return replace(said, why_no_guarantee=f"{stack.few}, which say nothing of others like them")
    option = stack.options[chosen]
    sure = Guarantee(
        gain=float(band.low_TK[row, 0]),
        loss=loss_at_most(band, row),
        k=stack.ks[int(band.low_TK[row].argmin())],
        base_pass_at_1=stack.mean_pass_at_1(option.of.counts.base),
        pass_at_1=stack.mean_pass_at_1(option.drawn),
        over=over,
        n_units=stack.n_units,
        units="problems" if stack.cluster_P is None else "clusters",
    )
    return replace(said, guarantee=sure)


def _with_best(stack: Stack, steps: Sequence[ShippingStep], rng: np.random.Generator) -> list[ShippingStep]:
    """The base and the options, those marked of which no other surely has a higher pass@1.

    Each that may be shipped is held against all others at once, paired over problems. For the truly best to be passed
    over, one of its own differences must be misjudged, so nothing is to be paid for how many are held against others.
    Source: Hsu 1984 (Ann. Stat. 12:1136), multiple comparisons with the best.
    """
    value_SP = np.stack([stack.pass_at_1(one) for one in (stack.base, *(one.drawn for one in stack.options))])
    contenders = [s for s, one in enumerate(steps) if one.role == "candidate"]
    marked = list(steps)
    for s in contenders:
        others = [other for other in contenders if other != s]
        ahead_SUK = [by_cluster((value_SP[s] - value_SP[other])[:, None], stack.cluster_P) for other in others]
        best = not others or simultaneous_band(np.stack(ahead_SUK), rng=rng).alarm is None
        marked[s] = replace(steps[s], may_be_best=best)
    return marked


def _told(said: Recommendation) -> Recommendation:
    return replace(said, sentence=words.shipping_sentence(said))
