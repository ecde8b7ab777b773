"""Choice of the checkpoint to ship, from counts to a recommendation. Pure.

A simultaneous band around the change of pass@k since the base covers all checkpoints of all series, all samples at
other temperatures and all k. So its bounds are valid for the chosen checkpoint. A posterior that is shrunk over the
checkpoints decides whether the choice is better than the base.
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
    TossUp,
)
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MARGIN, STEP_LEVEL
from oversharp.diagnostics.verdict.sharpening import sharpening_of
from oversharp.diagnostics.verdict.shipping import words
from oversharp.diagnostics.verdict.shipping.options import (
    JudgedSeries,
    NoOption,
    Option,
    Prospect,
    Stack,
    banded_change,
    estimate_prospects,
    largest_loss,
    list_options,
    stack_options,
)
from oversharp.diagnostics.verdict.steps import rule_steps

#: Seed of a recommendation.
SEED = 20_261_122
#: The base is recommended if the posterior probability that pass@1 is above the base's is below this.
NEEDED = 0.8


def certifying(names: Sequence[str]) -> Bool[np.ndarray, " problem"]:
    """Return which problems certify; the others choose.

    One bit of the hash of the name (cluster, or id) decides, so a problem is on the same side in every set of problems.

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
    """Recommend a checkpoint of one or several series with the same base and problems.

    The problems of all series are in the same order. Samples at other temperatures are options too. The choice has
    three steps:

    1. Exclude options. An option is out if some pass@k fell significantly by more than ``allowed_loss``. At 0 it is
       also out if the verdict found a loss in the population. It is out if the posterior expectation of its largest
       fall of pass@k is above max(``MARGIN``, ``allowed_loss``), because a beginning loss is not yet significant. A
       control is out if its samples are too few to exclude such a fall at the largest k.
    2. Take the option with the highest expected pass@1 among those with a higher measured pass@1 than the base.
    3. Recommend the base instead if the posterior probability that this pass@1 is above the base's is below ``NEEDED``.
       This is a toss-up, and the base is the safe choice.

    There is no recommendation for series with the label *format*, nor if only the base is eligible and unparsed answers
    explain a checkpoint's loss.

    Args:
        series: Series to choose from.
        allowed_loss: Fall of pass@k that does not exclude a checkpoint, in probability.
        certifying_P: Problems that are not used for the choice. They give the guarantee, and veto the choice if some
            pass@k fell significantly on them. None: all problems are used for both.

    Raises:
        ValueError: ``series`` is empty.
    """
    first = next((judged for judged in series if judged.why is None), series[0]).counts
    result = Recommendation(
        series=tuple(judged.counts.series for judged in series),
        allowed_loss=allowed_loss,
        held_out=certifying_P is not None,
        steps_of="all problems" if certifying_P is None else "the problems that choose",
        n_problems=len(first.base.correct_P),
    )
    choosing_P = np.ones(result.n_problems, dtype=bool) if certifying_P is None else ~certifying_P
    result = replace(result, n_choosing=int(choosing_P.sum()))
    options, left_out = list_options(series)
    why = _why_none(series, first, choosing_P, certifying_P)
    if why is None and all(option.temperature is not None for option in options):
        why = f"no checkpoint can be compared: {left_out[0].why}" if left_out else "no checkpoint can be compared"
    if why is not None:
        return _recommend_nothing(result, series, first, why)
    stack = stack_options(series, options, choosing_P)
    choose_rng, best_rng, certify_rng, lost_rng, beyond_rng, loss_rng = np.random.default_rng(SEED).spawn(6)
    band = stack.band(choose_rng)
    is_lost = [option.lost for option in options] if certifying_P is None else _find_lost(stack, lost_rng)
    steps = _list_steps(stack, band, estimate_prospects(stack, is_lost, loss_rng), is_lost, allowed_loss)
    chosen = _find_best(steps)
    result = replace(result, ks=stack.ks)
    toss_up = None if chosen is None else _find_toss_up(steps[chosen])
    if toss_up is not None:
        result, chosen = replace(result, toss_up=toss_up, why=words.toss_up_text(toss_up, result.series)), None
    if chosen is not None and certifying_P is None:
        over = f"{_options_text(options)} and all k"
        result = _add_guarantee(result, stack, band, row=chosen, chosen=chosen, over=over)
    elif chosen is not None and certifying_P is not None:
        result = _certify(result, stack_options(series, options, certifying_P), chosen, certify_rng)
        if result.why is not None:
            steps[chosen], chosen = replace(steps[chosen], role="out", out_by="veto", why=result.why), None
    base, *trained = _mark_best(stack, [_base_step(first, stack), *steps], best_rng)
    if chosen is None and result.why is None and any(option.cause == "format" for option in options):
        return _recommend_nothing(result, series, first, words.NOT_READ)
    if chosen is None:
        recommended = base = replace(base, role="recommended")
        # with a veto or a toss-up there were enough data
        doubt = None if result.why else _cannot_tell(stack, band, steps, result)
        result = replace(result, why=result.why or _why_base(trained, result), cannot_tell=doubt)
    else:
        recommended = trained[chosen] = replace(trained[chosen], role="recommended")
        result = _compare_with_sampled_base(result, options[chosen], trained, beyond_rng)
    trained += [_unknown_step(option) for option in left_out]
    trained.sort(key=lambda step: _sort_key(step, result.series))
    return _add_sentence(replace(result, recommended=recommended, steps=(base, *trained)))


