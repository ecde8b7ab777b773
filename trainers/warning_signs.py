"""Warn during training if entropy or the variety of correct responses halves, or if entropy doubles.

The rule: *the mean over the last 20 steps is below half of the mean over the first 20, or above twice that mean*. It
needs 40 steps and warns once per metric. The thresholds are conventions, not statistical tests. On the built-in task
the rule warned between steps 82 and 95 in three of three GRPO runs of 160 steps, and in none of three IAC runs. In a
run of 60 steps that trained a chat model with DLC, without importance weights, until its responses no longer ended, it
warned at step 40. A warning is a reason to audit, not a verdict: entropy falls under every objective that learns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
from jaxtyping import Int

from oversharp.diagnostics.statistics.entropy import plug_in_entropy, simpson_index

#: Number of first steps to average, and number of last steps to average.
WINDOW_STEPS = 20
#: Warn if the last mean is below FALLEN_TO times the first mean; for entropy also if it is above RISEN_TO times it.
FALLEN_TO, RISEN_TO = 0.5, 2.0
#: Warn if this number of first steps has no correct sample, or no wrong sample.
FIRST_STEPS = 3
NOTHING_CORRECT = (
    f"warning: no sample of the first {FIRST_STEPS} steps is correct (a full reward of 1, or above --correct-above): "
    "parts that act on correct samples (iac, nsr, …) have no effect; check the rollouts; for partial rewards, pass "
    "--correct-above or iac:s_plus=positive"
)
ALL_CORRECT = (
    f"warning: every sample of the first {FIRST_STEPS} steps is correct (a full reward of 1, or above "
    "--correct-above): parts that compare correct and wrong samples have no effect; raise --correct-above, or train "
    "on harder problems"
)

Kind = Literal["token_entropy", "correct_variety", "token_entropy_rise"]

_ENTROPY = ("token_entropy_nats", "token entropy (nats per token)")
#: Kind → (name in ``metrics.jsonl``, display name).
WATCHED: Mapping[Kind, tuple[str, str]] = {
    "token_entropy": _ENTROPY,
    "correct_variety": ("correct_variety", "the probability that two correct responses to a prompt differ"),
    "token_entropy_rise": _ENTROPY,
}
#: Kinds of warnings about a rise. The others are about a fall.
_RISES = frozenset[Kind]({"token_entropy_rise"})


@dataclass(frozen=True, kw_only=True)
class GroupVariety:
    """Variety of the correct responses of one step. Values are None if no prompt has enough correct responses.

    ``effective_correct_responses`` is exp(entropy) of the distribution over distinct correct responses to a prompt,
    averaged over prompts with a correct response. It is at least 1. It grows with the number of correct responses, so
    learning raises it even while the policy sharpens. ``correct_variety`` is the probability that two correct responses
    of a group differ, averaged over prompts with two correct responses. It does not have that bias, so the rule uses
    it.
    """

    effective_correct_responses: float | None
    correct_variety: float | None

    @property
    def metrics(self) -> dict[str, float]:
        """Values that are not None, by their names in ``metrics.jsonl``."""
        known = {
            "effective_correct_responses": self.effective_correct_responses,
            "correct_variety": self.correct_variety,
        }
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class WarningSign:
    """Warning at ``step`` about a metric that fell or rose, with its means at the start and at the end."""

    kind: Kind
    step: int
    first_mean: float
    last_mean: float

    @property
    def text(self) -> str:
        """Warning as one line.

        >>> WarningSign(kind="token_entropy", step=93, first_mean=0.45, last_mean=0.22).text
        'warning: step 93: token entropy (nats per token) fell to 49 % of its start (0.45 to 0.22, means over 20
         steps): audit this run for lost modes; oversharp train --list shows calibrations'
        """
        verb, hint = ("fell", "audit this run for lost modes; oversharp train --list shows calibrations")
        if self.kind in _RISES:
            verb = "rose"
            hint = (
                "the policy flattens, and responses may stop ending (truncation_rate in metrics.jsonl): lower the "
                "learning rate or the entropy bonus; dlc without +importance learns from its own flatter rollouts"
            )
        percent = 100 * self.last_mean / self.first_mean
        return (
            f"warning: step {self.step}: {WATCHED[self.kind][1]} {verb} to {percent:.0f} % of its start "
            f"({self.first_mean:.2g} to {self.last_mean:.2g}, means over {WINDOW_STEPS} steps): {hint}"
        )


def group_variety(correct_by_prompt: Sequence[Sequence[str]]) -> GroupVariety:
    """Return the variety of correct responses. Each prompt has a list of texts, or of canonical solutions.

    >>> group_variety([["a", "a", "b"], ["c"], []])
    GroupVariety(effective_correct_responses=1.444940787..., correct_variety=0.666666666...)
    >>> group_variety([[], []])
    GroupVariety(effective_correct_responses=None, correct_variety=None)
    """
    at_least_one = _count_texts([texts for texts in correct_by_prompt if texts])
    two = _count_texts([texts for texts in correct_by_prompt if len(texts) > 1])
    return GroupVariety(
        effective_correct_responses=float(np.exp(plug_in_entropy(*at_least_one)).mean()) if at_least_one[2] else None,
        correct_variety=float(1 - simpson_index(*two).mean()) if two[2] else None,
    )


def step_variety(texts: Sequence[str], correct: Sequence[bool], group_size: int) -> GroupVariety:
    """Return the variety of the rollouts of one step, which are in order of the prompts.

    >>> step_variety(["a", "a", "x", "b", "c", "c"], [True, True, False, True, True, True], 3).correct_variety
    0.333333333...
    """
    kept = [text if right else None for text, right in zip(texts, correct, strict=True)]
    groups = (kept[start : start + group_size] for start in range(0, len(kept), group_size))
    return group_variety([[text for text in group if text is not None] for group in groups])


def first_steps_note(history: Sequence[Mapping[str, float]]) -> str | None:
    """Return a warning if none or all samples of the first steps are correct, else None.

    It is also None if ``history`` lacks one of these steps or its correct rate.

    >>> first_steps_note([{"step": step, "correct_rate": 1.0} for step in (1, 2, 3)]) == ALL_CORRECT
    True
    >>> [first_steps_note([{"step": step, "correct_rate": 0.5} for step in range(1, 4)])]
    [None]
    >>> [first_steps_note([{"step": step, "correct_rate": 0.0} for step in range(8, 11)])]
    [None]
    """
    if [metrics["step"] for metrics in history[: FIRST_STEPS + 1]] != list(range(1, FIRST_STEPS + 1)):
        return None
    rates = {metrics.get("correct_rate") for metrics in history}
    return NOTHING_CORRECT if rates == {0.0} else ALL_CORRECT if rates == {1.0} else None


def warning_signs(history: Sequence[Mapping[str, float]]) -> tuple[WarningSign, ...]:
    """Return the first warning of each kind, in order of the steps.

    ``history`` has the metrics of every step in order, as in ``metrics.jsonl``. The means of a metric skip the steps
    without it. There is no warning for a metric that starts at 0.

    >>> flat = [{"step": step, "token_entropy_nats": 1.0} for step in range(1, 41)]
    >>> warning_signs(flat)
    ()
    >>> fallen = [{**point, "token_entropy_nats": 1.0 if point["step"] <= 20 else 0.4} for point in flat]
    >>> [(sign.kind, sign.step, sign.first_mean, round(sign.last_mean, 3)) for sign in warning_signs(fallen)]
    [('token_entropy', 40, 1.0, 0.4)]
    """
    signs = [sign for kind in WATCHED if (sign := _first_sign(history, kind)) is not None]
    return tuple(sorted(signs, key=lambda sign: (sign.step, sign.kind)))


def new_signs(history: Sequence[Mapping[str, float]]) -> tuple[WarningSign, ...]:
    """Return the warnings at the last step of ``history``. A run has each kind once, even if it is resumed."""
    return tuple(sign for sign in warning_signs(history) if sign.step == history[-1]["step"])


def _first_sign(history: Sequence[Mapping[str, float]], kind: Kind) -> WarningSign | None:
    name = WATCHED[kind][0]
    points = [(int(metrics["step"]), float(metrics[name])) for metrics in history if metrics.get(name) is not None]
    sums = list(accumulate((value for _, value in points), initial=0.0))
    first_sum = sums[min(WINDOW_STEPS, len(points))]
    for end in range(2 * WINDOW_STEPS, len(points) + 1):
        last_sum = sums[end] - sums[end - WINDOW_STEPS]
        has_left = 0 < RISEN_TO * first_sum < last_sum if kind in _RISES else last_sum < FALLEN_TO * first_sum
        if has_left:
            first_mean, last_mean = first_sum / WINDOW_STEPS, last_sum / WINDOW_STEPS
            return WarningSign(kind=kind, step=points[end - 1][0], first_mean=first_mean, last_mean=last_mean)
    return None


def _count_texts(
    texts_by_group: Sequence[Sequence[str]],
) -> tuple[Int[np.ndarray, " answer"], Int[np.ndarray, " answer"], int]:
    """Count the distinct texts of each group. Return all counts, the group of each, and the number of groups."""
    counts = [list(Counter(texts).values()) for texts in texts_by_group]
    group_A = np.repeat(np.arange(len(counts)), [len(count) for count in counts])
    return np.array([number for count in counts for number in count], dtype=np.int64), group_A, len(counts)
