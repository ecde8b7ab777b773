"""Power of an audit of a given size to detect a given loss, for ``plan``.

Problems are sampled from the posterior of the base's success rates. A loss of a given size is planted in them, and the
verdict's exact and population tests are applied to simulated counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincinv, betaln

from oversharp.diagnostics.statistics.keys import EXACT_DRAWS, PairedCounts, exact_key, inference_ks, population_key
from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule
from oversharp.diagnostics.verdict.causes.guesses import guessing_p
from oversharp.diagnostics.verdict.counts import FEW_PROBLEMS
from oversharp.diagnostics.verdict.losses import (
    ConcentratedLoss,
    Loss,
    concentrated_loss,
    diffuse_loss,
    fall_of,
    pass_at_k,
)
from oversharp.diagnostics.verdict.rule import KEY_LEVEL

#: Number of quantiles of each posterior, for expectations.
_QUANTILES = 32
#: Draws of a short test. It is enough if its p value is below the first or above the second bound.
_SHORT_DRAWS, _SURELY_BELOW, _SURELY_ABOVE = 99, 0.01, 0.15
#: Simulated audits between two tests whether the power differs from the wanted one. Critical z of these tests.
_RUNS_AT_ONCE, _SURE_Z = 20, 2.2


@dataclass(frozen=True, kw_only=True)
class BaseRates:
    """Beta posteriors of the base's success rate on every problem, ``a_P`` and ``b_P``.

    The raw share c / n is not usable: it is 0 or 1 on many problems, and pass@k at large k depends on small rates. A
    problem with rate 0 could be neither lost nor gained, and one with rate 1 could not fail. The prior is one Beta
    distribution for all problems, with the largest marginal likelihood (empirical Bayes). So the rates of unsolved
    problems are estimated from all problems.
    """

    a_P: Float[np.ndarray, " problem"]
    b_P: Float[np.ndarray, " problem"]

    @classmethod
    def of(cls, correct_P: Int[np.ndarray, " problem"], n_P: Int[np.ndarray, " problem"]) -> BaseRates:
        """Return the posterior after ``correct_P`` of ``n_P`` samples.

        Raises ``ValueError`` without a problem.

        >>> rates = BaseRates.of(np.array([0, 0, 3, 20, 64]), np.full(5, 64))
        >>> (rates.a_P / (rates.a_P + rates.b_P)).round(3).tolist()
        [0.002, 0.002, 0.048, 0.313, 0.997]
        """
        from scipy.optimize import minimize  # slow to import

        if not len(correct_P):
            raise ValueError("no problem to learn from")
        pair_U2, times_U = np.unique(np.stack([correct_P, n_P], axis=1), axis=0, return_counts=True)
        hit_U, miss_U = pair_U2[:, 0], pair_U2[:, 1] - pair_U2[:, 0]

        def cost(log_ab: np.ndarray) -> float:
            a, b = np.exp(log_ab)
            return -float((times_U * (betaln(a + hit_U, b + miss_U) - betaln(a, b))).sum())

        fit = minimize(cost, [-0.7, 0.0], method="L-BFGS-B", bounds=[(-5.0, 7.0)] * 2)
        a, b = np.exp(fit.x)
        return cls(a_P=a + correct_P, b_P=b + (n_P - correct_P))

    @property
    def n_problems(self) -> int:
        """Number of problems with an estimated rate."""
        return len(self.a_P)

    def pass_at_k(self, k: int) -> float:
        """Return expected pass@k of the base, a probability."""
        rate_Q, weight_Q = self._points
        return float((weight_Q * pass_at_k(rate_Q, k)).sum())

    def changes(self, loss: Loss, ks: Sequence[int]) -> tuple[float, ...]:
        """Return the expected change of pass@k under ``loss`` at each of ``ks``.

        The change is a probability, below 0 if pass@k falls.

        >>> rates = BaseRates.of(np.array([0, 0, 1, 3, 20, 50, 64]), np.full(7, 64))
        >>> [[round(change, 3) for change in rates.changes(loss, [1, 32])] for loss in rates.losses(fall=0.1, k=32)]
        [[0.131, -0.1], [-0.049, -0.1]]
        """
        rate_Q, weight_Q = self._points
        return tuple(-fall_of(loss, rate_Q, weight_Q, k) for k in ks)

    def losses(self, *, fall: float, k: int) -> tuple[Loss, ...]:
        """Return a diffuse and a concentrated loss that take ``fall`` from expected pass@``k``.

        ``fall`` is a probability. A kind of loss that cannot take that much is omitted. The expectation is over the
        posterior, without random draws.
        """
        rate_Q, weight_Q = self._points
        both = (solve(rate_Q, weight_Q, fall=fall, k=k) for solve in (diffuse_loss, concentrated_loss))
        return tuple(loss for loss in both if loss is not None)

    def posterior_mean(
        self, value_of: Callable[[Float[np.ndarray, " rate"]], Float[np.ndarray, " rate"]]
    ) -> Float[np.ndarray, " problem"]:
        """Return the posterior mean of a function of the success rate, for each problem.

        >>> rates = BaseRates.of(np.array([0, 8, 64]), np.full(3, 64))
        >>> rule = StoppingRule.doubling(first=16, cap=64, enough=4)
        >>> rates.posterior_mean(rule.expected_samples).round(1).tolist()
        [64.0, 44.0, 16.0]
        """
        rate_UQ, of_P = self._quantiles
        return value_of(rate_UQ.ravel()).reshape(rate_UQ.shape).mean(axis=1)[of_P]

    def share_lost(self, loss: ConcentratedLoss) -> float:
        """Return the expected share of problems that are never solved again."""
        rate_Q, weight_Q = self._points
        return float(loss.share * weight_Q[rate_Q >= loss.least_rate].sum())

    def draw(self, n_problems: int, rng: np.random.Generator) -> Float[np.ndarray, " problem"]:
        """Sample rates of ``n_problems`` problems from the population.

        Problems are drawn with replacement, each rate from its posterior.
        """
        chosen_P = rng.integers(self.n_problems, size=n_problems)
        return rng.beta(self.a_P[chosen_P], self.b_P[chosen_P])

    def expected_samples(self, rule: StoppingRule) -> Float[np.ndarray, " problem"]:
        """Return the expected number of samples of each problem from a model with the success rates of the base."""
        if rule not in self._samples_by_rule:
            self._samples_by_rule[rule] = self.posterior_mean(rule.expected_samples)
        return self._samples_by_rule[rule]

    @cached_property
    def _samples_by_rule(self) -> dict[StoppingRule, Float[np.ndarray, " problem"]]:
        return {}

    @cached_property
    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """The population as success rates with weights that sum to 1."""
        rate_UQ, of_P = self._quantiles
        times_U = np.bincount(of_P)
        weight_UQ = np.repeat(times_U[:, None] / times_U.sum() / _QUANTILES, _QUANTILES, axis=1)
        return rate_UQ.ravel(), weight_UQ.ravel()

    @cached_property
    def _quantiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Quantiles of each different posterior, and the row of each problem in them."""
        ab_U2, of_P = np.unique(np.stack([self.a_P, self.b_P], axis=1), axis=0, return_inverse=True)
        level_Q = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        rate_UQ = np.asarray(betaincinv(ab_U2[:, :1], ab_U2[:, 1:], level_Q[None]))
        return rate_UQ, of_P.ravel()


