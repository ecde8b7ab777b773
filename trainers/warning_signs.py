"""Early warning while a run trains: entropy, or the variety of correct responses, fell by half, or entropy doubled.

The rule is one sentence: *the mean over the last 20 steps lies below half of the mean over the first 20, or above twice
of it*. It needs 40 steps, looks at two courses, and warns of each once. Half and twice are conventions, not tests. On
the built-in task it spoke between steps 82 and 95 in three of three GRPO runs of 160 steps, and in none of three IAC
runs; of a chat model that was trained by DLC without weights until its responses no longer ended it speaks at step 40
of 60. A warning is a reason to audit, never a verdict: entropy falls under every objective that learns.
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

#: Steps at the start, and steps at the end, that are averaged.
WINDOW_STEPS = 20
#: A trailing mean below this share of the first mean is a warning sign, and of entropy one above this multiple of it.
FALLEN_TO, RISEN_TO = 0.5, 2.0
#: So many steps without a correct sample, or without a wrong one, are told.
FIRST_STEPS = 3
NOTHING_CORRECT = (
    f"warning: no sample of the first {FIRST_STEPS} steps is correct (a full reward of 1, or above --correct-above): "
    "what acts on correct samples (iac, nsr, …) has nothing to act on; look into the rollouts (for partial rewards: "
    "--correct-above, or iac:s_plus=positive)"
)
ALL_CORRECT = (
    f"warning: every sample of the first {FIRST_STEPS} steps is correct (a full reward of 1, or above "
    "--correct-above): what tells correct samples from wrong ones has nothing to tell; raise --correct-above, or train "
    "on harder problems"
)

Kind = Literal["token_entropy", "correct_variety", "token_entropy_rise"]

_ENTROPY = ("token_entropy_nats", "token entropy (nats per token)")
#: What each kind watches: the name in ``metrics.jsonl``, and what it is called.
WATCHED: Mapping[Kind, tuple[str, str]] = {
    "token_entropy": _ENTROPY,
    "correct_variety": ("correct_variety", "the chance that two correct responses to a prompt differ"),
    "token_entropy_rise": _ENTROPY,
}
#: Those of which a rise is the sign.
_RISES = frozenset[Kind]({"token_entropy_rise"})


@dataclass(frozen=True, kw_only=True)
class GroupVariety:
    """Variety of the correct responses of one step. None where no prompt can tell.

    ``effective_correct_responses``: exp(entropy) of the distinct correct responses of a prompt, the mean over prompts
    with a correct one; at least 1. It grows with the number of correct responses, so a run that learns lifts it while
    it sharpens. ``correct_variety``: the chance that two different correct responses drawn from a prompt's group are
    not the same text, the mean over prompts with two correct ones; free of that bias, and what the rule looks at.
    """

    effective_correct_responses: float | None
    correct_variety: float | None

    @property
    def metrics(self) -> dict[str, float]:
        """Both by their names in ``metrics.jsonl``; what is unknown is absent."""
        known = {
            "effective_correct_responses": self.effective_correct_responses,
            "correct_variety": self.correct_variety,
        }
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class WarningSign:
    """A course that fell, or rose: means over the first and over the last ``WINDOW_STEPS`` steps, at ``step``."""

    kind: Kind
    step: int
    first_mean: float
    last_mean: float

    @property
    def text(self) -> str:
        """One line for the person who trains.

        >>> WarningSign(kind="token_entropy", step=93, first_mean=0.45, last_mean=0.22).text
        'warning: step 93: token entropy (nats per token) fell to 49 % of its start (0.45 to 0.22, means over 20
         steps): audit this run for lost modes; oversharp train --list names calibrations'
        """
        way, mend = ("fell", "audit this run for lost modes; oversharp train --list names calibrations")
        if self.kind in _RISES:
            way = "rose"
            mend = (
                "the policy flattens, and its responses may soon not end (truncation_rate in metrics.jsonl): lower the "
                "learning rate, or what rewards entropy; dlc without +importance learns its own flatter rollouts"
            )
        percent = 100 * self.last_mean / self.first_mean
        return (
            f"warning: step {self.step}: {WATCHED[self.kind][1]} {way} to {percent:.0f} % of its start "
            f"({self.first_mean:.2g} to {self.last_mean:.2g}, means over {WINDOW_STEPS} steps): {mend}"
        )


def group_variety(correct_by_prompt: Sequence[Sequence[str]]) -> GroupVariety:
    """Variety of the correct responses of one step: a list of texts (or canonical solutions) per prompt.

    >>> group_variety([["a", "a", "b"], ["c"], []])
    GroupVariety(effective_correct_responses=1.444940787..., correct_variety=0.666666666...)
    >>> group_variety([[], []])
    GroupVariety(effective_correct_responses=None, correct_variety=None)
    """
    one = _counted([texts for texts in correct_by_prompt if texts])
    two = _counted([texts for texts in correct_by_prompt if len(texts) > 1])
    return GroupVariety(
        effective_correct_responses=float(np.exp(plug_in_entropy(*one)).mean()) if one[2] else None,
        correct_variety=float(1 - simpson_index(*two).mean()) if two[2] else None,
    )


def step_variety(texts: Sequence[str], correct: Sequence[bool], group_size: int) -> GroupVariety:
    """Variety of the rollouts of one step, prompt-major as they are drawn.

    >>> step_variety(["a", "a", "x", "b", "c", "c"], [True, True, False, True, True, True], 3).correct_variety
    0.333333333...
    """
    kept = [text if right else None for text, right in zip(texts, correct, strict=True)]
    groups = (kept[start : start + group_size] for start in range(0, len(kept), group_size))
    return group_variety([[text for text in group if text is not None] for group in groups])


def first_steps_note(course: Sequence[Mapping[str, float]]) -> str | None:
    """What is told of the first steps once they are done: that no sample of theirs is correct, or all are.

    A course that lacks some of them, or how much of one was correct, tells nothing.

    >>> first_steps_note([{"step": step, "correct_rate": 1.0} for step in (1, 2, 3)]) == ALL_CORRECT
    True
    >>> [first_steps_note([{"step": step, "correct_rate": 0.5} for step in range(1, 4)])]
    [None]
    >>> [first_steps_note([{"step": step, "correct_rate": 0.0} for step in range(8, 11)])]
    [None]
    """
    if [one["step"] for one in course[: FIRST_STEPS + 1]] != list(range(1, FIRST_STEPS + 1)):
        return None
    rates = {one.get("correct_rate") for one in course}
    return NOTHING_CORRECT if rates == {0.0} else ALL_CORRECT if rates == {1.0} else None


def warning_signs(course: Sequence[Mapping[str, float]]) -> tuple[WarningSign, ...]:
    """The first step at which each watched metric had fallen, or risen, for those that had, by step.

    ``course`` holds the metrics of every step in order, as in ``metrics.jsonl``. A step that lacks a metric is left
    out of its windows. A course that starts at 0 can neither fall nor rise.

    >>> flat = [{"step": step, "token_entropy_nats": 1.0} for step in range(1, 41)]
    >>> warning_signs(flat)
    ()
    >>> fallen = [{**point, "token_entropy_nats": 1.0 if point["step"] <= 20 else 0.4} for point in flat]
    >>> [(sign.kind, sign.step, sign.first_mean, round(sign.last_mean, 3)) for sign in warning_signs(fallen)]
    [('token_entropy', 40, 1.0, 0.4)]
    """
    found = [sign for kind in WATCHED if (sign := _first_sign(course, kind)) is not None]
    return tuple(sorted(found, key=lambda sign: (sign.step, sign.kind)))


def new_signs(course: Sequence[Mapping[str, float]]) -> tuple[WarningSign, ...]:
    """The warning signs that the last step of ``course`` brought: each kind appears once in a run, resumed or not."""
    return tuple(sign for sign in warning_signs(course) if sign.step == course[-1]["step"])


def _first_sign(course: Sequence[Mapping[str, float]], kind: Kind) -> WarningSign | None:
    name = WATCHED[kind][0]
    points = [(int(metrics["step"]), float(metrics[name])) for metrics in course if metrics.get(name) is not None]
    sums = list(accumulate((value for _, value in points), initial=0.0))
    first_sum = sums[min(WINDOW_STEPS, len(points))]
    for end in range(2 * WINDOW_STEPS, len(points) + 1):
        last_sum = sums[end] - sums[end - WINDOW_STEPS]
        has_left = 0 < RISEN_TO * first_sum < last_sum if kind in _RISES else last_sum < FALLEN_TO * first_sum
        if has_left:
            first_mean, last_mean = first_sum / WINDOW_STEPS, last_sum / WINDOW_STEPS
            return WarningSign(kind=kind, step=points[end - 1][0], first_mean=first_mean, last_mean=last_mean)
    return None


def _counted(
    texts_by_group: Sequence[Sequence[str]],
) -> tuple[Int[np.ndarray, " answer"], Int[np.ndarray, " answer"], int]:
    """Counts of the distinct texts of all groups, the group of each count, and how many groups there are."""
    counts = [list(Counter(texts).values()) for texts in texts_by_group]
    group_A = np.repeat(np.arange(len(counts)), [len(count) for count in counts])
    return np.array([number for count in counts for number in count], dtype=np.int64), group_A, len(counts)
