"""Power and cost of audits of several sizes, and the cheapest audit that finds a loss. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.verdict.counts import window_size
from oversharp.diagnostics.verdict.losses import Law, Loss
from oversharp.diagnostics.verdict.power import BaseRates, Design, Power, power
from oversharp.diagnostics.verdict.results import Remedy

#: Sizes of problem sets as multiples of the current number of problems, up to ``MOST_PROBLEMS`` problems.
PROBLEM_MULTIPLES, MOST_PROBLEMS = (1, 2, 4, 8), 20_000
#: Multiples in ``settle``. They are larger, because inference from a dozen problems needs many times as many.
SETTLING_MULTIPLES = (1, 2, 4, 8, 16, 32)
#: Samples per problem and checkpoint; the base has twice as many.
SAMPLES = (64, 256, 1024)
#: Simulated audits per design of ``settle``, where a rough power is enough.
COARSE_RUNS = 100
#: Largest number of simulated audits per design and loss. It gives a power of 80 % a standard error of 2 points. Fewer
#: are simulated if the power is significantly above or below the wanted one and its 95 % interval is within
#: ``KNOWN_TO``.
RUNS, KNOWN_TO = 400, 0.1
_SEED = 20_260_101


@dataclass(frozen=True, kw_only=True)
class LawPower:
    """Power for one kind of loss, with its 95 % interval.

    ``runs`` is 0 where the power was not simulated, because fewer problems already found the loss every time.
    """

    law: Law
    power: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """One size of an audit: its power, and the number of its samples and tokens.

    ``power`` is the smallest of those in ``by_law``, one per planted loss. pass@k is compared at k up to ``k_most``.
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
    """Power of audits of several sizes against ``losses``, and their cost.

    ``tokens_per_sample`` is None if unknown.
    """

    rates: BaseRates
    losses: Sequence[Loss]
    wanted: float
    tokens_per_sample: float | None

    def grid(self, n: int, n_checkpoints: int) -> list[PlannedAudit]:
        """Return audits with ``n`` and ``SAMPLES`` samples, for multiples of the number of problems.

        They are sorted by samples, then by problems.
        """
        audits: list[PlannedAudit] = []
        numbers = problem_numbers(self.rates.n_problems)
        for used_n in sorted({*SAMPLES, n}):
            certain: dict[Law, Power] = {}
            designs = [audit_design(n_problems, used_n, n_checkpoints) for n_problems in numbers]
            audits.extend(self.planned(design, n_checkpoints, certain) for design in designs)
        return audits

    def planned(self, design: Design, n_checkpoints: int, certain: dict[Law, Power] | None = None) -> PlannedAudit:
        """Return the power and cost of one size.

        ``certain`` contains the kinds of loss that a smaller audit found every time. Kinds that this audit finds every
        time are added to it.
        """
        by_law = tuple(self._by_law(loss, design, {} if certain is None else certain) for loss in self.losses)
        return PlannedAudit(
            n_problems=design.n_problems,
            n=design.n,
            n_base=design.n_base,
            k_most=inference_ks(min(design.n, design.n_base))[-1],
            samples=samples_drawn(design, n_checkpoints),
            tokens=sampled_tokens(design, self.tokens_per_sample, n_checkpoints),
            power=min(row.power for row in by_law),
            by_law=by_law,
        )

    def _by_law(self, loss: Loss, design: Design, certain: dict[Law, Power]) -> LawPower:
        known = certain.get(loss.law)
        # one generator per number of problems: results do not depend on other requests, nor the problems on n
        rng = np.random.default_rng([_SEED, design.n_problems])
        estimate = known or power(
            self.rates,
            loss,
            design,
            wanted=self.wanted,
            runs=RUNS,
            known_to=KNOWN_TO,
            rng=rng,
        )
        if estimate.found == estimate.runs:
            certain[loss.law] = estimate
        low, high = estimate.interval()
        return LawPower(
            law=loss.law,
            power=estimate.share,
            low=low,
            high=high,
            runs=0 if known else estimate.runs,
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
    drawn_P: Int[np.ndarray, " problem"] | None = None,
    wanted: float = 0.8,
) -> Remedy | None:
    """Return the cheapest audit that finds a fall of pass@``k`` by ``drop`` with the power ``wanted``.

    It has this power for a diffuse and for a concentrated loss, unless such a loss cannot take that much. It is at
    least as large as the given audit. If it is the given audit, that audit would probably have found such a fall.

    The search is coarser and faster than ``plan``: at most ``COARSE_RUNS`` simulated audits per size, and none after
    the first size that is enough. None if no size of the grid is enough, these problems cannot lose that much, or there
    is no problem or no checkpoint.

    Args:
        base_correct_P: Correct samples of the base.
        n_base: Samples per problem of the base in the given audit.
        n: Samples per problem of one checkpoint in the given audit.
        drop: Fall of pass@``k``, a probability.
        tokens_per_sample: Mean length of samples; None if unknown.
        n_checkpoints: Number of trained checkpoints.
        rng: Source of randomness.
        k: Half of the smaller of ``n`` and ``n_base`` by default.
        drawn_P: Samples of the base of every problem, if a stopping rule with the cap ``n_base`` determined them.
        wanted: Required power.
    """
    if not len(base_correct_P) or n_checkpoints < 1:
        return None
    rates = BaseRates.of(base_correct_P, np.full(len(base_correct_P), n_base) if drawn_P is None else drawn_P)
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
        powers = (power(rates, loss, design, wanted=wanted, runs=COARSE_RUNS, rng=rng) for loss in losses)
        if all(estimate.share >= wanted for estimate in powers):
            return Remedy(
                drop=drop,
                n_problems=design.n_problems,
                n=design.n,
                n_base=design.n_base,
                tokens=sampled_tokens(design, tokens_per_sample, n_checkpoints),
            )
    return None


def problem_numbers(own: int, multiples: Sequence[int] | None = None) -> list[int]:
    """Return the sizes of problem sets to simulate, ascending: multiples of ``own`` problems.

    The multiples are ``PROBLEM_MULTIPLES`` by default.

    >>> problem_numbers(3_000)
    [3000, 6000, 12000]
    """
    return [times * own for times in multiples or PROBLEM_MULTIPLES if times == 1 or times * own <= MOST_PROBLEMS]


def audit_design(n_problems: int, n: int, n_checkpoints: int, *, n_base: int | None = None) -> Design:
    """Return an audit of ``n_checkpoints`` trained checkpoints. The base has twice the samples by default."""
    return Design(
        n_problems=n_problems,
        n=n,
        n_base=2 * n if n_base is None else n_base,
        n_late=window_size(n_checkpoints) * n,
    )


def samples_drawn(design: Design, n_checkpoints: int) -> int:
    """Return the number of samples of such an audit."""
    return design.n_problems * (design.n * n_checkpoints + design.n_base)


def sampled_tokens(design: Design, tokens_per_sample: float | None, n_checkpoints: int) -> float | None:
    """Return the number of sampled tokens; None if the length of samples is unknown."""
    return None if tokens_per_sample is None else tokens_per_sample * samples_drawn(design, n_checkpoints)
