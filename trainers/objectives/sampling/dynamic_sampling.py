"""Dynamic sampling: prompts whose rollouts all earn the same reward are replaced by further prompts.

A group of equal rewards teaches nothing; a batch that holds many has a smaller and noisier gradient. Further prompts
of the data are drawn until enough groups are mixed, at most ``max_rounds`` times a step; what is missing then is filled
with groups of equal rewards. Costs up to ``max_rounds`` times the rollouts. Prompts that are always or never solved
leave the batch, and with them every penalty on their samples.

Source: DAPO (arXiv 2503.14476), section 3.2, Eq 11. DAPO has no limit of rounds; verl's is ``max_num_gen_batches``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import PartDefaults, check_range


@dataclass(frozen=True, kw_only=True)
class DynamicSampling(PartDefaults):
    """Fill the batch with mixed groups. ``max_rounds`` counts the first draw too.

    >>> DynamicSampling().max_rounds
    4
    """

    title: ClassVar[str] = "dynamic sampling"
    source: ClassVar[str] = "arXiv 2503.14476, section 3.2, Eq 11"

    max_rounds: int = 4

    def __post_init__(self) -> None:
        check_range(1, max_rounds=self.max_rounds)


PART = DynamicSampling
