"""Verdict on a series from its counts. Pure: no reading, no writing.

All random draws start from one constant, so equal counts give an identical verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.statistics.band import simultaneous_band
from oversharp.diagnostics.statistics.crossing import crossing
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import PairedCounts, mean_changes
from oversharp.diagnostics.statistics.onset import onset
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.units import by_cluster, too_few_to_generalise
from oversharp.diagnostics.verdict.audit_sizes import settle
from oversharp.diagnostics.verdict.claims import (
    FELL,
    HERE,
    LIKE_THESE,
    claims_of,
    error_of_fall,
    lost_problems,
    size_given_label,
)
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts, seen_counts
from oversharp.diagnostics.verdict.explanations import (
    EXPLAINED_LEVEL,
    Fall,
    guess_rate_that_explains,
    is_misread,
    read_alone,
    share_explained,
    share_of_even_loss,
    style_rise,
    taken_for_correct,
)
from oversharp.diagnostics.verdict.headings import VerdictLabel
from oversharp.diagnostics.verdict.no_verdict import count_within_reach, why_none, why_selected
from oversharp.diagnostics.verdict.power import window_size
from oversharp.diagnostics.verdict.record import (
    ChangeAtK,
    Claim,
    Estimate,
    Explanation,
    LenientReading,
    Remedy,
    StepClaim,
    Verdict,
)
from oversharp.diagnostics.verdict.rule import (
    KEY_LEVEL,
    Label,
    Ruling,
    SeenCounts,
    rule,
    with_causes_of_all,
)
from oversharp.diagnostics.verdict.sharpening import sharpening_of
from oversharp.diagnostics.verdict.shipping.choice import recommend
from oversharp.diagnostics.verdict.shipping.options import JudgedSeries
from oversharp.diagnostics.verdict.shipping.words import NOT_READ
from oversharp.diagnostics.verdict.steps import Accuracy, accuracy_of
from oversharp.diagnostics.verdict.words.caveats import (
    FEW_PROBLEMS,
    NEEDS_SAMPLES,
    caveats_of,
    equal_weights_of,
    late_left_out,
    left_out_of,
    misread_base_of,
    unread_of,
    warnings_of,
)
from oversharp.diagnostics.verdict.words.sentence import largest_fall, sentence_of

#: Seed of all randomness of a verdict.
SEED = 20_260_229
#: Weaker labels, without inference on the population, for few solved problems or few clusters: the error rate of the
#: rule was not measured there.
_OF_FEW: Mapping[Label, Label] = {
    "over_sharpened": "over_sharpened_here",
    "no_loss": "inconclusive",
}
#: Reason for no conclusion from correlated samples.
_DEPENDENT = "the samples of a problem are not independent"
#: Drop, in probability, for which an inconclusive verdict gives the size of a decisive audit.
SETTLED_DROP = 0.05


def verdict_of(counts: SeriesCounts) -> Verdict:
    """Return the verdict on a series.

    The window is the last third of the comparable checkpoints, at least one, with their samples summed. k goes up to
    half of the samples of one checkpoint: pooling increases the power, not the range of k.
    """
    verdict = _decide(counts)
    return replace(verdict, shipping=recommend([judged_series(counts, verdict)]))


def judged_series(counts: SeriesCounts, verdict: Verdict) -> JudgedSeries:
    """Return the series as input of ``recommend``: its counts, the lost checkpoints, and why none can be chosen."""
    why = verdict.why if verdict.label == "no_verdict" else NOT_READ if verdict.label == "format" else None
    if counts.dependence is not None:
        why = f"{_DEPENDENT}: {counts.dependence}"
    elif verdict.accuracies and why is None:
        why = f"one response per problem and checkpoint: {NEEDS_SAMPLES}"
    lost = [claim for claim in verdict.steps if claim.lost]
    causes = {claim.step: claim.cause for claim in lost if claim.cause is not None}
    return JudgedSeries(counts=counts, lost=frozenset(claim.step for claim in lost), causes=causes, why=why)


def _decide(counts: SeriesCounts) -> Verdict:
    base = counts.base
    compared = tuple(one for one in counts.trained if one.why is None)
    verdict = Verdict(
        series=counts.series,
        label="no_verdict",
        sentence="",
        n_problems=len(base.correct_P),
        n_within_reach=count_within_reach(counts),
        n_base=base.n,
        rates=tuple(one.rates for one in (base, *counts.trained) if one.rates is not None),
        graders=counts.graders,
        left_out=left_out_of(counts),
        repaired=counts.is_repaired,
        accuracies=_accuracies(counts, compared),
    )
    why = why_none(counts, compared)
    if why is not None:
        # if nothing is compared, the sentence already contains the reasons
        unread = (*counts.grading, *unread_of(counts), *misread_base_of(counts), *equal_weights_of(counts))
        left_out = (f"Left out: {one.checkpoint} ({one.why})." for one in verdict.left_out if compared)
        return _with_sentence(
            replace(verdict, why=why, caveats=(*unread, *filter(None, [counts.excluded]), *left_out), warnings=unread)
        )
    window = compared[-window_size(len(compared)) :]
    rule_rng, decline_rng, remedy_rng, claim_rng, sharpening_rng = np.random.default_rng(SEED).spawn(5)
    seen, ruling = _ruled(counts, compared, window, rule_rng)
    verdict = replace(verdict, selection_p=None if seen.selection is None else seen.selection.p)
    if ruling.label == "selected" and counts.dependence is None:
        notes = (*warnings_of(counts, None, "no_verdict"), *filter(None, [counts.excluded]))
        why = why_selected(counts, seen)
        return _with_sentence(replace(verdict, why=why, caveats=notes, warnings=notes))
    change_GK = by_cluster(mean_changes(seen.window, seen.ks), counts.cluster_P)
    star = crossing(change_GK, seen.ks)
    verdict = replace(
        verdict,
        label=_label(ruling, counts, seen, window),
        p_exact=ruling.p_exact,
        p_population=ruling.p_population,
        p_minority=ruling.p_minority,
        modes_collapsed=ruling.modes_collapsed,
        n_minority_problems=0 if seen.minority is None else seen.minority.n_problems,
        n_late=seen.total.n_late,
        window=tuple(one.step for one in window),
        k_most=seen.ks[-1],
        changes=_changes(base, change_GK, seen.ks),
        least_change=ruling.least_change,
        k_star=Estimate(value=star.value, low=star.low, high=star.high),
        steps=_step_claims(compared, ruling, _too_few(counts) or counts.dependence),
        sharpening=None if counts.dependence else sharpening_of(counts, window, sharpening_rng),
    )
    verdict = _with_claims(verdict, seen, ruling, counts, claim_rng)
    verdict = replace(verdict, lenient=_lenient_reading(verdict, seen, counts))
    if verdict.label in ("over_sharpened", "over_sharpened_here", "degraded") and not counts.is_repaired:
        verdict = _with_decline(verdict, seen, compared, base.step, decline_rng)
    # the needed size depends on the correlation within clusters, which the base's samples do not show
    if verdict.label == "inconclusive" and counts.cluster_P is None and counts.dependence is None:
        verdict = replace(verdict, remedy=_remedy(verdict, counts, remedy_rng))
    verdict = replace(
        verdict,
        caveats=tuple(caveats_of(verdict, counts, window)),
        warnings=tuple(warnings_of(counts, verdict.lenient, verdict.label)),
    )
    return _with_sentence(verdict)


def _ruled(
    counts: SeriesCounts,
    compared: Sequence[CheckpointCounts],
    window: Sequence[CheckpointCounts],
    rng: np.random.Generator,
) -> tuple[SeenCounts, Ruling]:
    seen = seen_counts(counts, compared, window)
    return seen, with_causes_of_all(rule(seen, rng=rng), seen, rng=rng)


def _label(ruling: Ruling, counts: SeriesCounts, seen: SeenCounts, window: Sequence[CheckpointCounts]) -> VerdictLabel:
    """Return the label, weaker for few solved problems, few clusters, dependent samples or late steps left out."""
    if counts.dependence is not None:
        return "inconclusive"
    if ruling.label == "no_loss" and late_left_out(counts, window[0].step):
        return "inconclusive"
    if seen.ks == (1,) and ruling.label in ("over_sharpened", "over_sharpened_here"):
        return "degraded"  # only pass@1 was tested
    if not _too_few(counts):
        return ruling.label
    # then single checkpoints have no results, and neither have explanations of their loss
    if ruling.label not in ("lost_at_steps", "format", "guessing"):
        return _OF_FEW.get(ruling.label, ruling.label)
    causes = (ruling.cause, ruling.modes_cause)
    return "format" if "format" in causes else "guessing" if "guessing" in causes else "inconclusive"


def _too_few(counts: SeriesCounts) -> str | None:
    """Return why there is no inference on the population of the problems; None if there is."""
    if count_within_reach(counts) < FEW_PROBLEMS:
        return f"fewer than {FEW_PROBLEMS} problems were solved by the base"
    return too_few_to_generalise(counts.cluster_P)


def _step_claims(compared: Sequence[CheckpointCounts], ruling: Ruling, few: str | None) -> tuple[StepClaim, ...]:
    """Return the results of single checkpoints; neither lost nor kept with too few problems.

    These results are about the population of the problems.
    """
    said = {} if few is None else {"lost": False, "kept": False}
    return tuple(
        StepClaim(step=one.step, checkpoint=one.checkpoint, **{**asdict(of), **said})
        for one, of in zip(compared, ruling.steps, strict=False)  # empty without tests of single checkpoints
    )


def _limit_to_scope(claim: Claim, why: Mapping[str, str | None]) -> Claim:
    """Return the claim, withdrawn with a reason where its scope allows no inference."""
    if why[claim.scope] is None or claim.p is None:
        return claim
    return replace(claim, holds=False, otherwise=(), why=why[claim.scope])


def _require_exact_test(claim: Claim, ruling: Ruling) -> Claim:
    """Return the claim, unless it needs the exact test too.

    A fall on the population is withdrawn if the exact test of these problems does not show it.
    """
    if claim.name != FELL or not claim.holds or ruling.fell:
        return claim
    return replace(claim, holds=False, otherwise=(), why="these very problems do not show it")


def _with_claims(
    verdict: Verdict,
    seen: SeenCounts,
    ruling: Ruling,
    series: SeriesCounts,
    rng: np.random.Generator,
) -> Verdict:
    """Add the claims and, if something fell, other explanations of it and its likely size."""
    worst = min(verdict.changes, key=lambda change: change.change)
    size = Estimate(value=worst.change, low=worst.low, high=worst.high)
    verdict = replace(verdict, share_by_lost_problems=_share_by_lost_problems(seen, worst.k))
    few = _too_few(series)
    dependent = None if series.dependence is None else _DEPENDENT
    why = {LIKE_THESE: dependent or few, HERE: dependent}
    claims = (
        _require_exact_test(_limit_to_scope(claim, why), ruling) for claim in claims_of(seen, ruling, size, rng=rng)
    )
    verdict = replace(verdict, claims=tuple(claims))
    fall_and_step = _fall_of_label(verdict, seen, ruling)
    if fall_and_step is None or dependent is not None:
        return verdict
    fall, step = fall_and_step
    k = worst.k if fall.counts is seen.total else fall.worst_k
    read, correct = _format_parts(fall, k, rng)
    explanation = Explanation(
        guess_rate=guess_rate_that_explains(fall.counts, ks=fall.ks, level=EXPLAINED_LEVEL, rng=rng),
        guess_rate_allowed=series.guess_rate.share,
        guess_source=series.guess_rate.source,
        format=read,
        format_most=correct,
        even_loss=share_of_even_loss(seen.total, k=worst.k, rng=rng) if verdict.label == "degraded" else None,
        step=step,
    )
    verdict = replace(verdict, explanation=explanation)
    if few is not None or not verdict.positive or not ruling.fell or worst.change >= 0:
        return verdict
    error = error_of_fall(seen, ruling, worst.k)
    return replace(verdict, size_given_label=size_given_label(worst.change, error))


def _share_by_lost_problems(seen: SeenCounts, k: int) -> float | None:
    """Return the part of the fall of pass@``k`` by problems that were each lost significantly; None without a fall."""
    change_P = mean_changes(seen.window, [k])[:, 0]
    fall = -float(change_P.sum())
    if fall <= 0:
        return None
    lost_P = lost_problems(seen.total, KEY_LEVEL * seen.spent)
    return float(np.clip(-change_P[lost_P].sum() / fall, 0.0, 1.0))


def _fall_of_label(verdict: Verdict, seen: SeenCounts, ruling: Ruling) -> tuple[Fall, int | None] | None:
    """Return the fall that the label is about, with the step if it is a single checkpoint.

    None without a fall.
    """
    cause = verdict.label if verdict.label in ("format", "guessing") else None
    modes = seen.fall_of_modes()
    if verdict.label in ("lost_at_steps", "mode_collapse"):
        of_window, of_modes = False, verdict.label == "mode_collapse"
    elif cause is not None:
        of_window, of_modes = ruling.fell and ruling.cause == cause, ruling.modes_cause == cause
    else:
        of_window, of_modes = ruling.fell, ruling.modes_collapsed
    if of_window:
        return seen.fall_of_window(), None
    if of_modes and modes is not None:
        return modes, None
    if cause is None and verdict.label != "lost_at_steps":
        return None
    worst = min(verdict.steps_of_label(), key=lambda step: step.change)
    return seen.fall_of_step([claim.step for claim in verdict.steps].index(worst.step)), worst.step


def _lenient_reading(verdict: Verdict, seen: SeenCounts, counts: SeriesCounts) -> LenientReading | None:
    """Return the result by the lenient reader.

    None without one, or where the style of the answers did not change.
    """
    leniently = seen.read_leniently()
    if leniently is None:
        return None
    rise = style_rise(seen.total, leniently.total)
    if rise is None:
        return None
    # a separate generator: the lenient reading must not change the verdict
    rng = np.random.default_rng(SEED)
    k = seen.fall_of_window().worst_k
    base, late = _mean_pass_at_k(leniently.total, k)
    strict_base, strict_late = _mean_pass_at_k(seen.total, k)
    return LenientReading(
        k=k,
        base=base,
        late=late,
        strict_base=strict_base,
        strict_late=strict_late,
        rise=rise,
        label=_lenient_label(rule(leniently, rng=rng), counts, leniently, verdict),
        explains=verdict.label == "format" and is_misread(seen.fall_of_window(), rng),
    )


def _lenient_label(ruling: Ruling, counts: SeriesCounts, seen: SeenCounts, verdict: Verdict) -> VerdictLabel:
    compared = [one for one in counts.trained if one.why is None and one.step >= verdict.window[0]]
    label = _label(ruling, counts, seen, compared)
    return "no_verdict" if label == "selected" else label


def _mean_pass_at_k(counts: PairedCounts, k: int) -> tuple[float, float]:
    """Return pass@k on average over problems, at the base and late."""
    base_P = pass_at_k_table(counts.n_base, [k])[counts.base_P, 0]
    late_P = pass_at_k_table(counts.n_late, [k])[counts.late_P, 0]
    return float(base_P.mean()), float(late_P.mean())


def _format_parts(fall: Fall, k: int, rng: np.random.Generator) -> tuple[float | None, float | None]:
    """Return the parts of the fall of pass@k that unparsed samples explain.

    The first part assumes that they are correct as often as parsed ones, the second that all are. None where their
    share did not rise.
    """
    if fall.unread is None or fall.unread.rise(fall.counts) <= 0:
        return None, None
    return (
        share_explained(fall.counts, read_alone(fall.counts, fall.unread, rng=rng), k=k),
        share_explained(fall.counts, taken_for_correct(fall.counts, fall.unread), k=k),
    )


def _accuracies(counts: SeriesCounts, compared: Sequence[CheckpointCounts]) -> tuple[Accuracy, ...]:
    """Return the accuracy of base and compared checkpoints.

    Empty unless each problem has one response.
    """
    base = counts.base
    if base.why is not None or not compared or any(one.n != 1 for one in (base, *compared)) or not len(base.correct_P):
        return ()
    against = [
        accuracy_of(
            base.correct_P,
            one.correct_P,
            step=one.step,
            checkpoint=one.checkpoint,
            greedy=counts.is_greedy,
            cluster_P=counts.cluster_P,
        )
        for one in (base, *compared)
    ]
    of_base = replace(against[0], n_lost=None, n_gained=None, low=None, high=None, p=None)
    return (of_base, *against[1:])


def _changes(
    base: CheckpointCounts, change_PK: Float[np.ndarray, "problem k"], ks: Sequence[int]
) -> tuple[ChangeAtK, ...]:
    base_K = pass_at_k_table(base.n, ks)[base.correct_P].mean(axis=0).tolist()
    intervals = [share_interval(change_P, bounds=(-1.0, 1.0)) for change_P in change_PK.T]
    return tuple(
        ChangeAtK(
            k=k, base=before, late=before + interval.mean, change=interval.mean, low=interval.low, high=interval.high
        )
        for k, before, interval in zip(ks, base_K, intervals, strict=True)
    )


def _with_decline(
    verdict: Verdict, seen: SeenCounts, compared: Sequence[CheckpointCounts], base_step: int, rng: np.random.Generator
) -> Verdict:
    """Add when the fall was first significant and when it began, at the k where it is largest."""
    ks = seen.step_ks
    change_TPK = np.stack([by_cluster(one.changes(ks), seen.cluster_P) for one in seen.steps])
    steps_T = [one.step for one in compared]
    band_rng, onset_rng = rng.spawn(2)
    alarm = simultaneous_band(change_TPK, rng=band_rng).alarm
    fall = largest_fall(tuple(change for change in verdict.changes if change.k in set(ks)))
    began = None
    if fall is not None:
        began = onset(change_TPK[:, :, ks.index(fall.k)], steps_T, base_step, rng=onset_rng)
    return replace(
        verdict,
        detected_by=None if alarm is None else steps_T[alarm],
        decline_began=None if began is None else Estimate(value=began.step, low=began.low, high=began.high),
    )


def _remedy(verdict: Verdict, counts: SeriesCounts, rng: np.random.Generator) -> Remedy | None:
    compared = [one for one in counts.trained if one.why is None]
    return settle(
        counts.base.correct_P,
        counts.base.n,
        n=min(one.n for one in compared if one.step in verdict.window),
        drop=SETTLED_DROP,
        tokens_per_sample=counts.tokens_per_sample,
        n_checkpoints=len(compared),
        rng=rng,
        k=verdict.k_most,
    )


def _with_sentence(verdict: Verdict) -> Verdict:
    return replace(verdict, sentence=sentence_of(verdict))
