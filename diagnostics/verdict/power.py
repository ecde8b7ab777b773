"""How likely an audit of a given size finds a given loss: what ``plan`` is made of.

The base's success rates are known from counts alone, so a population of problems is drawn from their posterior; a
loss of a named size is planted in it; the rule's two keys look at simulated counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq, minimize
from scipy.special import betaln, expit, logit
from scipy.stats import beta as beta_distribution

from diagnostics.statistics.keys import PairedCounts, exact_key, inference_ks, population_key
from diagnostics.verdict.rule import KEY_LEVEL

#: Winner-take-all expansion: after a rise of ``LIFT`` log-odds move away from a pivot, with a scatter from problem to
#: problem. It is the loss that the rule was calibrated with.
LIFT, SCATTER, MOST_LOG_ODDS = 0.6, 0.3, 8.0
#: Where the pivot lies: problems below it hold this share of the base's pass@k. The first with which the named fall is
#: possible is taken, so that as few problems as possible lose. Training makes some problems impossible in every set:
#: a pivot at one fixed rate would leave sets without hard problems with nothing to lose.
_PIVOT_SHARES = (0.25, 0.5, 0.75, 0.95)
#: Where expectations are summed up: quantiles of each posterior, and nodes of the scatter.
_QUANTILES, _NODES = 32, 7
#: Where the strength of a loss is looked for before it is solved for: the fall may rise and sink again.
_STRENGTHS = np.concatenate([np.linspace(0.0, 4.0, 33), np.geomspace(5.0, 100.0, 8)])
#: A short look at the exact key suffices where its p value lies outside these.
_SHORT_DRAWS, _SURELY_BELOW, _SURELY_ABOVE = 99, 0.01, 0.15
#: Runs after which it is asked whether the power is surely above or below what is wanted, and how sure that is.
_RUNS_AT_ONCE, _SURE_Z = 20, 2.2


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A winner-take-all expansion: log-odds move away from those of ``pivot`` (a success rate), ``strength`` times.

    Strength 0 is training that helps, and loses nothing but by scatter.
    """

    pivot: float
    strength: float

    def late(
        self, rate_P: Float[np.ndarray, "*problem"], scatter_P: Float[np.ndarray, "*problem"]
    ) -> Float[np.ndarray, "*problem"]:
        """Success rates after the loss: the frequent become more frequent, the rare rarer.

        ``scatter_P`` are standard normal numbers.

        >>> Loss(pivot=0.025, strength=1.0).late(np.array([0.001, 0.3]), np.zeros(2)).round(5).tolist()
        [7e-05, 0.92884]
        """
        log_odds_P = logit(np.clip(rate_P, 1e-12, 1 - 1e-12))
        pivot = logit(np.clip(self.pivot, 1e-12, 1 - 1e-12))
        moved_P = log_odds_P + LIFT + self.strength * (log_odds_P - pivot) + SCATTER * scatter_P
        return np.asarray(expit(np.minimum(moved_P, MOST_LOG_ODDS)))


@dataclass(frozen=True, kw_only=True)
class BaseRates:
    """Success rate of every problem of the base: a Beta posterior each, ``a_P`` and ``b_P``.

    The raw share c / n will not do: a problem that was solved in none of its samples would have the rate 0 for good,
    could neither be lost nor gained, and a problem that was always solved could not fail; both are frequent, and
    pass@k at large k is all about the small rates between. The prior is one Beta for all problems, of the greatest
    marginal likelihood (empirical Bayes), so it is these problems that say how close to 0 the unsolved ones lie.
    """

    a_P: Float[np.ndarray, " problem"]
    b_P: Float[np.ndarray, " problem"]

    @classmethod
    def of(cls, correct_P: Int[np.ndarray, " problem"], n_P: Int[np.ndarray, " problem"]) -> BaseRates:
        """The posterior after ``correct_P`` of ``n_P`` samples. Raises ``ValueError`` without a problem.

        >>> rates = BaseRates.of(np.array([0, 0, 3, 20, 64]), np.full(5, 64))
        >>> (rates.a_P / (rates.a_P + rates.b_P)).round(3).tolist()
        [0.002, 0.002, 0.048, 0.313, 0.997]
        """
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
        """Problems that the rates were learned from."""
        return len(self.a_P)

    def pass_at_k(self, k: int) -> float:
        """Expected pass@k of the base, a probability."""
        rate_Q, weight_Q = self._points()
        return float((weight_Q * _pass(rate_Q, k)).sum())

    def changes(self, loss: Loss, ks: Sequence[int]) -> tuple[float, ...]:
        """Expected change of pass@k under ``loss`` at each of ``ks``, a probability; below 0 where it falls.

        >>> rates = BaseRates.of(np.array([0, 0, 1, 3, 20, 50, 64]), np.full(7, 64))
        >>> [round(change, 3) for change in rates.changes(Loss(pivot=0.1, strength=1.0), [1, 32])]
        [0.093, -0.054]
        """
        rate_Q, weight_Q = self._points()
        return tuple(-_fall(rate_Q, weight_Q, k, loss) for k in ks)

    def loss(self, *, fall: float, k: int) -> Loss | None:
        """A loss that takes ``fall`` (probability) from pass@``k`` in expectation; None if that is nearly all there is.

        Solved on the exact probabilities of the posterior, without a random draw.
        """
        rate_Q, weight_Q = self._points()
        held_Q = weight_Q * _pass(rate_Q, k)
        order_Q = np.argsort(rate_Q, kind="stable")
        share_Q = np.cumsum(held_Q[order_Q]) / held_Q.sum()
        for share in _PIVOT_SHARES:
            pivot = float(rate_Q[order_Q][np.searchsorted(share_Q, share)])

            def missing(strength: float, pivot: float = pivot) -> float:
                return _fall(rate_Q, weight_Q, k, Loss(pivot=pivot, strength=strength)) - fall

            first = next((i for i, strength in enumerate(_STRENGTHS) if missing(strength) >= 0), None)
            if first is not None:
                strength = brentq(missing, _STRENGTHS[first - 1], _STRENGTHS[first], xtol=1e-4) if first else 0.0
                return Loss(pivot=pivot, strength=float(strength))
        return None

    def draw(self, n_problems: int, rng: np.random.Generator) -> Float[np.ndarray, " problem"]:
        """Rates of ``n_problems`` problems like these: drawn with replacement, each rate from its posterior."""
        chosen_P = rng.integers(self.n_problems, size=n_problems)
        return rng.beta(self.a_P[chosen_P], self.b_P[chosen_P])

    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """The population as rates with weights that add up to 1."""
        ab_U2, times_U = np.unique(np.stack([self.a_P, self.b_P], axis=1), axis=0, return_counts=True)
        level_Q = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        rate_UQ = np.asarray(beta_distribution.ppf(level_Q[None], ab_U2[:, :1], ab_U2[:, 1:]))
        weight_UQ = np.repeat(times_U[:, None] / times_U.sum() / _QUANTILES, _QUANTILES, axis=1)
        return rate_UQ.ravel(), weight_UQ.ravel()


