"""From counts to the verdict on a series. Nothing is read here and nothing written.

Every random draw starts from one constant, so that equal counts give an equal verdict to the last digit.
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

#: Where all randomness of a verdict starts.
SEED = 20_260_229
#: What labels are worth with few such problems, or few clusters, where nobody has measured how often the rule is wrong:
#: nothing is said of other problems.
_OF_FEW: Mapping[Label, Label] = {
    "over_sharpened": "over_sharpened_here",
    "no_loss": "inconclusive",
}
#: Why nothing is concluded of samples that hang together.
_DEPENDENT = "the samples of a problem are not independent"
#: The drop, in probability, that an inconclusive verdict says how to settle.
SETTLED_DROP = 0.05


def verdict_of(counts: SeriesCounts) -> Verdict:
    """The verdict from what was read.

    The window is the last third of the checkpoints that can be compared, at least one, with their samples summed.
    k goes up to half of the samples of one checkpoint: the power of the pooled ones, the reach of the single ones.
    """
    said = _judged(counts)
    return replace(said, shipping=recommend([judged_series(counts, said)]))


def judged_series(counts: SeriesCounts, verdict: Verdict) -> JudgedSeries:
    """Return the series as input of ``recommend``: its counts, the lost checkpoints, and why none can be chosen."""
    why = verdict.why if verdict.label == "no_verdict" else NOT_READ if verdict.label == "format" else None
    if counts.dependence is not None:
        why = f"{_DEPENDENT}: {counts.dependence}"
    elif verdict.accuracies and why is None:
        why = f"one response per problem and checkpoint: {NEEDS_SAMPLES}"
    lost = [one for one in verdict.steps if one.lost]
    causes = {one.step: one.cause for one in lost if one.cause is not None}
    return JudgedSeries(counts=counts, lost=frozenset(one.step for one in lost), causes=causes, why=why)


def _judged(counts: SeriesCounts) -> Verdict:
    base = counts.base
    compared = tuple(one for one in counts.trained if one.why is None)
    said = Verdict(
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
        # without anything compared, the reasons are the sentence
        unread = (*counts.grading, *unread_of(counts), *misread_base_of(counts), *equal_weights_of(counts))
        left_out = (f"Left out: {one.checkpoint} ({one.why})." for one in said.left_out if compared)
        return _with_sentence(
            replace(said, why=why, caveats=(*unread, *filter(None, [counts.excluded]), *left_out), warnings=unread)
        )
    window = compared[-window_size(len(compared)) :]
    rule_rng, decline_rng, remedy_rng, claim_rng, sharpening_rng = np.random.default_rng(SEED).spawn(5)
    seen, ruling = _ruled(counts, compared, window, rule_rng)
    said = replace(said, selection_p=None if seen.selection is None else seen.selection.p)
    if ruling.label == "selected" and counts.dependence is None:
        notes = (*warnings_of(counts, None, "no_verdict"), *filter(None, [counts.excluded]))
        why = why_selected(counts, seen)
        return _with_sentence(replace(said, why=why, caveats=notes, warnings=notes))
    change_GK = by_cluster(mean_changes(seen.window, seen.ks), counts.cluster_P)
    star = crossing(change_GK, seen.ks)
    said = replace(
        said,
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
    said = _with_claims(said, seen, ruling, counts, claim_rng)
    said = replace(said, lenient=_lenient_reading(said, seen, counts))
    if said.label in ("over_sharpened", "over_sharpened_here", "degraded") and not counts.is_repaired:
        said = _with_decline(said, seen, compared, base.step, decline_rng)
    # how far the problems of a cluster fall together, and so how many settle it, no samples of the base tell
    if said.label == "inconclusive" and counts.cluster_P is None and counts.dependence is None:
        said = replace(said, remedy=_remedy(said, counts, remedy_rng))
    said = replace(
        said,
        caveats=tuple(caveats_of(said, counts, window)),
        warnings=tuple(warnings_of(counts, said.lenient, said.label)),
    )
    return _with_sentence(said)


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
        return "degraded"  # what fell is pass@1, and nothing else was looked at
    if not _too_few(counts):
        return ruling.label
    # of single checkpoints, and so of what explains their loss, nothing is said then
    if ruling.label not in ("lost_at_steps", "format", "guessing"):
        return _OF_FEW.get(ruling.label, ruling.label)
    causes = (ruling.cause, ruling.modes_cause)
    return "format" if "format" in causes else "guessing" if "guessing" in causes else "inconclusive"


def _too_few(counts: SeriesCounts) -> str | None:
    """Why nothing is said of problems like these; None where there are enough of them."""
    if count_within_reach(counts) < FEW_PROBLEMS:
        return f"fewer than {FEW_PROBLEMS} problems were solved by the base"
    return too_few_to_generalise(counts.cluster_P)


def _step_claims(compared: Sequence[CheckpointCounts], ruling: Ruling, few: str | None) -> tuple[StepClaim, ...]:
    """What is said of single checkpoints: of few problems nothing, for it would be said of problems like these."""
    said = {} if few is None else {"lost": False, "kept": False}
    return tuple(
        StepClaim(step=one.step, checkpoint=one.checkpoint, **{**asdict(of), **said})
        for one, of in zip(compared, ruling.steps, strict=False)  # empty where nothing can be said of single ones
    )


def _claimed(claim: Claim, why: Mapping[str, str | None]) -> Claim:
    """The claim, or what it is worth where nothing is said of its scope, for a reason."""
    if why[claim.scope] is None or claim.p is None:
        return claim
    return replace(claim, holds=False, otherwise=(), why=why[claim.scope])


def _agreed(claim: Claim, ruling: Ruling) -> Claim:
    """The claim, unless it says of problems like these what the exact test of these very ones does not show."""
    if claim.name != FELL or not claim.holds or ruling.fell:
        return claim
    return replace(claim, holds=False, otherwise=(), why="these very problems do not show it")


def _with_claims(
    said: Verdict,
    seen: SeenCounts,
    ruling: Ruling,
    series: SeriesCounts,
    rng: np.random.Generator,
) -> Verdict:
    """The verdict with its claims; where something fell, with what else explains it, and with its likely size."""
    worst = min(said.changes, key=lambda change: change.change)
    size = Estimate(value=worst.change, low=worst.low, high=worst.high)
    said = replace(said, share_by_lost_problems=_share_by_lost_problems(seen, worst.k))
    few = _too_few(series)
    dependent = None if series.dependence is None else _DEPENDENT
    why = {LIKE_THESE: dependent or few, HERE: dependent}
    claims = (_agreed(_claimed(claim, why), ruling) for claim in claims_of(seen, ruling, size, rng=rng))
    said = replace(said, claims=tuple(claims))
    found = _fall_of_label(said, seen, ruling)
    if found is None or dependent is not None:
        return said
    fall, step = found
    k = worst.k if fall.counts is seen.total else fall.worst_k
    read, correct = _format_parts(fall, k, rng)
    explanation = Explanation(
        guess_rate=guess_rate_that_explains(fall.counts, ks=fall.ks, level=EXPLAINED_LEVEL, rng=rng),
        guess_rate_allowed=series.guess_rate.share,
        guess_source=series.guess_rate.source,
        format=read,
        format_most=correct,
        even_loss=share_of_even_loss(seen.total, k=worst.k, rng=rng) if said.label == "degraded" else None,
        step=step,
    )
    said = replace(said, explanation=explanation)
    if few is not None or not said.positive or not ruling.fell or worst.change >= 0:
        return said
    error = error_of_fall(seen, ruling, worst.k)
    return replace(said, size_given_label=size_given_label(worst.change, error))


def _share_by_lost_problems(seen: SeenCounts, k: int) -> float | None:
    """Return the part of the fall of pass@``k`` by problems that were each lost significantly; None without a fall."""
    change_P = mean_changes(seen.window, [k])[:, 0]
    fall = -float(change_P.sum())
    if fall <= 0:
        return None
    lost_P = lost_problems(seen.total, KEY_LEVEL * seen.spent)
    return float(np.clip(-change_P[lost_P].sum() / fall, 0.0, 1.0))


def _fall_of_label(said: Verdict, seen: SeenCounts, ruling: Ruling) -> tuple[Fall, int | None] | None:
    """What was found that the label speaks of, with the step where that is a single checkpoint; None for nothing."""
    cause = said.label if said.label in ("format", "guessing") else None
    modes = seen.fall_of_modes()
    if said.label in ("lost_at_steps", "mode_collapse"):
        of_window, of_modes = False, said.label == "mode_collapse"
    elif cause is not None:
        of_window, of_modes = ruling.fell and ruling.cause == cause, ruling.modes_cause == cause
    else:
        of_window, of_modes = ruling.fell, ruling.modes_collapsed
    if of_window:
        return seen.fall_of_window(), None
    if of_modes and modes is not None:
        return modes, None
    if cause is None and said.label != "lost_at_steps":
        return None
    worst = min(said.steps_of_label(), key=lambda step: step.change)
    return seen.fall_of_step([one.step for one in said.steps].index(worst.step)), worst.step


def _lenient_reading(said: Verdict, seen: SeenCounts, counts: SeriesCounts) -> LenientReading | None:
    """What the lenient reader sees; None where there is none, or where the style of the answers did not change."""
    leniently = seen.read_leniently()
    if leniently is None:
        return None
    rise = style_rise(seen.total, leniently.total)
    if rise is None:
        return None
    # random numbers of its own: a second reading must not move the first
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
        label=_lenient_label(rule(leniently, rng=rng), counts, leniently, said),
        explains=said.label == "format" and is_misread(seen.fall_of_window(), rng),
    )


def _lenient_label(ruling: Ruling, counts: SeriesCounts, seen: SeenCounts, said: Verdict) -> VerdictLabel:
    compared = [one for one in counts.trained if one.why is None and one.step >= said.window[0]]
    label = _label(ruling, counts, seen, compared)
    return "no_verdict" if label == "selected" else label


def _mean_pass_at_k(counts: PairedCounts, k: int) -> tuple[float, float]:
    """The mean of pass@k over problems, at the base and late."""
    base_P = pass_at_k_table(counts.n_base, [k])[counts.base_P, 0]
    late_P = pass_at_k_table(counts.n_late, [k])[counts.late_P, 0]
    return float(base_P.mean()), float(late_P.mean())


def _format_parts(fall: Fall, k: int, rng: np.random.Generator) -> tuple[float | None, float | None]:
    """The part of the fall of pass@k that unread samples explain: if they are like the read ones, if all were correct.

    None where they did not become more.
    """
    if fall.unread is None or fall.unread.rise(fall.counts) <= 0:
        return None, None
    return (
        share_explained(fall.counts, read_alone(fall.counts, fall.unread, rng=rng), k=k),
        share_explained(fall.counts, taken_for_correct(fall.counts, fall.unread), k=k),
    )


def _accuracies(counts: SeriesCounts, compared: Sequence[CheckpointCounts]) -> tuple[Accuracy, ...]:
    """Accuracy of base and compared checkpoints; empty unless each problem has one response."""
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
    said: Verdict, seen: SeenCounts, compared: Sequence[CheckpointCounts], base_step: int, rng: np.random.Generator
) -> Verdict:
    """When the fall was certain, and when it began, at the k where it is largest."""
    ks = seen.step_ks
    change_TPK = np.stack([by_cluster(one.changes(ks), seen.cluster_P) for one in seen.steps])
    steps_T = [one.step for one in compared]
    band_rng, onset_rng = rng.spawn(2)
    alarm = simultaneous_band(change_TPK, rng=band_rng).alarm
    fall = largest_fall(tuple(change for change in said.changes if change.k in set(ks)))
    began = None
    if fall is not None:
        began = onset(change_TPK[:, :, ks.index(fall.k)], steps_T, base_step, rng=onset_rng)
    return replace(
        said,
        detected_by=None if alarm is None else steps_T[alarm],
        decline_began=None if began is None else Estimate(value=began.step, low=began.low, high=began.high),
    )


def _remedy(said: Verdict, counts: SeriesCounts, rng: np.random.Generator) -> Remedy | None:
    compared = [one for one in counts.trained if one.why is None]
    return settle(
        counts.base.correct_P,
        counts.base.n,
        n=min(one.n for one in compared if one.step in said.window),
        drop=SETTLED_DROP,
        tokens_per_sample=counts.tokens_per_sample,
        n_checkpoints=len(compared),
        rng=rng,
        k=said.k_most,
    )


def _with_sentence(verdict: Verdict) -> Verdict:
    return replace(verdict, sentence=sentence_of(verdict))
