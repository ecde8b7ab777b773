"""Forward KL to the reference: cross-entropy on samples of the reference, so that what it could do is not forgotten.

    loss += beta * mean over prompts and samples y ~ pi_ref of -log pi(y|x) / |y|

Per token, as GRPO's own loss is; over the sum of tokens the same beta would weigh |y| times as much. Where samples are
of equal length this is KL(pi_ref||pi) per token, less the entropy of the reference, which is constant; where they are
not, short samples count for more than in the KL. Samples of every prompt of the batch take part, also of those that
``greedy_filter`` silences. ``kl`` acts where the *policy* goes; this acts where the reference went, so modes that the
policy has left still pull.

Source: *The Reasoning Boundary Paradox* [C], Eq 9 (SELF), beta = 1e-4. [C] does not say how many samples it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import PartDefaults, check_range


@dataclass(frozen=True, kw_only=True)
class ForwardKl(PartDefaults):
    """Rehearsal of the reference's own samples.

    ``beta`` is the coefficient, 0 or more; ``samples_per_prompt`` are drawn from the reference for each prompt of the
    batch.

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
