"""Caveats: sentences on everything that may make the verdict on a series misleading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.statistics.units import too_few_to_generalise
from oversharp.diagnostics.verdict.counts import FEW_PROBLEMS as FEW_PROBLEMS
from oversharp.diagnostics.verdict.counts import NEEDS_SAMPLES, CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.headings import HEADINGS, TITLES
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Rates
from oversharp.diagnostics.verdict.rule import SELECTED_LEVEL, spent_share
from oversharp.diagnostics.verdict.words.numbers import points_text, signed_text
from oversharp.diagnostics.verdict.words.sentence import largest_fall, remaining_text, share_text

#: With fewer samples per problem and checkpoint, a caveat prints their number.
FEW_SAMPLES = 256
#: Smallest reported rise of a rate of truncated, unparsed, ambiguous or timed-out samples, a probability.
NOTABLE_RISE = 0.01
#: A larger fall of the rate of unparsed samples (probability) may hide a loss.
NOTABLE_MENDING = 0.05
#: Smallest reported selection bias, as a share of the measured fall.
_NOTABLE_PART = 0.1
#: Rates of ``CheckpointCounts`` whose rise looks like lost modes, and their wording in a caveat.
_MISTAKEN = (
    (attrgetter("rates.truncated"), "were truncated before an answer"),
    (attrgetter("rates.not_parsed"), "could not be parsed"),
    (attrgetter("rates.ambiguous"), "gave no single answer"),
    (attrgetter("rates.timed_out"), "timed out in grading"),
)
#: Above this share of ungraded or truncated samples at a checkpoint, pass@k mainly measures the answer format.
_MOST_UNREAD = 0.5


def caveats_of(verdict: Verdict, counts: SeriesCounts) -> Iterator[str]:
    """Yield the caveats of a series."""
    window = counts.window
    if verdict.label == "no_verdict":
        yield from warnings_of(verdict, counts)
        if not _is_selected(verdict):
            yield from filter(None, [counts.excluded])
            # if nothing is compared, the sentence already contains the reasons
            yield from _of_left_out(verdict) if counts.compared else ()
        return
    if counts.is_repaired:
        yield (
            "A repaired series: its steps are hundredths of the way from the base to a checkpoint. The label is about "
            "the last third of these points. The table of checkpoints shows how much each point restores; oversharp "
            "ship recommends one of them."
        )
    if verdict.positive or largest_fall(verdict.changes) is not None:
        yield from _rates_that_rose(counts.base, window)
    if not verdict.positive:
        yield from _of_improved_parsing(counts.base, window)
    n_least = min(one.n for one in window)
    if verdict.n_problems < FEW_PROBLEMS:
        yield f"Fewer than {FEW_PROBLEMS} problems ({verdict.n_problems}): only large falls can be detected."
    if min(n_least, verdict.n_base) < FEW_SAMPLES:
        yield (
            f"Only {plural(min(n_least, verdict.n_base), 'sample')} per problem and checkpoint: "
            f"k above {verdict.k_most} is not tested."
        )
    if verdict.n_within_reach < FEW_PROBLEMS <= verdict.n_problems:
        yield (
            f"The base solved only {verdict.n_within_reach} of {verdict.n_problems} problems. A conclusion about the "
            f"population of these problems needs {FEW_PROBLEMS}."
        )
    yield from _of_size(verdict)
    yield from _of_guessing(verdict)
    yield from warnings_of(verdict, counts)
    yield from _of_related_remedy(verdict, counts)
    if verdict.p_minority is None:
        yield "No problem has correct samples of a second mode, so mode collapse was not tested."
    if verdict.until_solved is not None and verdict.p_minority is not None:
        yield (
            f"Mode collapse was tested on the first {verdict.until_solved.first_round} samples of each problem: later "
            "samples depend on the number of correct ones."
        )
    if any(one.n < (one.n_most or one.n) for one in window):
        yield (
            "Problems have unequal numbers of samples. The verdict uses the first ones of each problem, as many as the "
            f"problem with the fewest has: {n_least} per checkpoint."
        )
    if counts.excluded is not None:
        yield counts.excluded
    yield from _of_left_out(verdict)
    if len(counts.tasks) > 1:
        yield f"One verdict covers the problems of {len(counts.tasks)} tasks ({', '.join(counts.tasks)})."


def _of_size(verdict: Verdict) -> Iterator[str]:
    fall = largest_fall(verdict.changes)
    if fall is None or verdict.size_given_label is None or verdict.size_given_label < (1 - _NOTABLE_PART) * fall.change:
        return
    yield (
        "A fall is reported only if it is significant, so reported falls are too large on average. Corrected for this, "
        f"the fall is about {points_text(-verdict.size_given_label)} points, not {points_text(-fall.change)}."
    )


def _of_guessing(verdict: Verdict) -> Iterator[str]:
    explanation = verdict.explanation
    if (
        explanation is None
        or not verdict.positive
        or explanation.guess_rate is None
        or explanation.guess_source != "assumed"
    ):
        return
    # the verdict rejected the allowed rate; the search uses other random draws and may end slightly below that rate
    if explanation.guess_rate <= explanation.guess_rate_allowed:
        return
    yield (
        f"If the grader accepted {share_text(explanation.guess_rate)} of the base's wrong answers and none later, "
        "the fall would not be significant. The verdict assumes at most "
        f"{share_text(explanation.guess_rate_allowed)}. If your grader accepts more, pass its rate with --guess-rate."
    )


def warnings_of(verdict: Verdict, counts: SeriesCounts) -> Iterator[str]:
    """Yield the caveats about the origin of problems and samples."""
    yield from counts.doubts
    if verdict.label == "no_verdict" and not _is_selected(verdict):
        yield from _of_unread(counts)
        yield from _of_misread_base(counts)
        yield from _of_equal_weights(counts)
        return
    yield from _of_selection(verdict)
    yield from _of_style(verdict)
    yield from _of_unread(counts)
    yield from _of_one_response(counts)
    yield from _of_equal_weights(counts)
    yield from _of_relations(counts)
    yield from _of_order(counts)
    yield from _of_looks(counts)
    if _is_selected(verdict):
        yield from filter(None, [counts.excluded])


def _of_selection(verdict: Verdict) -> Iterator[str]:
    """Yield a warning if a loss is significant although the base's samples chose the problems."""
    if verdict.positive and verdict.selection_p is not None and verdict.selection_p <= SELECTED_LEVEL:
        yield (
            "The base's samples chose these problems. The fall is significant in spite of that, but its size and "
            "intervals are too large. Sample the base again for the size."
        )


