"""Verdict on a series from its counts. Pure: no reading, no writing.

The counts are tested (``table``), the tests give a label (``rule``), and the label determines the estimates and
sentences. All random draws start from one constant, so equal counts give an identical verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from oversharp.diagnostics.records.amounts import p_value_text, plural
from oversharp.diagnostics.statistics.band import simultaneous_band
from oversharp.diagnostics.statistics.crossing import onset
from oversharp.diagnostics.statistics.forecast.beyond import MOST_TIMES_CAP, Beyond, change_beyond
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.statistics.units import Interval, by_cluster
from oversharp.diagnostics.verdict.audit_sizes import SampleLengths, settle
from oversharp.diagnostics.verdict.causes.explanations import (
    EXPLAINED_LEVEL,
    NOTABLE_UNREAD_SHARE,
    fall_p,
    is_misread,
    style_rise,
)
from oversharp.diagnostics.verdict.causes.guesses import guess_rate_that_explains
from oversharp.diagnostics.verdict.causes.unparsed import (
    ParsedEstimates,
    read_alone,
    share_explained,
    taken_for_correct,
)
from oversharp.diagnostics.verdict.claims import (
    DEPENDENT,
    claims_of,
    share_of_even_loss,
    size_given_label,
)
from oversharp.diagnostics.verdict.counts import NEEDS_SAMPLES, SeriesCounts
from oversharp.diagnostics.verdict.headings import Label
from oversharp.diagnostics.verdict.record import POSITIVE, Verdict
from oversharp.diagnostics.verdict.results import (
    ChangeAtK,
    Estimate,
    Explanation,
    LenientReading,
    OtherReading,
    ReadingName,
    Remedy,
    StepClaim,
    UntilSolved,
)
from oversharp.diagnostics.verdict.rule import SELECTED_LEVEL, LossTable, label_of, row_of_label
from oversharp.diagnostics.verdict.seen import SeenCounts, seen_counts
from oversharp.diagnostics.verdict.sharpening import sharpening_of
from oversharp.diagnostics.verdict.shipping.choice import recommend
from oversharp.diagnostics.verdict.shipping.options import JudgedSeries
from oversharp.diagnostics.verdict.shipping.words import NOT_READ
from oversharp.diagnostics.verdict.steps import Accuracy, accuracy_of
from oversharp.diagnostics.verdict.table import run_tests
from oversharp.diagnostics.verdict.words.caveats import caveats_of, warnings_of
from oversharp.diagnostics.verdict.words.sentence import sentence_of

#: Seed of all randomness of a verdict.
SEED = 20_260_229
#: An inconclusive verdict prints the size of an audit that detects this drop of pass@k (probability).
SETTLED_DROP = 0.05
#: How to get a verdict on problems that the base's samples selected.
FRESH_BASE = (
    "Sample the base again with another --seed and compare with the new samples. Or pass --selected-by none if other "
    "samples selected the problems (in an import: the name of the field that marks the samples that did)"
)


def verdict_of(counts: SeriesCounts) -> Verdict:
    """Return the verdict on a series.

    The window is the last third of the comparable checkpoints, at least one, with their samples summed. k goes up to
    half of the samples of one checkpoint: pooling increases the power, not the range of k.
    """
    record = _record(counts)
    return replace(
        record,
        sentence=sentence_of(record),
        caveats=tuple(caveats_of(record, counts)),
        warnings=tuple(warnings_of(record, counts)),
        shipping=recommend([judged_series(counts, record)]),
    )


def _record(counts: SeriesCounts) -> Verdict:
    """Return the verdict without its sentences: counts → tests → label → estimates that the label needs."""
    facts = _facts(counts)
    if counts.why_untested is not None:
        return Verdict(label="no_verdict", why=counts.why_untested, **facts)
    rule_rng, decline_rng, remedy_rng, claim_rng, sharpening_rng = np.random.default_rng(SEED).spawn(5)
    seen = seen_counts(counts)
    table = run_tests(seen, rng=rule_rng, claim_rng=claim_rng)
    label = label_of(table)
    if label == "selected":
        why = _why_selected(counts, table)
        return Verdict(label="no_verdict", why=why, selection_p=table.p_selection, **facts)
    changes, star = _changes(table), table.sizes.crossing
    detected_by, began = _decline(counts, seen, label, changes, decline_rng)
    explanation = _explanation(counts, seen, table, label, claim_rng)
    lenient, remaining = _lenient_reading(seen, label)
    if remaining is None and explanation is not None and (explanation.format_most or 0.0) >= NOTABLE_UNREAD_SHARE:
        remaining = _without_unparsed(seen)
    return Verdict(
        label=label,
        p_exact=table.window.p_exact,
        p_population=table.window.p_population,
        p_minority=None if table.modes is None else table.modes.p_exact,
        modes_collapsed=table.modes is not None and table.modes.fell,
        n_minority_problems=0 if seen.minority is None else seen.minority.n_problems,
        n_late=sum(one.n for one in counts.window),
        window=tuple(one.step for one in counts.window),
        k_most=table.ks[-1],
        changes=changes,
        least_change=table.sizes.least_change,
        size_given_label=_size_given_label(table, label),
        k_star=Estimate(value=star.value, low=star.low, high=star.high),
        claims=tuple(claims_of(table)),
        steps=step_claims(counts, table),
        explanation=explanation,
        lenient=lenient,
        remaining=remaining,
        # without a significant fall as graded, no reading can contradict it
        pass_at_1_fell_in_all=table.sizes.pass_at_1_fell_in_all or not table.sizes.pass_at_1_fell,
        sharpening=None if counts.dependence else sharpening_of(counts, counts.window, sharpening_rng),
        detected_by=detected_by,
        decline_began=began,
        remedy=_remedy(counts, label, remedy_rng),
        share_by_lost_problems=table.sizes.share_by_lost,
        selection_p=table.p_selection,
        until_solved=_until_solved(counts),
        beyond=_change_beyond(counts, seen),
        **facts,
    )


def _change_beyond(counts: SeriesCounts, seen: SeenCounts) -> Beyond:
    """Return the change of pass@k at twice the number of samples of every problem."""
    why = None
    if counts.dependence is not None:
        why = f"{DEPENDENT}: {counts.dependence}"
    elif counts.cluster_P is not None:
        why = "the problems are in clusters"
    return change_beyond(seen.window, MOST_TIMES_CAP * min(pair.n_most for pair in seen.window), why=why)


def _until_solved(counts: SeriesCounts) -> UntilSolved | None:
    """Return how a stopping rule determined the numbers of samples; None if all problems have as many."""
    rounds = counts.window[-1].rounds
    if rounds is None:
        return None
    return UntilSolved(
        enough=rounds.rule.enough,
        first_round=rounds.rule.rounds[0],
        mean_base=float(counts.base.hits[0].mean()),
        mean_late=float(np.mean([one.hits[0].mean() for one in counts.window])),
    )


def judged_series(counts: SeriesCounts, verdict: Verdict) -> JudgedSeries:
    """Return the input of ``recommend``: counts, lost checkpoints, and a reason if no checkpoint is eligible."""
    why = verdict.why if verdict.label == "no_verdict" else NOT_READ if verdict.label == "format" else None
    if counts.dependence is not None:
        why = f"{DEPENDENT}: {counts.dependence}"
    elif verdict.accuracies and why is None:
        why = f"one response per problem and checkpoint: {NEEDS_SAMPLES}"
    # only a loss in the population rules out a checkpoint; ``recommend`` weighs losses on these problems by their size
    lost = [claim for claim in verdict.steps if claim.lost and claim.is_of_population]
    causes = {claim.step: claim.cause for claim in lost if claim.cause is not None}
    return JudgedSeries(counts=counts, lost=frozenset(claim.step for claim in lost), causes=causes, why=why)


def _facts(counts: SeriesCounts) -> dict[str, Any]:
    """Return the fields of a verdict that need no test."""
    base = counts.base
    return {
        "series": counts.series,
        "sentence": "",
        "n_problems": len(base.correct_P),
        "n_within_reach": counts.n_within_reach,
        "n_base": base.n,
        "rates": tuple(one.rates for one in (base, *counts.trained) if one.rates is not None),
        "graders": counts.graders,
        "left_out": counts.left_out,
        "repaired": counts.is_repaired,
        "accuracies": _accuracies(counts),
    }


def _accuracies(counts: SeriesCounts) -> tuple[Accuracy, ...]:
    """Return the accuracy of base and compared checkpoints; empty unless each problem has one response."""
    base, compared = counts.base, counts.compared
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


def _why_selected(counts: SeriesCounts, table: LossTable) -> str:
    """Return why there is no verdict on problems that the base's samples selected, and how to get one."""
    n_problems = plural(len(counts.base.correct_P), "problem")
    p = table.p_selection or 0.0
    if counts.selected_by == "base":
        why = (
            f"the {n_problems} were selected by these base samples (--selected-by base), so an unchanged model would "
            "show a fall too"
        )
    elif p <= SELECTED_LEVEL:
        why = (
            f"the {n_problems} were probably selected by these base samples (p = {p_value_text(p)} if they were not), "
            "so an unchanged model would show a fall too"
        )
    else:
        why = (
            f"these base samples solved all {n_problems}. If the problems were selected for that, an unchanged model "
            "would show such a fall too"
        )
    return f"{why}. {FRESH_BASE}"


