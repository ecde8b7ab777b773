"""Counts of every checkpoint, how they came to be, and what the rule looks at of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.statistics.selection import ProblemFilter, find_selection
from oversharp.diagnostics.verdict.explanations import Unread
from oversharp.diagnostics.verdict.record import Rates
from oversharp.diagnostics.verdict.rule import SeenCounts, spent_share

#: Of wrong responses, the share that a grader may accept where nobody knows better: short answers can be guessed.
ASSUMED_GUESS_RATE = 0.005


@dataclass(frozen=True, kw_only=True)
class CheckpointCounts:
    """What one checkpoint's samples are worth: counts per problem among the first ``n`` samples of each.

    ``n`` is the least that was planned for any problem. ``minority_P`` counts correct samples outside the problem's
    dominant mode; of the base those of its second half alone. ``why`` says why the checkpoint cannot be compared.
    ``rates`` is None without a sample. ``unread_P`` are those of the ``n`` samples that were cut off, not parsed or out
    of the grader's time, and not correct; None where nobody knows. ``lenient_P`` are those of the ``n`` samples that
    are correct or that the lenient reader accepts; None without a second reader. ``weights`` is the checkpoint's id in
    the store, the hash of its tensors; None where nobody gave it. ``first_correct_P`` and ``first_wrong_P`` are indices
    of the first correct and the first wrong sample, ``n`` without one; None where the order of samples is unknown.
    """

    step: int
    checkpoint: str
    n: int
    n_most: int
    correct_P: Int[np.ndarray, " problem"]
    minority_P: Int[np.ndarray, " problem"]
    rates: Rates | None
    unread_P: Int[np.ndarray, " problem"] | None = None
    lenient_P: Int[np.ndarray, " problem"] | None = None
    why: str | None = None
    weights: str | None = None
    first_correct_P: Int[np.ndarray, " problem"] | None = None
    first_wrong_P: Int[np.ndarray, " problem"] | None = None


@dataclass(frozen=True, kw_only=True)
class ControlCounts:
    """What a checkpoint said at another ``temperature`` than the audit's: correct ones of ``n`` samples per problem.

    The base colder, or a checkpoint hotter, with the step, label and ``weights`` that it has in the series.
    """

    step: int
    checkpoint: str
    temperature: float
    n: int
    correct_P: Int[np.ndarray, " problem"]
    weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class SharperDraws:
    """The base drawn at lower temperatures: ``temperature_S`` descends from the audit's own, ``n_S`` samples each.

    ``correct_SP`` are correct ones; those of the first row are the audit's own. ``greedy_P``: whether the base's greedy
    response is right; None where nobody knows.
    """

    temperature_S: tuple[float, ...]
    n_S: tuple[int, ...]
    correct_SP: Int[np.ndarray, "temperature problem"]
    greedy_P: Bool[np.ndarray, " problem"] | None


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
    ``sharper``: the base at lower temperatures, if it was drawn there. ``controls`` are all that was drawn at
    others, of checkpoints that can be compared. ``dependence`` says how samples of a problem hang together, in words;
    None where they may be independent draws. ``is_repaired``: the steps are no training, but hundredths of the way from
    the base to a checkpoint. ``is_greedy``: counts are of the one greedy response to each problem. ``grading``: faults
    of the grading as a whole, in sentences. ``why_ungraded``: why there is no verdict, where too many samples have no
    grade. ``selected_by``: "base" if the base's samples chose the problems, "none" if not; None if unknown.
    ``excluded``: which problems and records of an import are not compared, as a sentence; None where all are.
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
    sharper: SharperDraws | None = None
    controls: tuple[ControlCounts, ...] = ()
    dependence: str | None = None
    is_repaired: bool = False
    is_greedy: bool = False
    grading: tuple[str, ...] = ()
    why_ungraded: str | None = None
    selected_by: Literal["base", "none"] | None = None
    excluded: str | None = None


def seen_counts(
    counts: SeriesCounts, compared: Sequence[CheckpointCounts], window: Sequence[CheckpointCounts]
) -> SeenCounts:
    """What the rule looks at: the base against the checkpoints that can be compared, the last of them the window."""
    base = counts.base
    n_least = min(one.n for one in window)
    minority = _minority(counts, window)
    pairs = [PairedCounts(base_P=base.correct_P, late_P=one.correct_P, n_base=base.n, n_late=one.n) for one in compared]
    total = PairedCounts(
        base_P=base.correct_P,
        late_P=_summed(one.correct_P for one in window),
        n_base=base.n,
        n_late=sum(one.n for one in window),
    )
    return SeenCounts(
        total=total,
        window=pairs[-len(window) :],
        steps=pairs,
        step_ks=inference_ks(min(base.n, *(one.n for one in compared))),
        ks=inference_ks(min(base.n, n_least)),
        minority=minority,
        minority_ks=() if minority is None else inference_ks(min(base.n // 2, n_least)),
        minority_unread=_minority_unread(counts, window),
        unread=[_unread(base, [one]) for one in compared],
        **_lenient(base, compared, window),
        selection=_selection(counts, total),
        guess_share=counts.guess_rate.share,
        cluster_P=counts.cluster_P,
        spent=spent_share(number=counts.looks.number, declared=counts.looks.declared, runs=counts.looks.runs),
    )


def _selection(counts: SeriesCounts, total: PairedCounts) -> ProblemFilter | None:
    """Return the filter by which the base's samples may have chosen the problems, unless the user says otherwise."""
    if counts.selected_by == "none":
        return None
    found = find_selection(total, counts.base.first_correct_P, counts.base.first_wrong_P)
    if counts.selected_by != "base":
        return found
    weight_C = np.ones(total.n_base + 1) if found is None else found.weight_C
    return ProblemFilter(weight_C=weight_C, p=0.0)


