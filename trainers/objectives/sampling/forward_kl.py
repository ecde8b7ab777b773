"""Forward KL to the reference: cross-entropy on samples of the reference, to keep its capabilities.

    loss += beta * mean over prompts and samples y ~ pi_ref of -log pi(y|x) / |y|

The loss of a sample is a mean over tokens, as in GRPO. With a sum over tokens, the same beta would have |y| times the
weight. For samples of equal length, the loss is KL(pi_ref||pi) per token, plus the entropy of the reference, which is
constant. Otherwise short samples have more weight than in the KL. Every prompt of the batch has such samples, including
those that ``greedy_filter`` removes. ``kl`` acts on samples of the *policy*. This loss acts on samples of the
reference, so it also acts on modes that the policy no longer samples.

Source: *The Reasoning Boundary Paradox* [C], Eq 9 (SELF), beta = 1e-4. [C] does not state the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Rehearsal, check_range


@dataclass(frozen=True, kw_only=True)
class ForwardKl(Rehearsal):
    """Rehearsal on samples of the reference.

    ``beta`` is the coefficient, 0 or more. ``samples_per_prompt`` is the number of samples of the reference for each
    prompt of the batch.

    >>> ForwardKl().beta, ForwardKl().samples_per_prompt
    (0.0001, 2)
    """

    title: ClassVar[str] = "forward KL to the reference"
    source: ClassVar[str] = "The Reasoning Boundary Paradox, Eq 9"

    beta: float = 1e-4
    samples_per_prompt: int = 2

    def __post_init__(self) -> None:
        check_range(0, beta=self.beta)
        check_range(1, samples_per_prompt=self.samples_per_prompt)


PART = ForwardKl
