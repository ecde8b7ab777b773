"""Caveats: what may mislead in a series, as sentences next to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.statistics.units import too_few_to_generalise
from oversharp.diagnostics.verdict.counts import FEW_PROBLEMS as FEW_PROBLEMS
from oversharp.diagnostics.verdict.counts import NEEDS_SAMPLES, CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.headings import HEADINGS, TITLES, VerdictLabel
from oversharp.diagnostics.verdict.record import LenientReading, Rates, Verdict
from oversharp.diagnostics.verdict.rule import spent_share
from oversharp.diagnostics.verdict.words.numbers import points_text
from oversharp.diagnostics.verdict.words.sentence import largest_fall, share_text

#: A verdict warns below this number of samples per problem and checkpoint.
FEW_SAMPLES = 256
#: A rise of a rate of unparsed samples (probability) that is reported.
NOTABLE_RISE = 0.01
#: A fall of this rate that may hide a loss that matters.
NOTABLE_MENDING = 0.05
#: Smallest part of the size of a fall that is reported as selection bias.
_NOTABLE_PART = 0.1
#: Rates of ``CheckpointCounts`` that look like lost modes and are not, and their wording in a caveat.
_MISTAKEN = (
    (attrgetter("rates.truncated"), "were cut off before they had answered", "a cut-off one"),
    (attrgetter("rates.not_parsed"), "could not be parsed", "one that the grader cannot read"),
    (attrgetter("rates.ambiguous"), "named no single answer", "one that hedges"),
    (attrgetter("rates.timed_out"), "ran out of the grader's time", "one that the grader had no time for"),
)
#: Above this share of a checkpoint's samples, the verdict is more about format than about ability.
_MOST_UNREAD = 0.5


def caveats_of(verdict: Verdict, counts: SeriesCounts) -> Iterator[str]:
    """Yield what may mislead in this series, from its data."""
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
            "A repaired series: steps are hundredths of the way from the base to a checkpoint, and the label is about "
            "the far end alone. What each point returns is told by checkpoint, and oversharp ship chooses among them."
        )
    if verdict.positive or largest_fall(verdict.changes) is not None:
        yield from _rates_that_rose(counts.base, window)
    if not verdict.positive:
        yield from _of_improved_parsing(counts.base, window)
    n_least = min(one.n for one in window)
    if verdict.n_problems < FEW_PROBLEMS:
        yield f"Fewer than {FEW_PROBLEMS} problems ({verdict.n_problems}): only large falls can be seen."
    if min(n_least, verdict.n_base) < FEW_SAMPLES:
        yield (
            f"Only {plural(min(n_least, verdict.n_base), 'sample')} per problem and checkpoint: "
            f"nothing is seen beyond k = {verdict.k_most}."
        )
    if verdict.n_within_reach < FEW_PROBLEMS <= verdict.n_problems:
        yield (
            f"Only {verdict.n_within_reach} of {verdict.n_problems} problems were solved by the base: below "
            f"{FEW_PROBLEMS} nothing is said of problems like these."
        )
    yield from _of_size(verdict)
    yield from _of_guessing(verdict)
    yield from warnings_of(verdict, counts)
    yield from _of_related_remedy(verdict, counts)
    if verdict.p_minority is None:
        yield "No problem shows a second correct mode: mode collapse could not be seen."
    if any(one.n < one.n_most for one in window):
        yield (
            "Problems have unequal numbers of samples: the verdict counts the first ones of each, as many as the least "
            f"sampled has, {n_least} per checkpoint."
        )
    if counts.excluded is not None:
        yield counts.excluded
    yield from _of_left_out(verdict)
    if len(counts.tasks) > 1:
        yield f"The problems of {len(counts.tasks)} tasks ({', '.join(counts.tasks)}) are judged together."


def _of_size(verdict: Verdict) -> Iterator[str]:
    fall = largest_fall(verdict.changes)
    if fall is None or verdict.size_given_label is None or verdict.size_given_label < (1 - _NOTABLE_PART) * fall.change:
        return
    yield (
        f"Only clear falls are called a loss, and those look larger than they are: about "
        f"{points_text(-verdict.size_given_label)} points are the best guess, not {points_text(-fall.change)}."
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
    # a rate that the verdict allows for was rejected; the search has other draws and may end slightly below it
    if explanation.guess_rate <= explanation.guess_rate_allowed:
        return
    yield (
        f"A grader that accepted {share_text(explanation.guess_rate)} of the base's wrong answers and none later would "
        f"leave the same behind; up to {share_text(explanation.guess_rate_allowed)} was reckoned with. Where yours "
        "accepts more, give its share with --guess-rate."
    )


def warnings_of(verdict: Verdict, counts: SeriesCounts) -> Iterator[str]:
    """Yield the caveats about the origin of problems and samples, which weaken the verdict."""
    yield from counts.grading
    if verdict.label == "no_verdict" and not _is_selected(verdict):
        yield from _of_unread(counts)
        yield from _of_misread_base(counts)
        yield from _of_equal_weights(counts)
        return
    yield from _of_style(verdict.lenient, verdict.label)
    yield from _of_unread(counts)
    yield from _of_one_response(counts)
    yield from _of_equal_weights(counts)
    yield from _of_relations(counts)
    yield from _of_order(counts)
    yield from _of_looks(counts)
    if _is_selected(verdict):
        yield from filter(None, [counts.excluded])


def _is_selected(verdict: Verdict) -> bool:
    """Return whether there is no verdict because the base's samples chose the problems."""
    return verdict.label == "no_verdict" and verdict.selection_p is not None


