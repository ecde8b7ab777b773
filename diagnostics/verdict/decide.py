"""From counts to the verdict on a series. Nothing is read here and nothing written.

Every random draw starts from one constant, so that equal counts give an equal verdict to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
from jaxtyping import Bool, Float, Int

from diagnostics.statistics.band import simultaneous_band
from diagnostics.statistics.crossing import crossing
from diagnostics.statistics.intervals import share_interval
from diagnostics.statistics.keys import PairedCounts, inference_ks, mean_changes
from diagnostics.statistics.onset import onset
from diagnostics.statistics.pass_at_k import pass_at_k_table
from diagnostics.statistics.power import window_size
from diagnostics.statistics.rule import Label, rule
from diagnostics.verdict.audit_sizes import settle
from diagnostics.verdict.record import (
    NOTABLE_RISE,
    ChangeAtK,
    Estimate,
    Rates,
    Remedy,
    Verdict,
    largest_fall,
    sentence_of,
)

#: Where all randomness of a verdict starts.
SEED = 20_260_229
#: Below these a verdict warns: problems, and samples per problem and checkpoint.
FEW_PROBLEMS, FEW_SAMPLES = 30, 256
#: What labels are worth with few problems, where nobody has measured how often the rule is wrong: nothing is said of
#: other problems.
_OF_FEW: Mapping[Label, Label] = {"over_sharpened": "over_sharpened_here", "no_loss": "inconclusive"}
#: Of wrong responses, the share that a grader may accept where nobody knows better: short answers can be guessed.
ASSUMED_GUESS_RATE = 0.005
#: The drop, in probability, that an inconclusive verdict says how to settle.
SETTLED_DROP = 0.05
#: What looks like a lost mode and is none: a rate of ``CheckpointCounts``, and how a caveat says it.
_MISTAKEN = (
    (attrgetter("rates.truncated"), "were cut off", "a cut-off one"),
    (attrgetter("rates.not_parsed"), "could not be parsed", "one that the grader cannot read"),
    (attrgetter("rates.timed_out"), "ran out of the grader's time", "one that the grader had no time for"),
)


@dataclass(frozen=True, kw_only=True)
class CheckpointCounts:
    """What one checkpoint's samples are worth: counts per problem among the first ``n`` samples of each.

    ``n`` is the least that was planned for any problem. ``minority_P`` counts correct samples outside the problem's
    dominant mode; of the base those of its second half alone. ``why`` says why the checkpoint cannot be compared.
    ``rates`` is None without a sample. ``unread_P`` are those of the ``n`` samples that were cut off, not parsed or out
    of the grader's time, and not correct; None where nobody knows.
    """

    step: int
    checkpoint: str
    n: int
    n_most: int
    correct_P: Int[np.ndarray, " problem"]
    minority_P: Int[np.ndarray, " problem"]
    rates: Rates | None
    unread_P: Int[np.ndarray, " problem"] | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class GuessRate:
    """How often a grader accepts a wrong response: the share of them, and who says so.

    ``source``: "assumed" unless the user gave it, a grader knows it, or it was measured.
    """

    share: float = ASSUMED_GUESS_RATE
    source: str = "assumed"


@dataclass(frozen=True, kw_only=True)
class Looks:
    """How often verdicts are read before training ends, and of how many runs one is chosen: each look spends level.

    ``number`` counts this look from 1. ``declared`` is how many there will be in all; None where nobody knows, as in a
    live audit: any number then.
    """

    number: int = 1
    declared: int | None = 1
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class SeriesCounts:
    """What a verdict is made of. ``trained`` are the checkpoints after the base in step order.

    ``shows_modes_P``: whether a correct sample in the first half of the base's has a mode, so that one dominates.
    ``skipped`` maps checkpoints that never were read to the reason. ``cluster_P`` numbers the cluster of every problem;
    None where each stands for itself. ``n_near_duplicates`` are problems whose prompt nearly repeats another's although
    no cluster was named. ``guess_rate`` is the largest share of wrong responses that the graders may accept.
    """

    series: str
    base: CheckpointCounts
    trained: tuple[CheckpointCounts, ...]
    shows_modes_P: Bool[np.ndarray, " problem"]
    tasks: tuple[str, ...]
    graders: tuple[str, ...]
    tokens_per_sample: float | None
    skipped: Mapping[str, str] = field(default_factory=dict)
    cluster_P: Int[np.ndarray, " problem"] | None = None
    n_near_duplicates: int = 0
    guess_rate: GuessRate = field(default_factory=GuessRate)
    looks: Looks = field(default_factory=Looks)


def verdict_of(counts: SeriesCounts) -> Verdict:
    """The verdict from what was read.

    The window is the last third of the checkpoints that can be compared, at least one, with their samples summed.
    k goes up to half of the samples of one checkpoint: the power of the pooled ones, the reach of the single ones.
    """
    base = counts.base
    compared = tuple(one for one in counts.trained if one.why is None)
    said = Verdict(
        series=counts.series,
        label="no_verdict",
        sentence="",
        n_problems=len(base.correct_P),
        n_base=base.n,
        rates=tuple(one.rates for one in (base, *counts.trained) if one.rates is not None),
        graders=counts.graders,
    )
    why = _why_none(counts, compared)
    if why is not None:
        return _with_sentence(replace(said, why=why))
    window = compared[-window_size(len(compared)) :]
    n_late = sum(one.n for one in window)
    n_least = min(one.n for one in window)
    total = PairedCounts(
        base_P=base.correct_P, late_P=_summed(one.correct_P for one in window), n_base=base.n, n_late=n_late
    )
    ks = inference_ks(min(base.n, n_least))
    minority = _minority(counts, window)
    rule_rng, star_rng, decline_rng, remedy_rng = np.random.default_rng(SEED).spawn(4)
    minority_ks = () if minority is None else inference_ks(min(base.n // 2, n_least))
    pairs = [PairedCounts(base_P=base.correct_P, late_P=one.correct_P, n_base=base.n, n_late=one.n) for one in window]
    ruling = rule(total, window=pairs, ks=ks, minority=minority, minority_ks=minority_ks, rng=rule_rng)
    label = ruling.label if len(base.correct_P) >= FEW_PROBLEMS else _OF_FEW.get(ruling.label, ruling.label)
    change_PK = mean_changes(pairs, ks)
    star = crossing(change_PK, ks, rng=star_rng)
    said = replace(
        said,
        label=label,
        p_exact=ruling.p_exact,
        p_population=ruling.p_population,
        p_minority=ruling.p_minority,
        modes_collapsed=ruling.modes_collapsed,
        n_minority_problems=0 if minority is None else minority.n_problems,
        n_late=n_late,
        window=tuple(one.step for one in window),
        k_most=ks[-1],
        changes=_changes(base, change_PK, ks),
        least_change=ruling.least_change,
        k_star=Estimate(value=star.value, low=star.low, high=star.high),
    )
    if label in ("over_sharpened", "over_sharpened_here"):
        said = _with_decline(said, base, compared, decline_rng)
    if label == "inconclusive":
        said = replace(said, remedy=_remedy(said, counts, remedy_rng))
    return _with_sentence(replace(said, caveats=tuple(_caveats(said, counts, window))))


def _why_none(counts: SeriesCounts, compared: Sequence[CheckpointCounts]) -> str | None:
    if not len(counts.base.correct_P):
        return "the audit has no problems"
    if counts.base.why is not None:
        return f"the base {counts.base.checkpoint} cannot be compared with ({counts.base.why})"
    if compared:
        return None
    left_out = [*_left_out(counts)]
    if not left_out:
        return "the series has no checkpoint after the base"
    return f"no checkpoint after the base can be compared: {'; '.join(left_out)}"


def _minority(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> PairedCounts | None:
    """Correct samples outside the dominant mode: in the second half of the base's samples, and in the window.

    None where there are none at all, as with graders for which all correct answers are one mode: nothing is tested.
    """
    shown_P = counts.shows_modes_P
    base_P, late_P = counts.base.minority_P[shown_P], _summed(one.minority_P for one in window)[shown_P]
    if not (base_P.any() or late_P.any()):
        return None
    n_base = counts.base.n - counts.base.n // 2
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=n_base, n_late=sum(one.n for one in window))


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
    said: Verdict, base: CheckpointCounts, compared: Sequence[CheckpointCounts], rng: np.random.Generator
) -> Verdict:
    """When the fall was certain, and when it began, at the k where it is largest."""
    ks = inference_ks(min(base.n, *(one.n for one in compared)))
    change_TPK = np.stack(
        [
            PairedCounts(base_P=base.correct_P, late_P=one.correct_P, n_base=base.n, n_late=one.n).changes(ks)
            for one in compared
        ]
    )
    steps_T = [one.step for one in compared]
    band_rng, onset_rng = rng.spawn(2)
    alarm = simultaneous_band(change_TPK, rng=band_rng).alarm
    fall = largest_fall(tuple(change for change in said.changes if change.k in ks))
    began = None
    if fall is not None:
        began = onset(change_TPK[:, :, ks.index(fall.k)], steps_T, base.step, rng=onset_rng)
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


def _caveats(said: Verdict, counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> Iterator[str]:
    """What may mislead in this very series, from its data."""
    if said.positive or largest_fall(said.changes) is not None:
        yield from _rates_that_rose(counts.base, window)
    n_least = min(one.n for one in window)
    if said.n_problems < FEW_PROBLEMS:
        yield f"Fewer than {FEW_PROBLEMS} problems ({said.n_problems}): only large falls can be seen."
    if min(n_least, said.n_base) < FEW_SAMPLES:
        yield (
            f"Only {min(n_least, said.n_base)} samples per problem and checkpoint: "
            f"nothing is seen beyond k = {said.k_most}."
        )
    if said.p_minority is None:
        yield "No problem shows a second correct mode: mode collapse could not be seen."
    if any(one.n < one.n_most for one in window):
        yield (
            "An adaptive audit: every problem counts with as many samples as the least sampled has, "
            f"{n_least} per checkpoint."
        )
    yield from (f"Left out: {one}." for one in _left_out(counts))
    if len(counts.tasks) > 1:
        yield f"The problems of {len(counts.tasks)} tasks ({', '.join(counts.tasks)}) are judged together."


def _rates_that_rose(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Iterator[str]:
    n_late = sum(one.n for one in window)
    for rate_of, what, mistaken in _MISTAKEN:
        before = rate_of(base)
        if any(rate_of(one) is None for one in (base, *window)):
            yield (
                f"Whether samples {what} is not known of every checkpoint: a lost mode may be {mistaken}. Import dumps "
                "that tell how each sample ended."
            )
            continue
        late = sum(rate_of(one) * one.n for one in window) / n_late
        if late - before > NOTABLE_RISE:
            yield (
                f"{100 * late:.1f} % of late samples {what}, against {100 * before:.1f} % of the base's: "
                f"a lost mode may be {mistaken}."
            )


def _left_out(counts: SeriesCounts) -> Iterator[str]:
    known = {one.checkpoint: one.why for one in counts.trained if one.why is not None}
    for checkpoint, why in {**counts.skipped, **known}.items():
        yield f"{checkpoint} ({why})"


def _with_sentence(verdict: Verdict) -> Verdict:
    return replace(verdict, sentence=sentence_of(verdict))


def _summed(counts: Iterable[np.ndarray]) -> np.ndarray:
    return np.sum(list(counts), axis=0)
