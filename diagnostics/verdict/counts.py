"""Counts of every checkpoint, and how they were obtained: the input of a verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from oversharp.diagnostics.records.amounts import plural
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
class CheckpointCounts:
    """Counts per problem among the first ``n`` samples of each, for one checkpoint.

    Attributes:
        n: Number of counted samples per problem, the smallest that was planned for any problem.
        n_most: Largest number of samples that was planned for any problem.
        minority_P: Correct samples outside the problem's dominant mode; for the base those of its second half only.
        rates: Rates of truncated, unparsed, ambiguous and timed-out samples; None without a sample.
        unread_P: Samples that were truncated, unparsed or timed out in grading, and are not correct; None if unknown.
        lenient_P: Samples that are correct or accepted by the lenient reader; None without one.
        why: Why the checkpoint cannot be compared.
        weights: Id of the checkpoint in the store, the hash of its tensors; None if not given.
        first_correct_P: Index of the first correct sample, ``n`` without one; None if the order of samples is unknown.
        first_wrong_P: Index of the first wrong sample, in the same form.
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

    They are samples of the base at a lower temperature, or of a checkpoint at a higher one. Step, label and ``weights``
    are those of the checkpoint in the series.
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

    ``temperature_S`` descends. The first temperature is that of the audit. ``n_S`` is the number of samples per problem
    at each, and ``correct_SP`` counts the correct ones. ``greedy_P``: whether the base's greedy response is correct;
    None if unknown.
    """

    temperature_S: tuple[float, ...]
    n_S: tuple[int, ...]
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
        grading: Sentences on faults of the grading as a whole.
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
    grading: tuple[str, ...] = ()
    why_ungraded: str | None = None
    selected_by: Literal["base", "none"] | None = None
    excluded: str | None = None
    knows_temperature: bool = True

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