def _of_left_out(verdict: Verdict) -> Iterator[str]:
    yield from (f"Left out: {one.checkpoint} ({one.why})." for one in verdict.left_out)


#: A change of the share of samples that the lenient reader alone accepts beyond which both readings are always printed.
_LARGE_STYLE_RISE = 0.05


def _of_style(lenient: LenientReading | None, label: VerdictLabel) -> Iterator[str]:
    """Yield both readings if the lenient one would change the label, or the size by much."""
    if lenient is None or lenient.explains or label == "mode_collapse":
        return
    if lenient.label == label and abs(lenient.rise) < _LARGE_STYLE_RISE:
        return
    other = "the same" if lenient.label == label else f'"{TITLES[HEADINGS[lenient.label]]}"'
    yield (
        f"Answers that only a lenient reader accepts moved by {points_text(lenient.rise)} points. "
        f"pass@{lenient.k} is {lenient.strict_base:.3f} at the base and {lenient.strict_late:.3f} late as graded, "
        f"{lenient.base:.3f} and {lenient.late:.3f} by a lenient reader of the same samples, whose verdict would be "
        f"{other}. Read some late responses before you decide."
    )


def _of_misread_base(counts: SeriesCounts) -> Iterator[str]:
    """Yield a warning if the grader may not parse the answers of a base that solved little."""
    base = counts.base
    if base.lenient_P is None or not len(base.correct_P):
        return
    n_lenient, n_strict = int((base.lenient_P > 0).sum()), int((base.correct_P > 0).sum())
    if n_lenient - n_strict >= max(1, len(base.correct_P) // 10):
        yield (
            f"A lenient reader finds {plural(n_lenient, 'problem')} solved by {base.checkpoint}, the grader "
            f"{n_strict}: it may not read how these responses state their answers. Read some of them."
        )


def _of_unread(counts: SeriesCounts) -> Iterator[str]:
    """Yield checkpoints with mostly unparsed samples, and ones with mostly truncated samples."""
    rates = [one.rates for one in (counts.base, *counts.trained) if one.rates is not None]
    for rate_of, what, hint in _UNREAD:
        known = [(share, rate.checkpoint) for rate in rates if (share := rate_of(rate)) is not None]
        most = [(share, checkpoint) for share, checkpoint in known if share > _MOST_UNREAD]
        if not most:
            continue
        share, checkpoint = max(most, key=lambda pair: pair[0])
        others = f" (more than half at {len(most)} of {plural(len(known), 'checkpoint')})" if len(known) > 1 else ""
        yield f"{100 * share:.0f} % of the samples of {checkpoint} {what}{others}: {hint}"


def _not_read(rates: Rates) -> float:
    return rates.not_parsed + rates.timed_out + (rates.ambiguous or 0.0)


_UNREAD: tuple[tuple[Callable[[Rates], float | None], str, str], ...] = (
    (
        _not_read,
        "state no answer that was read",
        "they count as wrong, so that pass@k is first about the form of the answer. See what they say, and how the "
        "prompts ask (chat template), before the verdict is believed.",
    ),
    (
        attrgetter("truncated"),
        "were cut off before they had answered",
        "what they would have said is not known. A larger limit on tokens, or a prompt after which the model ends, "
        "tells more.",
    ),
)


def _of_one_response(counts: SeriesCounts) -> Iterator[str]:
    if counts.base.n == 1 and not counts.is_greedy and all(one.n == 1 for one in counts.trained if one.why is None):
        yield f"One response per problem and checkpoint: {NEEDS_SAMPLES}."


def _of_equal_weights(counts: SeriesCounts) -> Iterator[str]:
    """Yield checkpoints that have the weights of an earlier one.

    Their id is that of the earlier one, with their step added.
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
        few = f": nothing is said of problems like these, for there are {why}" if why else ""
        yield f"Related problems are counted as {plural(n_clusters, 'cluster')}{few}."
    elif counts.n_near_duplicates:
        n = counts.n_near_duplicates
        repeat = "1 problem nearly repeats" if n == 1 else f"{n} problems nearly repeat"
        taken = "is taken for independent" if n == 1 else "are taken for independent"
        hint = "Name the field that groups them with --cluster (of an import: --map cluster=FIELD)."
        yield f"{repeat} the text of another and {taken}. {hint}"


def _of_related_remedy(verdict: Verdict, counts: SeriesCounts) -> Iterator[str]:
    if counts.cluster_P is not None and verdict.label == "inconclusive":
        yield (
            "How large an audit would settle it is not named: that hangs on how far the problems of a cluster rise "
            "and fall together, which no samples of the base tell."
        )


def _of_order(counts: SeriesCounts) -> Iterator[str]:
    if counts.dependence is not None:
        yield (
            f"Samples of a problem hang together: {counts.dependence}. Batches that share something do that, and rows "
            "that are sorted. pass@k is unbiased for independent draws alone, so that nothing is concluded. Draw them "
            "one by one with seeds of their own, or import them in the order in which they were drawn."
        )


def _of_looks(counts: SeriesCounts) -> Iterator[str]:
    looks = counts.looks
    if looks.declared is not None and looks.number > looks.declared:
        yield (
            f"This is verdict {looks.number} on a series that was to be read {_times(looks.declared)}: chances of a "
            "false alarm add up. Declare with --looks how often it is read, before the first time."
        )
    elif (looks.number, looks.declared, looks.runs) != (1, 1, 1):
        spent = spent_share(number=looks.number, declared=looks.declared, runs=looks.runs)
        read = "any number of times" if looks.declared is None else _times(looks.declared)
        what = f"each of {looks.runs} runs" if looks.runs > 1 else "it"
        yield (
            f"The levels of a loss are {spent:.2g} of those of a single look, so that reading {what} {read} cries wolf "
            "no more often in all; No loss is not corrected for that."
        )


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _rates_that_rose(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Iterator[str]:
    if any(one.rates is None for one in (base, *window)):
        return
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


def _of_improved_parsing(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Iterator[str]:
    """Yield a warning if the base has more unparsed samples than the window.

    Answers that are parsed only after training may hide a loss.
    """
    if base.unread_P is None or any(one.unread_P is None for one in window):
        return
    before = float(base.unread_P.mean() / base.n)
    late = float(np.mean([one.unread_P.mean() / one.n for one in window if one.unread_P is not None]))
    if before - late > NOTABLE_MENDING:
        yield (
            f"{100 * before:.0f} % of the base's samples could not be read, and {100 * late:.0f} % of the late ones: "
            "the base may have solved more than was counted, and a loss may hide behind answers that are now read. "
            "Grade again with a verifier that reads the base's form too (oversharp regrade) to see."
        )