def _lenient(
    base: CheckpointCounts, compared: Sequence[CheckpointCounts], window: Sequence[CheckpointCounts]
) -> dict[str, Any]:
    """The counts of the lenient reader, where every checkpoint has them."""
    if base.lenient_P is None or any(one.lenient_P is None for one in compared):
        return {}
    late = [one.lenient_P for one in window if one.lenient_P is not None]
    return {
        "lenient": PairedCounts(
            base_P=base.lenient_P, late_P=_summed(late), n_base=base.n, n_late=sum(one.n for one in window)
        ),
        "lenient_steps": [
            PairedCounts(base_P=base.lenient_P, late_P=one.lenient_P, n_base=base.n, n_late=one.n)
            for one in compared
            if one.lenient_P is not None
        ],
    }


def _unread(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Unread | None:
    late = [one.unread_P for one in window if one.unread_P is not None]
    if base.unread_P is None or len(late) < len(window):
        return None
    return Unread(base_P=base.unread_P, late_P=_summed(late))


def _minority_unread(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> Unread | None:
    """Beside the minority modes: of the base its second half alone counts, to which half of the unread ones belong.

    Samples that the lenient reader alone accepts have a mode that nobody read.
    """
    unread, shown_P = _unread(counts.base, window), counts.shows_modes_P
    if unread is None:
        return None
    misread = [one.lenient_P - one.correct_P for one in (counts.base, *window) if one.lenient_P is not None]
    if len(misread) == 1 + len(window):
        base_P = np.minimum(unread.base_P + misread[0], counts.base.n - counts.base.correct_P)
        most_P = _summed(one.n - one.correct_P for one in window)
        unread = Unread(base_P=base_P, late_P=np.minimum(unread.late_P + _summed(misread[1:]), most_P))
    return Unread(base_P=unread.base_P[shown_P] // 2, late_P=unread.late_P[shown_P])


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


def _summed(counts: Iterable[np.ndarray]) -> np.ndarray:
    return np.sum(list(counts), axis=0)