@dataclass(frozen=True, kw_only=True)
class Design:
    """Size of an audit: number of problems, and of samples per problem.

    ``n`` is for one checkpoint, ``n_base`` for the base, and ``n_late`` for all late checkpoints together. pass@k is
    tested at k up to n / 2. With ``enough``, these are the largest numbers of samples of a problem: it is drawn in
    rounds of ``first``, 2 ``first``, 4 ``first``, … samples, and stops at a checkpoint after the round that leaves it
    with ``enough`` correct ones.
    """

    n_problems: int
    n: int
    n_base: int
    n_late: int
    first: int | None = None
    enough: int | None = None

    def __post_init__(self) -> None:
        if (self.first is None) != (self.enough is None):
            raise ValueError(f"a stopping rule needs first and enough; got {self.first} and {self.enough}")

    @property
    def window(self) -> int:
        """Number of late checkpoints."""
        return self.n_late // self.n

    @property
    def of_base(self) -> Samples:
        """Samples of a problem from the base."""
        return self._up_to(self.n_base)

    @property
    def of_checkpoint(self) -> Samples:
        """Samples of a problem from one checkpoint."""
        return self._up_to(self.n)

    def _up_to(self, cap: int) -> Samples:
        if self.first is None or self.enough is None:
            return cap
        return StoppingRule.doubling(first=self.first, cap=cap, enough=self.enough)


@dataclass(frozen=True, kw_only=True)
class Power:
    """Number of simulated audits that found the fall, out of ``runs``."""

    found: int
    runs: int

    @property
    def share(self) -> float:
        """The power, a probability."""
        return self.found / self.runs

    @property
    def known_to(self) -> float:
        """Distance from the power to the farther end of its interval, a probability."""
        low, high = self.interval()
        return max(self.share - low, high - self.share)

    def interval(self, z: float = 1.959964) -> tuple[float, float]:
        """Return Wilson's interval of the power, 95 % by default.

        >>> [round(bound, 3) for bound in Power(found=120, runs=150).interval()]
        [0.729, 0.856]
        """
        centre = self.share + z * z / (2 * self.runs)
        half = z * math.sqrt(self.share * (1 - self.share) / self.runs + z * z / (4 * self.runs**2))
        scale = 1 + z * z / self.runs
        return (centre - half) / scale, (centre + half) / scale