def _sort_key(step: ShippingStep, series: Sequence[str]) -> tuple[object, ...]:
    """Sort the base's temperatures first, then each checkpoint before its samples at other temperatures."""
    is_control = step.temperature is not None
    place = step.is_base or series.index(step.series)
    return (not step.is_base, place, step.step, is_control, step.temperature or 0.0)


def _options_text(options: Sequence[Option]) -> str:
    n_controls = sum(option.temperature is not None for option in options)
    checkpoints = plural(len(options) - n_controls, "checkpoint")
    return f"{checkpoints}, {plural(n_controls, 'control')} at other temperatures" if n_controls else checkpoints


def _why_none(
    series: Sequence[JudgedSeries],
    first: SeriesCounts,
    choosing_P: Bool[np.ndarray, " problem"],
    certifying_P: Bool[np.ndarray, " problem"] | None,
) -> str | None:
    """Return why nothing can be recommended; None if something can."""
    if all(judged.why is not None for judged in series):
        return series[0].why
    where = "" if certifying_P is None else " on one side of the split"
    for part_P in (choosing_P,) if certifying_P is None else (choosing_P, certifying_P):
        n_units = int(part_P.sum()) if first.cluster_P is None else len(np.unique(first.cluster_P[part_P]))
        if n_units < 2:
            return f"fewer than two {'problems' if first.cluster_P is None else 'clusters of problems'}{where}"
        if not first.base.correct_P[part_P].any():
            return f"the base solved nothing{where}, so no loss can be measured"
    return None


def _recommend_nothing(
    result: Recommendation, series: Sequence[JudgedSeries], first: SeriesCounts, why: str
) -> Recommendation:
    """Return a result without a recommendation, and with the reason for all checkpoints."""
    trained = [
        NoOption(of=judged, drawn=late, why=judged.why or late.why or why)
        for judged in series
        for late in judged.counts.trained
    ]
    base = replace(_base_step(first, None), why=why)
    return _add_sentence(replace(result, why=why, steps=(base, *map(_unknown_step, trained))))


def _find_lost(stack: Stack, rng: np.random.Generator) -> list[bool]:
    """Return which checkpoints lost pass@k in the population by the verdict's tests; False for controls."""
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
    return [option.temperature is None and next(rulings).lost for option in stack.options]


def _list_steps(
    stack: Stack, band: Band, prospects: Sequence[Prospect], is_lost: Sequence[bool], allowed_loss: float
) -> list[ShippingStep]:
    """Return every option, as a candidate or out."""
    steps = []
    for t, option in enumerate(stack.options):
        out_by, why = _why_out(stack, band, t, is_lost[t], prospects[t].loss, allowed_loss)
        lowest = int(band.mean_TK[t, : option.count_ks(stack.ks)].argmin())
        step = ShippingStep(
            series=option.of.counts.series,
            step=option.drawn.step,
            checkpoint=option.drawn.checkpoint,
            is_base=option.is_base,
            role="candidate" if why is None else "out",
            pass_at_1=stack.mean_pass_at_1(option.drawn),
            first=banded_change(band, t, 0, stack.ks),
            worst=banded_change(band, t, lowest, stack.ks),
            loss_at_most=largest_loss(band, t),
            expected_gain=prospects[t].gain,
            expected_loss=prospects[t].loss,
            better=prospects[t].better,
            why=why,
            out_by=out_by,
            temperature=option.temperature,
        )
        steps.append(step)
    return steps


