"""Counts of every checkpoint, and how they were obtained: the input of a verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule, as_rule
from oversharp.diagnostics.statistics.units import too_few_to_generalise
from oversharp.diagnostics.verdict.results import LeftOut, Rates

#: With fewer solved problems, there is no inference on the population that the problems were sampled from.
FEW_PROBLEMS = 30
#: Smallest number of problems that the base must have solved for a verdict.
LEAST_SOLVED = 5
#: Message for audits with one response per problem.
NEEDS_SAMPLES = "pass@k for k > 1 needs 8 or more samples per problem"
#: Assumed share of wrong responses that a grader accepts, if it is unknown. Short answers can be correct by chance.
ASSUMED_GUESS_RATE = 0.005


@dataclass(frozen=True, kw_only=True)
class RoundCounts:
    """Counts of every problem after each round of a stopping rule.

    After the round at which a problem stopped, they do not change. The other fields are as in ``CheckpointCounts``.
    """

    rule: StoppingRule
    correct_RP: Int[np.ndarray, "round problem"]
    unread_RP: Int[np.ndarray, "round problem"] | None = None
    lenient_RP: Int[np.ndarray, "round problem"] | None = None

    @property
    def codes(self) -> Int[np.ndarray, " problem"]:
        """Codes of the end points."""
        return self.rule.stop(self.correct_RP)

    @property
    def lenient_codes(self) -> Int[np.ndarray, " problem"] | None:
        """Codes of the end points if the rule is applied to the lenient reader's grades; None without it."""
        return None if self.lenient_RP is None else self.rule.stop(self.lenient_RP)