def power(
    rates: BaseRates,
    loss: Loss,
    design: Design,
    *,
    wanted: float,
    runs: int,
    rng: np.random.Generator,
    known_to: float = 1.0,
) -> Power:
    """Return how often an audit of ``design`` finds the fall of pass@k under ``loss``.

    A fall is found if the exact and the population test are significant, at the level of a single verdict, and base or
    late samples solved at least ``FEW_PROBLEMS`` problems. The label is then over_sharpened (degraded if pass@1 also
    fell significantly), unless false accepts explain the fall (``guessed``).

    At most ``runs`` audits are simulated. The simulation stops earlier if the power is significantly above or below
    ``wanted`` and its interval is within ``known_to`` (probability) of it. Equal ``rng`` and numbers of problems give
    equal problems and losses at any n.
    """
    ks = inference_ks(min(design.n, design.n_base))
    n_found = 0
    for done, (counts, samples_rng) in enumerate(_audits(rates, loss, design, runs, rng), start=1):
        n_found += _both_keys(counts, ks, samples_rng)
        estimate = Power(found=n_found, runs=done)
        if done % _RUNS_AT_ONCE == 0 and estimate.known_to <= known_to:
            low, high = estimate.interval(_SURE_Z)
            if not low <= wanted <= high:
                break
    return estimate


def guessed(
    rates: BaseRates, loss: Loss, design: Design, *, guess_share: float, runs: int, rng: np.random.Generator
) -> float | None:
    """Return the share of the found falls that get the label *guessing*; None if none is found.

    False accepts of ``guess_share`` of the base's wrong responses would explain these falls. No audit is large enough
    to distinguish success rates below that share from false accepts. A smaller bound on the false-accept rate can.
    """
    ks = inference_ks(min(design.n, design.n_base))
    explained = [
        guess_share > 0 and _is_guess(counts, ks, guess_share, own)
        for counts, own in _audits(rates, loss, design, runs, rng)
        if _both_keys(counts, ks, own)
    ]
    return float(np.mean(explained)) if explained else None


def _audits(
    rates: BaseRates, loss: Loss, design: Design, runs: int, rng: np.random.Generator
) -> Iterator[tuple[PairedCounts, np.random.Generator]]:
    """Yield the counts of ``runs`` simulated audits, each with the random generator for its tests."""
    problems_rng, samples_rng = rng.spawn(2)
    for _ in range(runs):
        rate_P = rates.draw(design.n_problems, problems_rng)
        late_P = loss.late(rate_P, problems_rng)
        yield _draw_counts(design, rate_P, late_P, samples_rng), samples_rng


def _draw_counts(
    design: Design,
    rate_P: Float[np.ndarray, " problem"],
    late_P: Float[np.ndarray, " problem"],
    rng: np.random.Generator,
) -> PairedCounts:
    """Draw the counts of an audit, as the verdict pools them: late samples are summed, or averaged with a rule."""
    base, late = design.of_base, design.of_checkpoint
    if isinstance(base, StoppingRule) and isinstance(late, StoppingRule):
        base_P, *late_TP = (_draw_rounds(*side, rng) for side in ((base, rate_P), *[(late, late_P)] * design.window))
        return PairedCounts(base_P=base_P, late_P=np.stack(late_TP), n_base=base, n_late=late)
    base_P, late_hits_P = rng.binomial(design.n_base, rate_P), rng.binomial(design.n_late, late_P)
    return PairedCounts(base_P=base_P, late_P=late_hits_P, n_base=design.n_base, n_late=design.n_late)


def _draw_rounds(
    rule: StoppingRule, rate_P: Float[np.ndarray, " problem"], rng: np.random.Generator
) -> Int[np.ndarray, " problem"]:
    """Draw the code of the end point of each problem. For one draw, this is faster than ``StoppingRule.draw``."""
    n_R = np.diff(rule.rounds, prepend=0)
    return rule.stop(rng.binomial(n_R[:, None], rate_P).cumsum(axis=0))


def _both_keys(counts: PairedCounts, ks: Sequence[int], rng: np.random.Generator) -> bool:
    """Return whether the exact and the population test are significant. The cheap test is first."""
    if ((counts.base_P > 0) | (counts.late_rows > 0).any(axis=0)).sum() < FEW_PROBLEMS:
        return False
    if population_key(counts, ks=ks, rng=rng) > KEY_LEVEL:
        return False
    return _rejects(lambda draws: exact_key(counts, ks=ks, rng=rng, draws=draws))


def _is_guess(counts: PairedCounts, ks: Sequence[int], share: float, rng: np.random.Generator) -> bool:
    return guessing_p(counts, share=share, ks=ks, rng=rng, level=KEY_LEVEL) > KEY_LEVEL


def _rejects(p_of: Callable[[int], float]) -> bool:
    """Return whether a p value is at most the level of the tests.

    ``p_of`` takes the number of draws. A short test with few draws is made first.
    """
    short = p_of(_SHORT_DRAWS)
    if _SURELY_BELOW < short <= _SURELY_ABOVE:
        return p_of(EXACT_DRAWS) <= KEY_LEVEL
    return short <= KEY_LEVEL
