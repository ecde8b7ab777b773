"""Input of the verdict's tests: counts of the base, of the window and of every checkpoint, paired."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks, mean_changes
from oversharp.diagnostics.statistics.selection import ProblemFilter, find_selection
from oversharp.diagnostics.statistics.stopping import most_samples
from oversharp.diagnostics.statistics.units import by_cluster
from oversharp.diagnostics.verdict.causes.explanations import Fall
from oversharp.diagnostics.verdict.causes.unparsed import Unread
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MINORITY_LEVEL, STEP_LEVEL, Limits, LossRow, spent_share


@dataclass(frozen=True, kw_only=True)
class SeenCounts:
    """Input of the tests.

    Attributes:
        total: Correct samples of the base and of the window, pooled over its checkpoints. With a stopping rule, one row
            per checkpoint.
        window: Counts of each checkpoint of the window, for the size of the fall of pass@k.
        steps: Counts of all checkpoints, tested at ``step_ks``. The last ones are the window.
        minority: Pooled correct samples outside the dominant mode. Another half of the base's samples determines that
            mode.
        minority_unread: Unparsed samples that belong to ``minority``; None if unknown.
        unread: Truncated, unparsed and timed-out samples of each of ``steps``; empty, or None, if unknown.
        lenient: Counts of ``steps`` by the lenient reader; empty without one.
        selection: Filter that all problems pass by the base's samples; None if they pass none.
        guess_share: Share of wrong responses that the grader may accept.
        cluster_P: Cluster of each problem.
        spent: Share of the significance levels that this look uses; 1 for a single verdict on one run.
        limits: Limits of the conclusions, apart from the tests.
    """

    total: PairedCounts
    window: Sequence[PairedCounts]
    steps: Sequence[PairedCounts]
    ks: Sequence[int]
    step_ks: Sequence[int]
    minority: PairedCounts | None = None
    minority_ks: Sequence[int] = ()
    minority_unread: Unread | None = None
    unread: Sequence[Unread | None] = ()
    lenient: Sequence[PairedCounts] = ()
    selection: ProblemFilter | None = None
    guess_share: float = 0.0
    cluster_P: Int[np.ndarray, " problem"] | None = None
    spent: float = 1.0
    limits: Limits = field(default_factory=Limits)

    def mean_changes(self) -> Float[np.ndarray, "unit k"]:
        """Return the mean change of pass@k over the window, of each problem or cluster."""
        return by_cluster(mean_changes(self.window, self.ks), self.cluster_P)

    @property
    def unread_of_window(self) -> Unread | None:
        """Unparsed samples of the window together; None if unknown for one of its checkpoints."""
        known = [one for one in self.unread[-len(self.window) :] if one is not None]
        if not self.unread or len(known) < len(self.window):
            return None
        late_TP = np.stack([one.late_P for one in known])
        if not self.total.is_stopped:
            return Unread(base_P=known[0].base_P, late_P=late_TP.sum(axis=0))
        accepted = [one.accepted for one in known if one.accepted is not None]
        return Unread(base_P=known[0].base_P, late_P=late_TP, accepted=pool(accepted))

    def fall_of_window(self) -> Fall:
        """Return the input and the level of the tests of the window."""
        return Fall(
            counts=self.total,
            ks=self.ks,
            unread=self.unread_of_window,
            level=KEY_LEVEL * self.spent,
            lenient=pool(self.lenient[-len(self.window) :]) if self.lenient else None,
            selection=self.selection,
        )

    def fall_of_modes(self) -> Fall | None:
        """Return the input of the test of minority modes; None if no problem has correct samples of a second mode."""
        if self.minority is None or not self.minority.n_problems or not self.minority_ks:
            return None
        level = MINORITY_LEVEL * self.spent
        return Fall(counts=self.minority, ks=self.minority_ks, unread=self.minority_unread, level=level)

    def fall_of_step(self, t: int, of: int = 1) -> Fall:
        """Return the input for checkpoint ``t``. ``of`` checkpoints share the level of single checkpoints."""
        return Fall(
            counts=self.steps[t],
            ks=self.step_ks,
            unread=self.unread[t] if self.unread else None,
            level=STEP_LEVEL * self.spent / of,
            lenient=self.lenient[t] if self.lenient else None,
            selection=self.selection,
        )

    def fall_of(self, row: LossRow) -> Fall:
        """Return the input of the tests of a row."""
        modes = self.fall_of_modes() if row.which == "modes" else None
        return modes or (self.fall_of_window() if row.place is None else self.fall_of_step(row.place))

    def read_leniently(self) -> SeenCounts | None:
        """Return the counts of the same samples by the lenient reader, without their modes; None without it.

        The lenient reader has no unparsed samples.
        """
        if not self.lenient:
            return None
        window = self.lenient[-len(self.window) :]
        unknown: dict[str, Any] = {"minority": None, "minority_unread": None, "unread": (), "lenient": ()}
        return replace(self, total=pool(window), window=window, steps=self.lenient, **unknown)


def seen_counts(counts: SeriesCounts) -> SeenCounts:
    """Return the input of the tests from the counts of a series."""
    base, compared, window = counts.base, counts.compared, counts.window
    steps = [_pair(base, one) for one in compared]
    lenient = [_pair_leniently(base, one) for one in compared]
    known = [pair for pair in lenient if pair is not None]
    n_least, total, minority = min(one.n for one in window), pool(steps[-len(window) :]), _minority(counts, window)
    n_first = min(base.of_first_round.n // 2, *(one.of_first_round.n for one in window))
    return SeenCounts(
        total=total,
        window=steps[-len(window) :],
        steps=steps,
        step_ks=inference_ks(min(base.n, *(one.n for one in compared))),
        ks=inference_ks(min(base.n, n_least)),
        minority=minority,
        minority_ks=() if minority is None else inference_ks(n_first),
        minority_unread=_minority_unread(counts, window),
        unread=[_unread(base, one) for one in compared],
        lenient=known if len(known) == len(compared) else (),
        selection=_selection(counts, total),
        guess_share=counts.guess_rate.share,
        cluster_P=counts.cluster_P,
        spent=spent_share(number=counts.looks.number, declared=counts.looks.declared, runs=counts.looks.runs),
        limits=Limits(
            few=counts.why_few,
            dependence=counts.dependence,
            is_end_unknown=counts.is_end_unknown,
            knows_temperature=counts.knows_temperature,
        ),
    )


def _pair(base: CheckpointCounts, one: CheckpointCounts) -> PairedCounts:
    first = None
    if base.rounds is not None or one.rounds is not None:
        first = _pair(base.of_first_round, one.of_first_round)
    return PairedCounts(
        base_P=base.correct_P, late_P=one.correct_P, n_base=base.samples, n_late=one.samples, first=first
    )


def _pair_leniently(base: CheckpointCounts, one: CheckpointCounts) -> PairedCounts | None:
    """Return the counts by the lenient reader; None without it."""
    leniently = [counts.read_leniently() for counts in (base, one)]
    return None if leniently[0] is None or leniently[1] is None else _pair(leniently[0], leniently[1])


def pool(pairs: Sequence[PairedCounts]) -> PairedCounts:
    """Return the counts of checkpoints with their samples summed, or stacked if a stopping rule determined them."""
    late_TP = np.stack([pair.late_P for pair in pairs])
    if not pairs[0].is_stopped:
        return replace(pairs[0], late_P=late_TP.sum(axis=0), n_late=sum(most_samples(pair.n_late) for pair in pairs))
    if len({pair.n_late for pair in pairs}) > 1:
        raise ValueError("checkpoints of one window need the same stopping rule")
    firsts = [pair.first for pair in pairs if pair.first is not None]
    return replace(pairs[0], late_P=late_TP, first=pool(firsts) if firsts else None)


def _selection(counts: SeriesCounts, total: PairedCounts) -> ProblemFilter | None:
    """Return the filter by which the base's samples may have selected the problems; ``selected_by`` overrides it."""
    if counts.selected_by == "none":
        return None
    found = find_selection(total, counts.base.first_correct_P, counts.base.first_wrong_P)
    if counts.selected_by != "base":
        return found
    weight_C = np.ones(most_samples(total.n_base) + 1) if found is None else found.weight_C
    return ProblemFilter(weight_C=weight_C, p=0.0)