@dataclass(frozen=True, kw_only=True)
class Design:
    """The size of an audit: problems, and samples of each from the base and from all late checkpoints together.

    ``n`` are the samples from one checkpoint; the rule looks at pass@k for k up to n / 2.
    """

    n_problems: int
    n: int
    n_base: int
    n_late: int


@dataclass(frozen=True, kw_only=True)
class Power:
    """In how many of ``runs`` simulated audits the loss was found."""

    found: int
    runs: int

    @property
    def share(self) -> float:
        """The power, a probability."""
        return self.found / self.runs

    def interval(self, z: float = 1.959964) -> tuple[float, float]:
        """Wilson's interval of the power, 95 % unless ``z`` says otherwise.

        >>> [round(bound, 3) for bound in Power(found=120, runs=150).interval()]
        [0.729, 0.856]
        """
        centre = self.share + z * z / (2 * self.runs)
        half = z * math.sqrt(self.share * (1 - self.share) / self.runs + z * z / (4 * self.runs**2))
        scale = 1 + z * z / self.runs
        return (centre - half) / scale, (centre + half) / scale


def window_size(n_checkpoints: int) -> int:
    """How many late checkpoints are pooled: a third of the trained ones, at least one.

    >>> window_size(1), window_size(8), window_size(9)
    (1, 3, 3)
    """
    return max(1, round(n_checkpoints / 3))


def power(rates: BaseRates, loss: Loss, design: Design, *, wanted: float, runs: int, rng: np.random.Generator) -> Power:
    """How often both keys find ``loss`` in an audit of ``design``: the label over_sharpened.

    At most ``runs`` audits are simulated; fewer where the power is surely above or below ``wanted``.
    """
    ks = inference_ks(min(design.n, design.n_base))
    found = done = 0
    while done < runs:
        for _ in range(min(_RUNS_AT_ONCE, runs - done)):
            rate_P = rates.draw(design.n_problems, rng)
            late_P = loss.late(rate_P, rng.normal(size=design.n_problems))
            counts = PairedCounts(
                base_P=rng.binomial(design.n_base, rate_P),
                late_P=rng.binomial(design.n_late, late_P),
                n_base=design.n_base,
                n_late=design.n_late,
            )
            found += _both_keys(counts, ks, rng)
            done += 1
        low, high = Power(found=found, runs=done).interval(_SURE_Z)
        if not low <= wanted <= high:
            break
    return Power(found=found, runs=done)


def _both_keys(counts: PairedCounts, ks: Sequence[int], rng: np.random.Generator) -> bool:
    """Whether both keys are at their level; the cheap one is asked first, the other only as long as it is needed."""
    if population_key(counts, ks=ks, rng=rng) > KEY_LEVEL:
        return False
    short = exact_key(counts, ks=ks, rng=rng, draws=_SHORT_DRAWS)
    if _SURELY_BELOW < short <= _SURELY_ABOVE:
        return exact_key(counts, ks=ks, rng=rng) <= KEY_LEVEL
    return short <= KEY_LEVEL


def _pass(rate_Q: np.ndarray, k: int) -> np.ndarray:
    return -np.expm1(k * np.log1p(-np.minimum(rate_Q, 1 - 1e-12)))


def _fall(rate_Q: np.ndarray, weight_Q: np.ndarray, k: int, loss: Loss) -> float:
    """How much of pass@k a loss takes in expectation over problems and scatter."""
    node_N, share_N = hermegauss(_NODES)
    late_QN = loss.late(rate_Q[:, None], node_N[None])
    return float(weight_Q @ (_pass(rate_Q, k) - _pass(late_QN, k) @ (share_N / share_N.sum())))