def _why_out(
    stack: Stack, band: Band, t: int, is_lost: bool, expected_loss: float, allowed_loss: float
) -> tuple[OutBy, str] | tuple[None, None]:
    """Return why an option is out, as a code and as text; (None, None) if it is eligible."""
    option = stack.options[t]
    n_ks = option.count_ks(stack.ks)
    fell = _significant_fall(band, t, stack.ks[:n_ks], allowed_loss)
    cause = words.cause_text(option.cause)
    if fell is not None:
        return "band", fell + cause
    if is_lost and allowed_loss == 0.0:
        return "verdict", words.VERDICT_LOST + cause
    most = max(MARGIN, allowed_loss)
    lowest = int(band.mean_TK[t, :n_ks].argmin())
    if expected_loss > most and band.mean_TK[t, lowest] < -most:
        return "estimate", words.estimated_text(banded_change(band, t, lowest, stack.ks), most)
    if band.mean_TK[t, n_ks:].min(initial=0.0) < -most:
        return "reach", words.unseen_text(stack.ks[-1], stack.ks[n_ks - 1], option.drawn.n, most)
    if expected_loss > most:
        return "expected", words.expected_text(expected_loss, most)
    return None, None


def _significant_fall(band: Band, t: int, ks: Sequence[int], allowed_loss: float) -> str | None:
    worst = int(band.high_TK[t, : len(ks)].argmin())
    return words.fell_text(banded_change(band, t, worst, ks)) if band.high_TK[t, worst] < -allowed_loss else None


def _find_toss_up(step: ShippingStep) -> TossUp | None:
    """Return the toss-up if the pass@1 of the checkpoint may be no higher than the base's, else None."""
    assert step.first is not None
    assert step.expected_gain is not None
    assert step.better is not None
    if step.better >= NEEDED:
        return None
    return TossUp(
        series=step.series,
        step=step.step,
        checkpoint=step.checkpoint,
        is_base=step.is_base,
        temperature=step.temperature,
        gain=step.first.change,
        expected_gain=step.expected_gain,
        better=step.better,
        needed=NEEDED,
    )


def _base_step(counts: SeriesCounts, stack: Stack | None) -> ShippingStep:
    """Return the base at the audit's temperature, a candidate unless there is no recommendation."""
    return ShippingStep(
        series=counts.series,
        step=counts.base.step,
        checkpoint=counts.base.checkpoint,
        is_base=True,
        role=None if stack is None else "candidate",
        pass_at_1=None if stack is None else stack.mean_pass_at_1(counts.base),
    )


def _unknown_step(option: NoOption) -> ShippingStep:
    return ShippingStep(
        series=option.of.counts.series,
        step=option.drawn.step,
        checkpoint=option.drawn.checkpoint,
        is_base=False,
        role=None,
        why=option.why,
    )


def _find_best(steps: Sequence[ShippingStep]) -> int | None:
    """Return the index of the candidate with the highest expected pass@1 (or the earliest of equals), or None.

    Its measured pass@1 must be above the base's.
    """
    better = {
        t: step.expected_gain
        for t, step in enumerate(steps)
        if step.role == "candidate" and step.expected_gain is not None and step.first is not None
        and step.first.change > 0
    }  # fmt: skip
    return min(better, key=lambda t: (-better[t], steps[t].step), default=None)


def _why_base(steps: Sequence[ShippingStep], result: Recommendation) -> str:
    out_by = [step.out_by for step in steps if not step.is_base and step.temperature is None]
    return words.base_text(out_by, result.allowed_loss)


def _cannot_tell(stack: Stack, band: Band, steps: Sequence[ShippingStep], result: Recommendation) -> str | None:
    """Return the sentence that these problems are too few for any checkpoint to be eligible, or None."""
    trained = [t for t, option in enumerate(stack.options) if option.temperature is None]
    most = max(MARGIN, result.allowed_loss)
    fell = any((band.high_TK[t] < -result.allowed_loss).any() for t in trained)
    width = min(float((band.mean_TK - band.low_TK)[t].max()) for t in trained)
    if fell or any(option.lost for option in stack.options) or width <= most:
        return None
    if all(steps[t].role == "candidate" for t in trained):
        return None
    units = "problems" if stack.cluster_P is None else "clusters of problems"
    return words.cannot_tell_text(n_units=stack.n_units, units=units, width=width, most=most)


