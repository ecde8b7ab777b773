"""Counts of every checkpoint, how they were obtained, and the rule's input made from them."""

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

#: Share of wrong responses that a grader may accept if it is unknown: short answers can be correct by luck.
ASSUMED_GUESS_RATE = 0.005


@dataclass(frozen=True, kw_only=True)
class CheckpointCounts:
    """Counts per problem among the first ``n`` samples of each, for one checkpoint.

    Attributes:
        n: Smallest number of samples planned for any problem.
        minority_P: Correct samples outside the problem's dominant mode; for the base those of its second half only.
        rates: None without a sample.
        unread_P: Samples that were truncated, unparsed or timed out in grading, and are not correct; None if unknown.
        lenient_P: Samples that are correct or accepted by the lenient reader; None without one.
        why: Why the checkpoint cannot be compared.
        weights: Id of the checkpoint in the store, the hash of its tensors; None if not given.
        first_correct_P: Index of the first correct sample, ``n`` without one; None if the order of samples is unknown.
        first_wrong_P: The same for the first wrong sample.
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
    """Correct samples at another ``temperature`` than the audit's, out of ``n`` per problem.

    These are of the base at a lower temperature, or of a checkpoint at a higher one, with the step, label and
    ``weights`` that it has in the series.
    """

    step: int
    checkpoint: str
    temperature: float
    n: int
    correct_P: Int[np.ndarray, " problem"]
    weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class SharperDraws:
    """The base sampled at lower temperatures.

    ``temperature_S`` descends from the audit's own, with ``n_S`` samples per problem at each. ``correct_SP`` counts the
    correct ones; the first row is the audit's own. ``greedy_P``: whether the base's greedy response is correct; None if
    unknown.
    """

    temperature_S: tuple[float, ...]
    n_S: tuple[int, ...]
    correct_SP: Int[np.ndarray, "temperature problem"]
    greedy_P: Bool[np.ndarray, " problem"] | None


@dataclass(frozen=True, kw_only=True)
class GuessRate:
    """Share of wrong responses that a grader accepts, and the source of this number.

    ``source`` is "assumed" unless the user gave the share, the grader knows it, or it was measured.
    """

    share: float = ASSUMED_GUESS_RATE
    source: str = "assumed"


@dataclass(frozen=True, kw_only=True)
class Looks:
    """How often verdicts are read before training ends, and of how many runs one is chosen.

    Each look uses part of the level. ``number`` counts this look from 1. ``declared`` is the planned number in all;
    None if unknown, as in a live audit, which allows any number.
    """

    number: int = 1
    declared: int | None = 1
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class SeriesCounts:
    """Input of a verdict.

    Attributes:
        trained: Checkpoints after the base, in step order.
        shows_modes_P: Whether a correct sample in the first half of the base's samples has a mode, so that one
            dominates.
        skipped: Checkpoints that were not read, with the reason.
        cluster_P: Cluster number of every problem; None where each is independent.
        n_near_duplicates: Problems whose prompt nearly repeats another's, although no clusters were given.
        guess_rate: Largest share of wrong responses that the graders may accept.
        sharper: The base at lower temperatures, if it was sampled there.
        controls: All samples at other temperatures, of comparable checkpoints.
        dependence: How samples of a problem are correlated, in words; None where they may be independent draws.
        is_repaired: The steps are not training steps but hundredths of the way from the base to a checkpoint.
        is_greedy: The counts are of one greedy response per problem.
        grading: Faults of the grading as a whole, as sentences.
        why_ungraded: Why there is no verdict if too many samples have no grade.
        selected_by: "base" if the base's samples chose the problems, "none" if not; None if unknown.
        excluded: Problems and records of an import that are not compared, as a sentence; None where all are.
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
    """Return the rule's input: the base, and the comparable checkpoints with the window last."""
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
    """Return the counts of the lenient reader; empty unless every checkpoint has them."""
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
    """Return the unparsed samples that belong to the counts of minority modes.

    Of the base only the second half counts, and half of the unparsed samples with it. Samples that the lenient reader
    alone accepts have an unknown mode and count as unparsed.
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
    """Return correct samples outside the dominant mode: of half of the base's, and of the window.

    The base's first half shows which mode dominates, so only the second half counts.

    None if there are none, as with graders for which all correct answers are one mode: then there is no test.
    """
    shown_P = counts.shows_modes_P
    base_P, late_P = counts.base.minority_P[shown_P], _summed(one.minority_P for one in window)[shown_P]
    if not (base_P.any() or late_P.any()):
        return None
    n_base = counts.base.n - counts.base.n // 2
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=n_base, n_late=sum(one.n for one in window))


def _summed(counts: Iterable[np.ndarray]) -> np.ndarray:
    return np.sum(list(counts), axis=0)
