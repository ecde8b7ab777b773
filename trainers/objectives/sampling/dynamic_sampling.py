"""Dynamic sampling: replaces prompts whose rollouts all have the same reward by further prompts.

A group of equal rewards has no gradient, and a batch with many such groups has a smaller and noisier gradient. Further
prompts are sampled until enough groups have mixed rewards, in at most ``max_rounds`` rounds per step. After the last
round, groups of equal rewards fill the batch. This costs up to ``max_rounds`` times the rollouts. Prompts that are
always or never solved are removed from the batch, and with them all penalties on their samples.

Source: DAPO (arXiv 2503.14476), section 3.2, Eq 11. DAPO has no limit of rounds. verl's limit is
``max_num_gen_batches``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Resampling, check_range


@dataclass(frozen=True, kw_only=True)
class DynamicSampling(Resampling):
    """Fills the batch with groups of mixed rewards. ``max_rounds`` includes the first round.

    >>> DynamicSampling().max_rounds
    4
    """

    title: ClassVar[str] = "dynamic sampling"
    source: ClassVar[str] = "arXiv 2503.14476, section 3.2, Eq 11"

    max_rounds: int = 4

    def __post_init__(self) -> None:
        check_range(1, max_rounds=self.max_rounds)


PART = DynamicSampling
