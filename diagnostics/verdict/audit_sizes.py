"""Sizes of audits, what they cost, and the smallest that would find a loss. Nothing is read here."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from diagnostics.verdict.power import BaseRates, Design, power, window_size
from diagnostics.verdict.record import Remedy

#: Problem sets of so many times the set's own size, where that is no more than ``MOST_PROBLEMS``.
PROBLEM_MULTIPLES, MOST_PROBLEMS = (1, 2, 4, 8), 20_000
#: Samples per problem and checkpoint; the base has twice as many.
SAMPLES = (64, 256, 1024)
#: Simulated audits per design where the power need not be known well.
COARSE_RUNS = 100


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

    ``n`` and ``n_base`` are the samples per problem of one checkpoint and of the base in that audit. ``drop`` is a
    probability; ``k`` by default half of the less of the two. The audit in hand itself is an answer: then such a fall
    would most likely have been found. Coarser and faster than ``plan``: at most ``COARSE_RUNS`` simulated audits a
    size, and none after the first that is enough. None where no size of the grid has the wanted power, the drop is more
    than these problems can lose, or there is no problem or no checkpoint.
    """
    if not len(base_correct_P) or n_checkpoints < 1:
        return None
    rates = BaseRates.of(base_correct_P, np.full(len(base_correct_P), n_base))
    loss = rates.loss(fall=drop, k=k or max(1, min(n, n_base) // 2))
    if loss is None:
        return None
    samples = [(n, n_base), *((more, max(2 * more, n_base)) for more in SAMPLES if more > n)]
    designs = [
        audit_design(n_problems, used_n, n_checkpoints, n_base=used_n_base)
        for n_problems in problem_numbers(len(base_correct_P))
        for used_n, used_n_base in samples
    ]
    for design in sorted(designs, key=lambda design: samples_drawn(design, n_checkpoints)):
        if power(rates, loss, design, wanted=wanted, runs=COARSE_RUNS, rng=rng).share >= wanted:
            return Remedy(
                drop=drop,
                n_problems=design.n_problems,
                n=design.n,
                n_base=design.n_base,
                tokens=sampled_tokens(design, tokens_per_sample, n_checkpoints),
            )
    return None


def problem_numbers(own: int) -> list[int]:
    """Sizes of the problem set that are considered for ``own`` problems, ascending.

    >>> problem_numbers(3_000)
    [3000, 6000, 12000]
    """
    return [times * own for times in PROBLEM_MULTIPLES if times == 1 or times * own <= MOST_PROBLEMS]


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
