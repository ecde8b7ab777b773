"""Sizes of audits, what they cost, and the smallest that would find a loss. Nothing is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.verdict.losses import Law, Loss
from oversharp.diagnostics.verdict.power import BaseRates, Design, Power, power, window_size
from oversharp.diagnostics.verdict.record import Remedy

#: Problem sets of so many times the set's own size, where that is no more than ``MOST_PROBLEMS``.
PROBLEM_MULTIPLES, MOST_PROBLEMS = (1, 2, 4, 8), 20_000
#: ``settle`` goes further, for a dozen problems need many times as many before anything is said of others.
SETTLING_MULTIPLES = (1, 2, 4, 8, 16, 32)
#: Samples per problem and checkpoint; the base has twice as many.
SAMPLES = (64, 256, 1024)
#: Simulated audits per design of ``settle``, where the power need not be known well.
COARSE_RUNS = 100
#: Simulated audits per design and loss; a power near what is wanted is then known to 2 points (one standard error).
#: One that is plainly above or below takes fewer, until it is known to so much (95 %): sizes can still be compared.
RUNS, KNOWN_TO = 400, 0.1
_SEED = 20_260_101


@dataclass(frozen=True, kw_only=True)
class LawPower:
    """Power for one loss, with its 95 % interval.

    ``runs`` is 0 where the power was not simulated: fewer problems found the loss every time already.
    """

    law: Law
    power: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """One size of an audit: its power, and all the samples and tokens that would be drawn for it.

    ``power`` is the less of those in ``by_law``, a planted loss each. pass@k is compared at k up to ``k_most``.
    """

    n_problems: int
    n: int
    n_base: int
    k_most: int
    samples: int
    tokens: float | None
    power: float
    by_law: tuple[LawPower, ...]

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class AuditSizes:
    """What audits of several sizes are worth against ``losses``, and what they cost.

    ``tokens_per_sample`` is None where nobody knows it.
    """

    rates: BaseRates
    losses: Sequence[Loss]
    wanted: float
    tokens_per_sample: float | None

    def grid(self, n: int, n_checkpoints: int) -> list[PlannedAudit]:
        """``n`` and ``SAMPLES`` of multiples of the own problems: by samples, then by problems, in ascending order."""
        audits: list[PlannedAudit] = []
        numbers = problem_numbers(self.rates.n_problems)
        for used_n in sorted({*SAMPLES, n}):
            certain: dict[Law, Power] = {}
            designs = [audit_design(n_problems, used_n, n_checkpoints) for n_problems in numbers]
            audits.extend(self.planned(design, n_checkpoints, certain) for design in designs)
        return audits

    def planned(self, design: Design, n_checkpoints: int, certain: dict[Law, Power] | None = None) -> PlannedAudit:
        """One size. ``certain``: the laws that a smaller audit found every time; those that this one does are added."""
        by_law = tuple(self._by_law(loss, design, {} if certain is None else certain) for loss in self.losses)
        return PlannedAudit(
            n_problems=design.n_problems,
            n=design.n,
            n_base=design.n_base,
            k_most=inference_ks(min(design.n, design.n_base))[-1],
            samples=samples_drawn(design, n_checkpoints),
            tokens=sampled_tokens(design, self.tokens_per_sample, n_checkpoints),
            power=min(one.power for one in by_law),
            by_law=by_law,
        )

    def _by_law(self, loss: Loss, design: Design, certain: dict[Law, Power]) -> LawPower:
        known = certain.get(loss.law)
        # a number of problems' own generator: the same power whatever else is asked for, the same problems for every n
        rng = np.random.default_rng([_SEED, design.n_problems])
        found = known or power(
            self.rates,
            loss,
            design,
            wanted=self.wanted,
            runs=RUNS,
            known_to=KNOWN_TO,
            rng=rng,
        )
        if found.found == found.runs:
            certain[loss.law] = found
        low, high = found.interval()
        return LawPower(
            law=loss.law,
            power=found.share,
            low=low,
            high=high,
            runs=0 if known else found.runs,
        )


def settle(
    base_correct_P: Int[np.ndarray, " problem"],
    n_base: int,
    *,
    n: int,
    drop: float,
    tokens_per_sample: float | None,
    n_checkpoints: int,
    rng: np.random.Generator,
    k: int | None = None,
    wanted: float = 0.8,
) -> Remedy | None:
    """The cheapest audit, no smaller than the one in hand, that finds a fall of pass@``k`` by ``drop``.

    It finds a diffuse loss and a concentrated one with the wanted power each, as far as they can take that much.

    ``n`` and ``n_base`` are the samples per problem of one checkpoint and of the base in that audit. ``drop`` is a
    probability; ``k`` by default half of the less of the two. The audit in hand itself is an answer: then such a fall
    would most likely have been found. Coarser and faster than ``plan``: at most ``COARSE_RUNS`` simulated audits a
    size, and none after the first that is enough. None where no size of the grid has the wanted power, the drop is more
    than these problems can lose, or there is no problem or no checkpoint.
    """
    if not len(base_correct_P) or n_checkpoints < 1:
        return None
    rates = BaseRates.of(base_correct_P, np.full(len(base_correct_P), n_base))
    losses = rates.losses(fall=drop, k=k or max(1, min(n, n_base) // 2))
    if not losses:
        return None
    samples = [(n, n_base), *((more, max(2 * more, n_base)) for more in SAMPLES if more > n)]
    designs = [
        audit_design(n_problems, used_n, n_checkpoints, n_base=used_n_base)
        for n_problems in problem_numbers(len(base_correct_P), SETTLING_MULTIPLES)
        for used_n, used_n_base in samples
    ]
    for design in sorted(designs, key=lambda design: samples_drawn(design, n_checkpoints)):
        found = (power(rates, loss, design, wanted=wanted, runs=COARSE_RUNS, rng=rng) for loss in losses)
        if all(one.share >= wanted for one in found):
            return Remedy(
                drop=drop,
                n_problems=design.n_problems,
                n=design.n,
                n_base=design.n_base,
                tokens=sampled_tokens(design, tokens_per_sample, n_checkpoints),
            )
    return None


def problem_numbers(own: int, multiples: Sequence[int] | None = None) -> list[int]:
    """Sizes of the problem set that are considered for ``own`` problems, ascending; ``PROBLEM_MULTIPLES`` by default.

    >>> problem_numbers(3_000)
    [3000, 6000, 12000]
    """
    return [times * own for times in multiples or PROBLEM_MULTIPLES if times == 1 or times * own <= MOST_PROBLEMS]


def audit_design(n_problems: int, n: int, n_checkpoints: int, *, n_base: int | None = None) -> Design:
    """An audit of so many trained checkpoints; the base has twice their samples unless ``n_base`` says another."""
    return Design(
        n_problems=n_problems,
        n=n,
        n_base=2 * n if n_base is None else n_base,
        n_late=window_size(n_checkpoints) * n,
    )


def samples_drawn(design: Design, n_checkpoints: int) -> int:
    """All the samples that such an audit draws."""
    return design.n_problems * (design.n * n_checkpoints + design.n_base)


def sampled_tokens(design: Design, tokens_per_sample: float | None, n_checkpoints: int) -> float | None:
    """All the tokens that such an audit samples; None where nobody knows how long a sample is."""
    return None if tokens_per_sample is None else tokens_per_sample * samples_drawn(design, n_checkpoints)