def _changes(table: LossTable) -> tuple[ChangeAtK, ...]:
    return _changes_at(table.ks, table.sizes.base, table.sizes.intervals)


def _changes_at(ks: Sequence[int], base_K: Sequence[float], intervals: Sequence[Interval]) -> tuple[ChangeAtK, ...]:
    return tuple(
        ChangeAtK(
            k=k, base=before, late=before + interval.mean, change=interval.mean, low=interval.low, high=interval.high
        )
        for k, before, interval in zip(ks, base_K, intervals, strict=True)
    )


def step_claims(counts: SeriesCounts, table: LossTable) -> tuple[StepClaim, ...]:
    """Return the results of single checkpoints; empty if they were not tested.

    No checkpoint is lost or kept if there are too few problems, or if samples are correlated.
    """
    is_tested = table.limits.few is None and table.limits.dependence is None
    columns = ("k", "change", "low", "high", "cause")
    return tuple(
        StepClaim(
            step=one.step,
            checkpoint=one.checkpoint,
            lost=row.fell and is_tested,
            kept=row.kept and is_tested,
            is_of_population=row.fell and row.is_of_population,
            p=row.p_exact or 0.0,
            p_population=row.p_population,
            **{column: getattr(row, column) for column in columns},
        )
        for one, row in zip(counts.compared, table.checkpoints, strict=False)
    )