def _is_selected(verdict: Verdict) -> bool:
    """Return whether there is no verdict because the base's samples selected the problems."""
    return verdict.label == "no_verdict" and verdict.selection_p is not None


def _of_left_out(verdict: Verdict) -> Iterator[str]:
    yield from (f"Left out: {one.checkpoint} ({one.why})." for one in verdict.left_out)


#: Both readings are always printed if the share that only the lenient reader accepts changes by this (probability).
_LARGE_STYLE_RISE = 0.05


def _of_style(verdict: Verdict) -> Iterator[str]:
    """Yield the result of the lenient reader if it changes the heading, or if the answer style changed much."""
    lenient = verdict.lenient
    if lenient is None or lenient.explains or verdict.label == "mode_collapse":
        return
    is_same = HEADINGS[lenient.label] == verdict.heading
    if is_same and abs(lenient.rise) < _LARGE_STYLE_RISE:
        return
    yield (
        f"The share of answers that only a lenient reader accepts changed by {signed_text(lenient.rise)} points. "
        f"By its grades the changes are {remaining_text(verdict)} points, and the heading would be "
        f"{'the same' if is_same else TITLES[HEADINGS[lenient.label]]}. Read some late responses before you decide."
    )


def _of_misread_base(counts: SeriesCounts) -> Iterator[str]:
    """Yield a warning if the grader may not parse the answers of a base that solved little."""
    base = counts.base
    if base.lenient_P is None or not len(base.correct_P):
        return
    n_lenient, n_strict = int((base.lenient_P > 0).sum()), int((base.correct_P > 0).sum())
    if n_lenient - n_strict >= max(1, len(base.correct_P) // 10):
        yield (
            f"{base.checkpoint} solved {plural(n_lenient, 'problem')} by a lenient reader and {n_strict} by the "
            "grader. The grader may not parse the answer format of these responses. Read some of them."
        )


def _of_unread(counts: SeriesCounts) -> Iterator[str]:
    """Yield warnings about checkpoints whose samples are mostly unparsed, or mostly truncated."""
    rates = [one.rates for one in (counts.base, *counts.trained) if one.rates is not None]
    for rate_of, what, hint in _UNREAD:
        known = [(share, rate.checkpoint) for rate in rates if (share := rate_of(rate)) is not None]
        most = [(share, checkpoint) for share, checkpoint in known if share > _MOST_UNREAD]
        if not most:
            continue
        share, checkpoint = max(most, key=lambda pair: pair[0])
        others = f" (more than half at {len(most)} of {plural(len(known), 'checkpoint')})" if len(known) > 1 else ""
        yield f"{100 * share:.0f} % of the samples of {checkpoint} {what}{others}. {hint}"


def _not_read(rates: Rates) -> float:
    return rates.not_parsed + rates.timed_out + (rates.ambiguous or 0.0)


_UNREAD: tuple[tuple[Callable[[Rates], float | None], str, str], ...] = (
    (
        _not_read,
        "were unparsed, ambiguous, or timed out in grading",
        "They count as wrong, so pass@k mainly measures the answer format. Read some of these samples, and check the "
        "prompts (chat template), before you use the verdict.",
    ),
    (
        attrgetter("truncated"),
        "were truncated before an answer",
        "Their answers are unknown. Raise --max-tokens, or use a prompt after which the model ends its response.",
    ),
)


def _of_one_response(counts: SeriesCounts) -> Iterator[str]:
    if counts.base.n == 1 and not counts.is_greedy and all(one.n == 1 for one in counts.trained if one.why is None):
        yield f"One response per problem and checkpoint: {NEEDS_SAMPLES}."


def _of_equal_weights(counts: SeriesCounts) -> Iterator[str]:
    """Yield a caveat for checkpoints with equal weights.

    The id of the later checkpoint is the id of the earlier one, followed by a hyphen and the later step.
    """
    first: dict[str, str] = {}
    equal: dict[str, list[str]] = {}
    for one in (counts.base, *counts.trained):
        if one.weights is None or one.why is not None:
            continue
        weights = one.weights.removesuffix(f"-{one.step}")
        if weights in first:
            equal.setdefault(first[weights], []).append(one.checkpoint)
        first.setdefault(weights, one.checkpoint)
    for checkpoint, others in equal.items():
        listed = f"{', '.join(others[:3])}{f' and {len(others) - 3} more' if len(others) > 3 else ''}"
        yield (
            f"{listed} {'has' if len(others) == 1 else 'have'} the same weights as {checkpoint}: differences between "
            "them are sampling noise."
        )


def _of_relations(counts: SeriesCounts) -> Iterator[str]:
    if counts.cluster_P is not None:
        n_clusters = len(np.unique(counts.cluster_P))
        why = too_few_to_generalise(counts.cluster_P)
        few = f". They allow no conclusion about the population of these problems: {why}" if why else ""
        yield f"Related problems are counted as {plural(n_clusters, 'cluster')}{few}."
    elif counts.n_near_duplicates:
        n = counts.n_near_duplicates
        repeat = "1 problem has" if n == 1 else f"{n} problems have"
        hint = "If they are variants of one problem, pass the field that groups them with --cluster"
        hint += " (in an import: --map cluster=FIELD)."
        yield f"{repeat} nearly the same text as another problem. The tests assume independent problems. {hint}"


def _of_related_remedy(verdict: Verdict, counts: SeriesCounts) -> Iterator[str]:
    if counts.cluster_P is not None and verdict.label == "inconclusive":
        yield (
            "The size of an audit that would settle the question is not estimated. It depends on how strongly the "
            "changes of the problems of a cluster are correlated, which samples of the base do not show."
        )


def _of_order(counts: SeriesCounts) -> Iterator[str]:
    if counts.dependence is not None:
        yield (
            f"Samples of a problem are correlated: {counts.dependence}. Possible reasons: batches that share random "
            "numbers, or sorted rows. pass@k is unbiased only for independent samples, so there is no conclusion. "
            "Sample each response with a separate seed, or import the samples in the order of sampling."
        )


def _of_looks(counts: SeriesCounts) -> Iterator[str]:
    looks = counts.looks
    if looks.declared is not None and looks.number > looks.declared:
        yield (
            f"This is verdict {looks.number} on this series, and {plural(looks.declared, 'verdict')} "
            f"{'was' if looks.declared == 1 else 'were'} declared. Each further verdict raises the probability of a "
            "false alarm. Declare the number of verdicts with --looks before the first one."
        )
    elif (looks.number, looks.declared, looks.runs) != (1, 1, 1):
        spent = spent_share(number=looks.number, declared=looks.declared, runs=looks.runs)
        planned = "any number of verdicts" if looks.declared is None else plural(looks.declared, "verdict")
        planned += f" on each of {looks.runs} runs" if looks.runs > 1 else ""
        yield (
            f"The significance levels for a loss are multiplied by {spent:.2g}. Then {planned} together cause a false "
            "alarm no more often than a single verdict. No loss is not corrected for this."
        )


def _rates_that_rose(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Iterator[str]:
    if any(one.rates is None for one in (base, *window)):
        return
    n_late = sum(one.n for one in window)
    for rate_of, what in _MISTAKEN:
        before = rate_of(base)
        if any(rate_of(one) is None for one in (base, *window)):
            yield (
                f"At some checkpoints it is unknown how many samples {what}. Answers that seem lost may be in such "
                "samples. Import files with the finish reason of each sample."
            )
            continue
        late = sum(rate_of(one) * one.n for one in window) / n_late
        if late - before > NOTABLE_RISE:
            yield (
                f"{100 * late:.1f} % of the late samples {what}, compared with {100 * before:.1f} % of the base's. "
                "Answers that seem lost may be in these samples."
            )


def _of_improved_parsing(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Iterator[str]:
    """Yield a warning if the base has many more unparsed samples than the window, which may hide a loss."""
    if base.unread_P is None or any(one.unread_P is None for one in window):
        return
    before = float(base.unread_shares.mean())
    late = float(np.mean([one.unread_shares.mean() for one in window]))
    if before - late > NOTABLE_MENDING:
        yield (
            f"{100 * before:.0f} % of the base's samples were truncated, unparsed, or timed out in grading, and "
            f"{100 * late:.0f} % of the late ones. The base may have solved more than was counted, which would hide a "
            "loss. Grade again with a verifier that parses the base's answer format (oversharp regrade)."
        )