def _unread(base: CheckpointCounts, one: CheckpointCounts) -> Unread | None:
    if base.unread_P is None or one.unread_P is None:
        return None
    accepted = None if one.rounds is None else _pair(base, one.accepting_unread(base.unread_shares))
    return Unread(base_P=base.unread_P, late_P=one.unread_P, accepted=accepted)


def _minority_unread(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> Unread | None:
    """Return the unparsed samples that belong to the counts of minority modes.

    Only the second half of the base's samples counts, so half of its unparsed samples are used. Samples that only the
    lenient reader accepts have an unknown mode and count as unparsed.
    """
    shown_P, of_first = counts.shows_modes_P, [one.of_first_round for one in (counts.base, *window)]
    unread = [one.unread_P for one in of_first if one.unread_P is not None]
    if len(unread) < len(of_first):
        return None
    base_P, late_P = unread[0], _summed(unread[1:])
    misread = [one.lenient_P - one.correct_P for one in of_first if one.lenient_P is not None]
    if len(misread) == len(of_first):
        wrong = [one.n - one.correct_P for one in of_first]
        base_P = np.minimum(base_P + misread[0], wrong[0])
        late_P = np.minimum(late_P + _summed(misread[1:]), _summed(wrong[1:]))
    return Unread(base_P=base_P[shown_P] // 2, late_P=late_P[shown_P])


def _minority(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> PairedCounts | None:
    """Return correct samples outside the dominant mode; None without any, as if the grader distinguishes no modes.

    The first half of the base's samples determines the dominant mode, so only its second half counts.
    """
    shown_P = counts.shows_modes_P
    base_P, late_P = counts.base.minority_P[shown_P], _summed(one.minority_P for one in window)[shown_P]
    if not (base_P.any() or late_P.any()):
        return None
    n_first = counts.base.of_first_round.n
    n_late = sum(one.of_first_round.n for one in window)
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=n_first - n_first // 2, n_late=n_late)


def _summed(counts: Iterable[np.ndarray]) -> np.ndarray:
    return np.sum(list(counts), axis=0)