def _size_given_label(table: LossTable, label: Label) -> float | None:
    """Return the size of a reported fall, corrected for selection; None without one."""
    window = table.window
    if table.limits.few is not None or label not in POSITIVE or not window.fell or window.change >= 0:
        return None
    return size_given_label(window.change, table.sizes.error)


def _explanation(
    counts: SeriesCounts, seen: SeenCounts, table: LossTable, label: Label, rng: np.random.Generator
) -> Explanation | None:
    """Return other explanations of the fall that the label is about; None without a fall."""
    row = row_of_label(table, label)
    if row is None or table.limits.dependence is not None:
        return None
    fall, unread, unread_most = seen.fall_of(row), None, None
    if fall.unread is not None and fall.unread.rise(fall.counts) > 0:
        k = table.window.k if row is table.window else fall.worst_k
        unread = share_explained(fall.counts, read_alone(fall.counts, fall.unread, rng=rng), k=k)
        unread_most = share_explained(fall.counts, taken_for_correct(fall.counts, fall.unread), k=k)
    return Explanation(
        guess_rate=guess_rate_that_explains(fall.counts, ks=fall.ks, level=EXPLAINED_LEVEL, rng=rng),
        guess_rate_allowed=counts.guess_rate.share,
        guess_source=counts.guess_rate.source,
        format=unread,
        format_most=unread_most,
        even_loss=share_of_even_loss(seen.total, k=table.window.k, rng=rng) if label == "degraded" else None,
        step=None if row.place is None else counts.compared[row.place].step,
    )


