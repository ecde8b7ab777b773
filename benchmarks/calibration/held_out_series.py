"""One held-out series: its counts, its verdict, and what is wrong in the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from jaxtyping import Bool, Float, Int

from benchmarks.calibration.held_out_cells import Cell
from benchmarks.calibration.held_out_laws import Course
from benchmarks.calibration.in_rounds import draw_in_rounds, stopping_rule
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.decide import SEED, step_claims
from oversharp.diagnostics.verdict.results import Rates, StepClaim
from oversharp.diagnostics.verdict.rule import MARGIN, label_of
from oversharp.diagnostics.verdict.seen import seen_counts
from oversharp.diagnostics.verdict.table import run_tests

#: Number of problems for the true pass@k of a distribution, and the error that it leaves.
LARGE, OPEN = 20_000, 0.0005
#: A smaller fall is a rounding error.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Counts of a series and the probabilities that they were drawn from.

    ``minority_SP``: probability of right samples outside the way that dominates the first half of the base's samples.
    """

    counts: SeriesCounts
    course: Course
    minority_SP: Float[np.ndarray, "step problem"]


@dataclass(frozen=True, kw_only=True)
class Said:
    """The judged parts of a verdict: its label, ks and claims on checkpoints.

    ``window``: indices of the window's checkpoints.
    """

    label: str
    window: list[int]
    ks: tuple[int, ...]
    steps: tuple[StepClaim, ...]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Label of one series, and which statements of its verdict are wrong.

    Attributes:
        loss: The label, or a lost checkpoint without another cause, is a false alarm.
        no_loss: *No loss*, although more than 2 points were lost.
        kept: A checkpoint counts as kept, although it lost more than 2 points.
    """

    label: str
    loss: bool
    no_loss: bool
    kept: bool


def drawn(cell: Cell, rng: np.random.Generator, enough: int | None = None) -> Drawn:
    """Draw one series of a cell; with ``enough``, each problem in rounds until it has as many correct samples."""
    course = cell.law(rng, cell.n_problems)
    n_S = cell.n_S * len(course.able_SP) if len(cell.n_S) == 1 else cell.n_S
    if enough is not None:
        has_modes = course.modes_SPM is not None
        return _drawn_in_rounds(course, [stopping_rule(n, enough, of=n_S[-1], has_modes=has_modes) for n in n_S], rng)
    correct_S, minority_S, shows_P, minority_SP = _correct(course, n_S, rng)
    unread_S = _unread(course, n_S, correct_S, rng)
    base, *trained = (
        _checkpoint(10 * step, *of) for step, of in enumerate(zip(n_S, correct_S, minority_S, unread_S, strict=True))
    )
    return Drawn(counts=_series(base, trained, shows_P, course), course=course, minority_SP=minority_SP)


def _series(
    base: CheckpointCounts, trained: Sequence[CheckpointCounts], shows_P: np.ndarray, course: Course
) -> SeriesCounts:
    return SeriesCounts(
        series="run",
        base=base,
        trained=tuple(trained),
        shows_modes_P=shows_P,
        tasks=("held out",),
        graders=("exact",),
        tokens_per_sample=None,
        cluster_P=course.cluster_P,
    )


def _drawn_in_rounds(course: Course, rules: Sequence[StoppingRule], rng: np.random.Generator) -> Drawn:
    modes_SPM = course.graded[:, :, None] if course.modes_SPM is None else course.modes_SPM
    in_rounds = draw_in_rounds(rules, modes_SPM, course.unread_SP, rng)
    none_P = np.zeros(modes_SPM.shape[1], dtype=np.int64)
    checkpoints = []
    for step, (rounds, minority_P) in enumerate(zip(in_rounds.rounds, in_rounds.minority_SP, strict=True)):
        kept_P = none_P if course.modes_SPM is None else minority_P
        at_end = _checkpoint(10 * step, rounds.rule.cap, rounds.codes, kept_P, in_rounds.unread_SP[step])
        checkpoints.append(replace(at_end, rounds=rounds))
    base, *trained = checkpoints
    shows_P = in_rounds.shows_modes_P & (course.modes_SPM is not None)
    minority_SP = (modes_SPM * in_rounds.is_minority_PM).sum(axis=2) * (course.modes_SPM is not None)
    return Drawn(counts=_series(base, trained, shows_P, course), course=course, minority_SP=minority_SP)


Counts = Sequence[Int[np.ndarray, " problem"]]


def _correct(
    course: Course, n_S: Sequence[int], rng: np.random.Generator
) -> tuple[Counts, Counts, Bool[np.ndarray, " problem"], Float[np.ndarray, "step problem"]]:
    """Return correct counts, counts outside the dominant way, whether one dominates, and the rates outside it."""
    if course.modes_SPM is None:
        correct_S = [rng.binomial(n, p_P) for n, p_P in zip(n_S, course.graded, strict=True)]
        none_P = np.zeros_like(correct_S[0])
        return correct_S, [none_P] * len(n_S), none_P.astype(bool), np.zeros_like(course.able_SP)
    wrong_SP1 = 1.0 - course.modes_SPM.sum(axis=2, keepdims=True)
    chances_SPM = np.concatenate([course.modes_SPM, np.clip(wrong_SP1, 0.0, 1.0)], axis=2)
    first_PM = rng.multinomial(n_S[0] // 2, chances_SPM[0])[:, :-1]
    n_second_S = (n_S[0] - n_S[0] // 2, *n_S[1:])
    second_SPM = [rng.multinomial(n, of_PM)[:, :-1] for n, of_PM in zip(n_second_S, chances_SPM, strict=True)]
    others_PM = np.arange(first_PM.shape[1]) != first_PM.argmax(axis=1)[:, None]
    correct_S = [of_PM.sum(axis=1) for of_PM in second_SPM]
    correct_S[0] = correct_S[0] + first_PM.sum(axis=1)
    minority_S = [(of_PM * others_PM).sum(axis=1) for of_PM in second_SPM]
    return correct_S, minority_S, first_PM.any(axis=1), (course.modes_SPM * others_PM).sum(axis=2)


def _unread(
    course: Course, n_S: Sequence[int], correct_S: Counts, rng: np.random.Generator
) -> Sequence[Int[np.ndarray, " problem"] | None]:
    if course.unread_SP is None:
        return [None] * len(n_S)
    of_wrong_SP = np.clip(course.unread_SP / np.maximum(1.0 - course.graded, 1e-12), 0.0, 1.0)
    return [rng.binomial(n - correct_P, p_P) for n, correct_P, p_P in zip(n_S, correct_S, of_wrong_SP, strict=True)]


def _checkpoint(
    step: int,
    n: int,
    correct_P: Int[np.ndarray, " problem"],
    minority_P: Int[np.ndarray, " problem"],
    unread_P: Int[np.ndarray, " problem"] | None,
) -> CheckpointCounts:
    name = f"checkpoint-{step}"
    cut = 0.0 if unread_P is None else float(unread_P.sum() / (n * len(unread_P)))
    return CheckpointCounts(
        step=step,
        checkpoint=name,
        n=n,
        correct_P=correct_P,
        minority_P=minority_P,
        rates=Rates(step=step, checkpoint=name, truncated=cut, not_parsed=0.0, timed_out=0.0, ambiguous=0.0),
        unread_P=np.zeros_like(correct_P) if unread_P is None else unread_P,
    )


def said_of(counts: SeriesCounts) -> Said:
    """Return the judged parts of ``verdict_of``, with the same random numbers.

    The other parts would take twice as long. A test compares both.
    """
    if counts.why_untested is not None:
        return Said(label="no_verdict", window=[], ks=(), steps=())
    rule_rng, *_, claim_rng, _ = np.random.default_rng(SEED).spawn(5)
    table = run_tests(seen_counts(counts), rng=rule_rng, claim_rng=claim_rng)
    label = label_of(table)
    if label == "selected":
        return Said(label="no_verdict", window=[], ks=(), steps=())
    return Said(
        label=label,
        window=list(range(len(counts.trained)))[-table.n_window :],
        ks=table.ks,
        steps=step_claims(counts, table),
    )


def judged(cell: Cell, series: Drawn, said: Said) -> Judged:
    """Compare a verdict with the rates that its counts were drawn from."""
    if said.label == "no_verdict":
        return Judged(label=said.label, loss=False, no_loss=False, kept=False)
    truth = _Truth.of(cell, series, said)
    lost = [(place, one.is_of_population) for place, one in enumerate(said.steps) if one.lost and one.cause is None]
    kept = [place for place, one in enumerate(said.steps) if one.kept]
    accepted_K = truth.accepted_like_TK[said.window].mean(axis=0)
    return Judged(
        label=said.label,
        loss=truth.is_false(said.label) or not all(truth.step_lost(*step) for step in lost),
        no_loss=said.label == "no_loss" and bool(accepted_K.min() < -MARGIN),
        kept=any(bool(truth.accepted_like_TK[place].min() < -MARGIN) for place in kept),
    )


@dataclass(frozen=True, kw_only=True)
class _Truth:
    """True changes of mean pass@k (probability) at checkpoints T and the verdict's k.

    ``here`` is over the series' problems, ``like`` over the distribution. ``accepted`` uses the rates of accepted
    samples, the others those of right samples. ``window``: indices of the window's checkpoints.
    """

    window: list[int]
    here_TK: Float[np.ndarray, "checkpoint k"]
    like_TK: Float[np.ndarray, "checkpoint k"]
    accepted_here_TK: Float[np.ndarray, "checkpoint k"]
    accepted_like_TK: Float[np.ndarray, "checkpoint k"]
    minority_TK: Float[np.ndarray, "checkpoint k"]

    @classmethod
    def of(cls, cell: Cell, series: Drawn, said: Said) -> _Truth:
        course, shows_P = series.course, series.counts.shows_modes_P
        able_TK, accepted_TK = changes_of_law(cell, said.ks)
        minority_SP = series.minority_SP[:, shows_P]
        return cls(
            window=said.window,
            here_TK=changes(course.able_SP, said.ks),
            like_TK=able_TK,
            accepted_here_TK=changes(course.graded, said.ks),
            accepted_like_TK=accepted_TK,
            minority_TK=changes(minority_SP, said.ks) if shows_P.any() else np.zeros_like(able_TK),
        )

    def is_false(self, label: str) -> bool:
        """Return whether a label reports a loss that does not exist."""
        fell_here = self._fell(self.here_TK)
        true = {
            "over_sharpened": fell_here and self._fell(self.like_TK, OPEN),
            "over_sharpened_here": fell_here,
            "degraded": fell_here and self.here_TK[self.window, 0].mean() < 0,
            "mode_collapse": self._fell(self.minority_TK),
            "format": self._fell(self.accepted_here_TK),
            "guessing": self._fell(self.accepted_here_TK),
        }
        return not true.get(label, True)

    def step_lost(self, place: int, is_of_population: bool) -> bool:
        """Return whether a checkpoint lost something on these problems, and if claimed, on the distribution."""
        fell_here = bool(self.here_TK[place].min() < -ROUNDING)
        return fell_here and (not is_of_population or bool(self.like_TK[place].min() < -OPEN))

    def _fell(self, change_TK: Float[np.ndarray, "checkpoint k"], least: float = ROUNDING) -> bool:
        return bool(change_TK[self.window].mean(axis=0).min() < -least)


@cache
def changes_of_law(
    cell: Cell, ks: tuple[int, ...]
) -> tuple[Float[np.ndarray, "checkpoint k"], Float[np.ndarray, "checkpoint k"]]:
    """Return the changes over the distribution's problems: of right and of accepted samples."""
    course = cell.law(np.random.default_rng(0), LARGE)
    if cell.stays:
        nothing_TK = np.zeros((len(course.able_SP) - 1, len(ks)))
        return nothing_TK, nothing_TK
    return changes(course.able_SP, ks), changes(course.graded, ks)


def changes(chance_SP: Float[np.ndarray, "step problem"], ks: Sequence[int]) -> Float[np.ndarray, "checkpoint k"]:
    """Return the true changes of mean pass@k compared with the base, row 0.

    >>> changes(np.array([[0.5, 0.0], [0.0, 0.5], [0.5, 0.5]]), [1, 2]).tolist()
    [[0.0, 0.0], [0.25, 0.375]]
    """
    reach_SK = np.stack([(1.0 - (1.0 - chance_SP) ** k).mean(axis=1) for k in ks], axis=1)
    return np.asarray(reach_SK[1:] - reach_SK[0])