@dataclass(frozen=True, kw_only=True)
class CheckpointCounts:
    """Counts per problem among the first ``n`` samples of each, for one checkpoint.

    If a stopping rule determined the number of samples, ``n`` is its cap, and ``correct_P`` and ``lenient_P`` are the
    codes of end points (``statistics.stopping``). Code 0 is a problem that was never solved.

    Attributes:
        n: Number of counted samples per problem, the smallest that was planned for any problem.
        n_most: Largest number of samples that was planned for any problem; None if it is ``n``.
        minority_P: Correct samples outside the problem's dominant mode; for the base those of its second half only.
            With a stopping rule, of the first round.
        rates: Rates of truncated, unparsed, ambiguous and timed-out samples; None without a sample.
        unread_P: Samples that were truncated, unparsed or timed out in grading, and are not correct; None if unknown.
        lenient_P: Samples that are correct or accepted by the lenient reader; None without one.
        why: Why the checkpoint cannot be compared.
        weights: Id of the checkpoint in the store, the hash of its tensors; None if not given.
        first_correct_P: Index of the first correct sample, ``n`` without one; None if the order of samples is unknown.
        first_wrong_P: Index of the first wrong sample, in the same form.
        rounds: Counts after each round; None if all problems have ``n`` samples.
    """

    step: int
    checkpoint: str
    n: int
    correct_P: Int[np.ndarray, " problem"]
    minority_P: Int[np.ndarray, " problem"]
    rates: Rates | None
    unread_P: Int[np.ndarray, " problem"] | None = None
    lenient_P: Int[np.ndarray, " problem"] | None = None
    why: str | None = None
    weights: str | None = None
    first_correct_P: Int[np.ndarray, " problem"] | None = None
    first_wrong_P: Int[np.ndarray, " problem"] | None = None
    rounds: RoundCounts | None = None
    n_most: int | None = None

    @property
    def samples(self) -> Samples:
        """Number of samples of every problem, or the rule that determined it."""
        return self.n if self.rounds is None else self.rounds.rule

    @property
    def of_first_round(self) -> CheckpointCounts:
        """Counts of as many samples of every problem: all, or those of the first round."""
        rounds = self.rounds
        if rounds is None:
            return self
        unread_P = None if rounds.unread_RP is None else rounds.unread_RP[0]
        lenient_P = None if rounds.lenient_RP is None else rounds.lenient_RP[0]
        n, correct_P = rounds.rule.rounds[0], rounds.correct_RP[0]
        return replace(self, n=n, correct_P=correct_P, unread_P=unread_P, lenient_P=lenient_P, rounds=None)

    def read_leniently(self) -> CheckpointCounts | None:
        """Return the counts by the lenient reader; None without it. The stopping rule is applied to its grades."""
        if self.lenient_P is None:
            return None
        rounds = self.rounds
        if rounds is not None and rounds.lenient_RP is not None:
            rounds = replace(rounds, correct_RP=rounds.lenient_RP)
        return replace(self, correct_P=self.lenient_P, rounds=rounds)

    def accepting_unread(self, share_P: Float[np.ndarray, " problem"]) -> CheckpointCounts:
        """Return the counts with unparsed samples above ``share_P`` of all counted as correct.

        The stopping rule is applied again: it may stop earlier.
        """
        rounds = self.rounds
        if rounds is None or rounds.unread_RP is None:
            raise ValueError("the unparsed samples of each round are unknown")
        expected_RP = np.floor(np.array(rounds.rule.rounds)[:, None] * share_P).astype(np.int64)
        accepted_RP = rounds.correct_RP + np.maximum(0, rounds.unread_RP - expected_RP)
        return replace(self, correct_P=rounds.rule.stop(accepted_RP), rounds=replace(rounds, correct_RP=accepted_RP))

    @property
    def unread_shares(self) -> Float[np.ndarray, " problem"]:
        """Share of unparsed samples of every problem. Raises ``ValueError`` if it is unknown."""
        if self.unread_P is None:
            raise ValueError("the unparsed samples are unknown")
        return np.asarray(self.unread_P / self.hits[0])

    @property
    def hits(self) -> tuple[Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
        """Numbers of samples and of correct samples of every problem."""
        return as_rule(self.samples).hits(self.correct_P)

    @property
    def pass_at_1(self) -> Float[np.ndarray, " problem"]:
        """Unbiased pass@1 of every problem."""
        if self.rounds is None:
            return np.asarray(self.correct_P / self.n)
        return _pass_at_1(self.rounds.rule, self.correct_P)


def _pass_at_1(rule: StoppingRule, code_P: np.ndarray) -> Float[np.ndarray, " problem"]:
    return rule.pass_at_k_table([1])[code_P, 0]


@dataclass(frozen=True, kw_only=True)
class ControlCounts:
    """Correct samples at another ``temperature`` than the audit's, out of ``n`` per problem.

    They are samples of the base at a lower temperature, or of a checkpoint at a higher one. Step, label and ``weights``
    are those of the checkpoint in the series. With a stopping rule, ``n`` is its cap, and ``correct_P`` has codes.
    """

    step: int
    checkpoint: str
    temperature: float
    n: int
    correct_P: Int[np.ndarray, " problem"]
    weights: str | None = None
    rule: StoppingRule | None = None

    @property
    def samples(self) -> Samples:
        """Number of samples of every problem, or the rule that determined it."""
        return self.n if self.rule is None else self.rule

    @property
    def pass_at_1(self) -> Float[np.ndarray, " problem"]:
        """Unbiased pass@1 of every problem."""
        return np.asarray(self.correct_P / self.n) if self.rule is None else _pass_at_1(self.rule, self.correct_P)


@dataclass(frozen=True, kw_only=True)
class SharperDraws:
    """The base sampled at lower temperatures.

    ``temperature_S`` descends. The first temperature is that of the audit. ``n_S`` is the number of samples per problem
    at each, or the stopping rule. ``correct_SP`` counts the correct ones. ``greedy_P``: whether the base's greedy
    response is correct; None if unknown.
    """

    temperature_S: tuple[float, ...]
    n_S: tuple[Samples, ...]
    correct_SP: Int[np.ndarray, "temperature problem"]
    greedy_P: Bool[np.ndarray, " problem"] | None


@dataclass(frozen=True, kw_only=True)
class GuessRate:
    """Share of wrong responses that a grader accepts, and the source of this number.

    ``source`` is "given" (by the user), "measured", "assumed", or text about a share that the grader knows.
    """

    share: float = ASSUMED_GUESS_RATE
    source: str = "assumed"


@dataclass(frozen=True, kw_only=True)
class Looks:
    """Number of this verdict, and the number of planned verdicts and runs.

    A look is a verdict on a new set of checkpoints or samples. Each look uses part of the significance level.
    ``number`` counts looks from 1. ``declared`` is the planned number of looks; None if unknown, as in a live audit.
    ``runs`` is the number of runs from which one is chosen.
    """

    number: int = 1
    declared: int | None = 1
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class SeriesCounts:
    """Input of a verdict.

    Attributes:
        tokens_per_sample: Mean number of tokens of a sample; None if unknown. With a stopping rule, hard problems have
            more samples, so it is the mean of ``tokens_P``.
        tokens_P: Mean number of tokens of a sample of each problem.
        trained: Checkpoints after the base, in step order.
        shows_modes_P: Whether the first half of the base's samples has a correct one with a known mode. Only then the
            problem has a dominant mode.
        skipped: Checkpoints that were not read, with the reason.
        cluster_P: Cluster number of every problem; None where each is independent.
        n_near_duplicates: Number of problems with nearly the same prompt as another one, if no clusters were given.
        guess_rate: Largest share of wrong responses that the graders may accept.
        sharper: The base at lower temperatures, if it was sampled there.
        controls: All samples at other temperatures, of comparable checkpoints.
        dependence: Description of the correlation between samples of a problem; None if they may be independent.
        is_repaired: The steps are not training steps but hundredths of the way from the base to a checkpoint.
        is_greedy: The counts are of one greedy response per problem.
        doubts: Sentences on faults of grading and sampling as a whole.
        why_ungraded: Why there is no verdict, if too many samples have no grade.
        selected_by: "base" if the base's samples chose the problems, "none" if not; None if unknown.
        excluded: Problems and records of an import that are not compared, as a sentence; None where all are.
        knows_temperature: Whether the sampling temperature is recorded.
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
    doubts: tuple[str, ...] = ()
    why_ungraded: str | None = None
    selected_by: Literal["base", "none"] | None = None
    excluded: str | None = None
    knows_temperature: bool = True
    tokens_P: Float[np.ndarray, " problem"] | None = None

    @property
    def compared(self) -> tuple[CheckpointCounts, ...]:
        """Checkpoints after the base that can be compared."""
        return tuple(one for one in self.trained if one.why is None)

    @property
    def window(self) -> tuple[CheckpointCounts, ...]:
        """The last third of the comparable checkpoints, at least one; empty without any."""
        return self.compared[-window_size(len(self.compared)) :]

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Checkpoints that cannot be compared: first those that were not read, then the others in step order."""
        known = {
            one.checkpoint: LeftOut(checkpoint=one.checkpoint, step=one.step, why=one.why)
            for one in (self.base, *self.trained)
            if one.why is not None
        }
        unread = {name: LeftOut(checkpoint=name, step=None, why=why) for name, why in self.skipped.items()}
        return tuple({**unread, **known}.values())

    @property
    def is_end_unknown(self) -> bool:
        """Whether a checkpoint was left out in or after the window, by its step or the number in its label."""

        def step_of(left: LeftOut) -> int | None:
            numbers = re.findall(r"\d+", left.checkpoint)
            return left.step if left.step is not None else int(numbers[-1]) if numbers else None

        steps = [step_of(left) for left in self.left_out]
        return any(step is None or step >= self.window[0].step for step in steps)

    @property
    def n_within_reach(self) -> int:
        """Number of problems that the base solved. Only these can be lost."""
        return int((self.base.correct_P > 0).sum())

    @property
    def why_few(self) -> str | None:
        """Why there is no inference on the population of the problems; None if there is."""
        if self.n_within_reach < FEW_PROBLEMS:
            return f"fewer than {FEW_PROBLEMS} problems were solved by the base"
        return too_few_to_generalise(self.cluster_P)

    @property
    def why_untested(self) -> str | None:
        """Why there is no verdict, before any test; None where there may be one."""
        base = self.base
        if not len(base.correct_P):
            return "the audit has no problems"
        if base.why is not None:
            return f"the base {base.checkpoint} cannot be used ({base.why})"
        if self.compared and self.is_greedy:
            return f"there is one greedy response per problem and checkpoint, but {NEEDS_SAMPLES}"
        if self.compared:
            return self.why_ungraded or self._why_nothing_to_lose
        left_out = [f"{one.checkpoint} ({one.why})" for one in self.left_out]
        if not left_out:
            return "the series has no checkpoint after the base"
        return f"no checkpoint after the base can be compared: {'; '.join(left_out)}"

    @property
    def _why_nothing_to_lose(self) -> str | None:
        n_problems, n_solved = len(self.base.correct_P), self.n_within_reach
        needed = min(LEAST_SOLVED, n_problems)
        if n_solved >= needed:
            return None
        return (
            f"the base solved {n_solved or 'none'} of these {plural(n_problems, 'problem')}, and a verdict needs "
            f"{needed}: use easier problems or more samples, or check that the grader parses the answers"
        )


def window_size(n_checkpoints: int) -> int:
    """Return the number of late checkpoints that are pooled: a third of the trained ones, at least one.

    >>> window_size(1), window_size(8), window_size(9)
    (1, 3, 3)
    """
    return max(1, round(n_checkpoints / 3))