def _lenient_reading(seen: SeenCounts, label: Label) -> tuple[LenientReading | None, OtherReading | None]:
    """Return the verdict and the changes from the lenient reader's grades.

    Both are None without a lenient reader, or if the style of the answers did not change.
    """
    leniently = seen.read_leniently()
    rise = None if leniently is None else style_rise(seen.total, leniently.total)
    if leniently is None or rise is None:
        return None, None
    # a separate generator: the lenient reading must not change the verdict
    rng = np.random.default_rng(SEED)
    table = run_tests(leniently, rng=rng)
    lenient_label = label_of(table)
    reading = LenientReading(
        rise=rise,
        label="no_verdict" if lenient_label == "selected" else lenient_label,
        explains=label == "format" and is_misread(seen.fall_of_window(), rng),
    )
    return reading, OtherReading(name="lenient reader", changes=_changes(table), p=table.window.p_exact or 0.0)


def _without_unparsed(seen: SeenCounts) -> OtherReading | None:
    """Return the changes of the window without the effect of unparsed samples; None if they are unknown.

    Of two readings (parsed samples alone, all late unparsed samples in excess taken for correct) it is the one with the
    smaller p value.
    """
    unread, rng = seen.unread_of_window, np.random.default_rng(SEED)
    if unread is None:
        return None
    readings: list[OtherReading] = []
    alone = read_alone(seen.total, unread, rng=rng)
    named: tuple[tuple[ReadingName, PairedCounts | ParsedEstimates], ...] = (
        ("parsed samples", alone),
        ("unparsed taken for correct", taken_for_correct(seen.total, unread)),
    )
    for name, counts in named:
        ks = [k for k in seen.ks if 2 * k <= counts.n_most]
        if counts.n_problems > 1 and ks:
            base_K = counts.base_pass_at_k(ks).mean(axis=0).tolist()
            intervals = [share_interval(change_P, bounds=(-1.0, 1.0)) for change_P in counts.changes(ks).T]
            p = fall_p(counts, ks=ks, level=seen.fall_of_window().level, rng=rng)
            readings.append(OtherReading(name=name, changes=_changes_at(ks, base_K, intervals), p=p))
    return min(readings, key=lambda reading: reading.p, default=None)


def _decline(
    counts: SeriesCounts, seen: SeenCounts, label: Label, changes: Sequence[ChangeAtK], rng: np.random.Generator
) -> tuple[int | None, Estimate | None]:
    """Return the first step with a significant fall of pass@k, and when it began at the k with the largest fall.

    Both are None if the label is no fall of pass@k of the window, and for a repaired series, which has no order in
    time.
    """
    if label not in ("over_sharpened", "over_sharpened_here", "degraded") or counts.is_repaired:
        return None, None
    ks = seen.step_ks
    change_TPK = np.stack([by_cluster(one.changes(ks), seen.cluster_P) for one in seen.steps])
    steps_T = [one.step for one in counts.compared]
    band_rng, onset_rng = rng.spawn(2)
    alarm = simultaneous_band(change_TPK, rng=band_rng).alarm
    worst = min((change for change in changes if change.k in ks), key=lambda change: change.change)
    began = None
    if worst.change < 0:
        began = onset(change_TPK[:, :, ks.index(worst.k)], steps_T, counts.base.step, rng=onset_rng)
    return (
        None if alarm is None else steps_T[alarm],
        None if began is None else Estimate(value=began.step, low=began.low, high=began.high),
    )


def _remedy(counts: SeriesCounts, label: Label, rng: np.random.Generator) -> Remedy | None:
    """Return the audit that would settle an inconclusive verdict; None with clusters.

    With clusters its size depends on the correlation within them, which the base's samples do not show.
    """
    if label != "inconclusive" or counts.cluster_P is not None or counts.dependence is not None:
        return None
    n, mean = min(one.n for one in counts.window), counts.tokens_per_sample
    drawn_P, correct_P = counts.base.hits
    rule = None if counts.base.rounds is None else counts.base.rounds.rule
    return settle(
        correct_P,
        counts.base.n,
        drawn_P=drawn_P,
        n=n,
        drop=SETTLED_DROP,
        lengths=None if mean is None else SampleLengths(mean=mean, mean_P=counts.tokens_P),
        n_checkpoints=len(counts.compared),
        rng=rng,
        k=inference_ks(min(counts.base.n, n))[-1],
        first=None if rule is None else rule.rounds[0],
        enough=None if rule is None else rule.enough,
    )