def _compare_with_sampled_base(
    result: Recommendation, chosen: Option, steps: Sequence[ShippingStep], rng: np.random.Generator
) -> Recommendation:
    """Add a comparison of the choice with the base at lower temperatures, or the reason if it is such a base."""
    where = f" on the {result.n_choosing} problems that chose" if result.held_out else ""
    if chosen.is_base:
        best = replace(result, recommended=None, steps=tuple(steps)).best_trained
        why = _why_base(steps, result) if best is None else words.trained_text(best, result.series, where=where)
        return replace(result, why=why)
    sampled = [step for step in steps if step.is_base and step.role == "candidate" and step.may_be_best]
    beyond = _compare_beyond(chosen, rng) if not result.held_out and chosen.temperature is None else None
    if sampled:
        text: str | None = words.same_text(max(sampled, key=lambda step: step.pass_at_1 or 0.0), where=where)
    else:
        text = None if beyond is None else words.beyond_text(beyond)
    return replace(result, beyond=beyond, without_training=text)


def _compare_beyond(chosen: Option, rng: np.random.Generator) -> BeyondSharpening | None:
    """Compare the chosen checkpoint with the base at lower temperatures, also between the sampled ones."""
    counts = chosen.of.counts
    sharpening = sharpening_of(counts, [late for late in counts.trained if late.step == chosen.drawn.step], rng)
    if sharpening is None:
        return None
    gain, is_better = sharpening.gain, sharpening.label == "better"
    return BeyondSharpening(k=sharpening.k, gain=gain.value, low=gain.low, high=gain.high, is_better=is_better)


def _certify(result: Recommendation, stack: Stack, chosen: int, rng: np.random.Generator) -> Recommendation:
    """Add the guarantee from the held-out problems for the choice, or their veto."""
    stack = replace(stack, ks=result.ks)
    option = stack.options[chosen]
    band = stack.band(rng, [option])
    fell = _significant_fall(band, 0, stack.ks[: option.count_ks(stack.ks)], result.allowed_loss)
    if fell is not None:
        name = f"{option.drawn.checkpoint} of {option.of.counts.series}"
        name += "" if option.temperature is None else f" at T = {option.temperature:g}"
        return replace(result, why=f"the {result.n_certifying} held-out problems veto {name}, {fell}")
    over = "all k, on problems that were not used for the choice"
    return _add_guarantee(result, stack, band, row=0, chosen=chosen, over=over)


def _add_guarantee(
    result: Recommendation, stack: Stack, band: Band, *, row: int, chosen: int, over: str
) -> Recommendation:
    """Add the guarantee from the bounds in ``row`` of the band."""
    if stack.few is not None:
        return replace(result, why_no_guarantee=f"{stack.few}, too few for the population they were sampled from")
    option = stack.options[chosen]
    guarantee = Guarantee(
        gain=float(band.low_TK[row, 0]),
        loss=largest_loss(band, row),
        k=stack.ks[int(band.low_TK[row].argmin())],
        base_pass_at_1=stack.mean_pass_at_1(option.of.counts.base),
        pass_at_1=stack.mean_pass_at_1(option.drawn),
        over=over,
        n_units=stack.n_units,
        units="problems" if stack.cluster_P is None else "clusters",
    )
    return replace(result, guarantee=guarantee)


def _mark_best(stack: Stack, steps: Sequence[ShippingStep], rng: np.random.Generator) -> list[ShippingStep]:
    """Mark each candidate whose pass@1 is not significantly below that of any other candidate.

    Each candidate is compared with all others in one band, paired over problems. The best one is missed only by an
    error in its own comparisons, so there is no further correction for the number of candidates.

    Source: Hsu 1984 (Ann. Stat. 12:1136), multiple comparisons with the best.
    """
    value_SP = np.stack([stack.pass_at_1(drawn) for drawn in (stack.base, *(option.drawn for option in stack.options))])
    candidates = [s for s, step in enumerate(steps) if step.role == "candidate"]
    marked = list(steps)
    for s in candidates:
        others = [other for other in candidates if other != s]
        ahead_SUK = [by_cluster((value_SP[s] - value_SP[other])[:, None], stack.cluster_P) for other in others]
        may_be_best = not others or simultaneous_band(np.stack(ahead_SUK), rng=rng).alarm is None
        marked[s] = replace(steps[s], may_be_best=may_be_best)
    return marked


def _add_sentence(result: Recommendation) -> Recommendation:
    return replace(result, sentence=words.shipping_sentence(result))
