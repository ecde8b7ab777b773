"""Two simulated kinds of loss with the same fall of pass@k: on many problems, or on a few."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, logit

Law = Literal["diffuse", "concentrated"]

#: Rise of the log-odds of a problem without a loss, its standard deviation between problems, and the upper limit of
#: log-odds. The rule was calibrated with the same rise.
LIFT, SCATTER, MOST_LOG_ODDS = 0.6, 0.3, 8.0
#: Possible shares of the base's pass@k from problems below the pivot of a diffuse loss. The first share that allows the
#: requested fall is used, so the number of losing problems is as small as possible. With one fixed success rate as
#: pivot, sets without hard problems could lose nothing.
_PIVOT_SHARES = (0.25, 0.5, 0.75, 0.95)
#: A concentrated loss hits problems that k samples solve with at least this probability.
_WITHIN_REACH = 0.5
#: Quadrature nodes of the scatter, for expectations.
_NODES = 7
#: Grid that brackets the strength of a diffuse loss before root finding, because the fall is not monotone in it.
_STRENGTHS = np.concatenate([np.linspace(0.0, 4.0, 33), np.geomspace(5.0, 100.0, 8)])


class Loss(Protocol):
    """Change of success rates by training, for simulations."""

    law: ClassVar[Law]

    def late(self, rate_P: Float[np.ndarray, " problem"], rng: np.random.Generator) -> Float[np.ndarray, " problem"]:
        """Return success rates after the loss, drawn at random."""

    def late_pass_at_k(self, rate_Q: Float[np.ndarray, " point"], k: int) -> Float[np.ndarray, " point"]:
        """Return expected pass@``k`` after the loss, for problems with rates ``rate_Q`` before it."""


@dataclass(frozen=True, kw_only=True)
class DiffuseLoss:
    """Diffuse loss (winner-take-all): log-odds move away from those of ``pivot``, a success rate.

    The distance is multiplied by ``strength``. Problems that are solved more often than the pivot gain, others lose. At
    strength 0 all problems rise, except for random scatter.

    >>> DiffuseLoss(pivot=0.025, strength=1.0).moved(np.array([0.001, 0.3]), 0.0).round(5).tolist()
    [7e-05, 0.92884]
    """

    pivot: float
    strength: float
    law: ClassVar[Law] = "diffuse"

    def late(self, rate_P: Float[np.ndarray, " problem"], rng: np.random.Generator) -> Float[np.ndarray, " problem"]:
        """Return success rates after the loss, drawn at random."""
        return self.moved(rate_P, rng.normal(size=len(rate_P)))

    def late_pass_at_k(self, rate_Q: Float[np.ndarray, " point"], k: int) -> Float[np.ndarray, " point"]:
        """Return expected pass@``k`` after the loss, for problems with rates ``rate_Q`` before it."""
        node_N, share_N = _scatter()
        return pass_at_k(self.moved(rate_Q[:, None], node_N), k) @ share_N

    def moved(self, rate_P: np.ndarray, scatter_P: np.ndarray | float) -> np.ndarray:
        """Return success rates after the loss, with ``scatter_P`` in standard deviations."""
        away_P = self.strength * (_log_odds(rate_P) - _log_odds(self.pivot))
        return _risen(rate_P, scatter_P, away_P)


@dataclass(frozen=True, kw_only=True)
class ConcentratedLoss:
    """Concentrated loss: a random ``share`` of the problems is never solved again, and all others rise.

    Only problems with a success rate of at least ``least_rate`` can be lost.

    >>> loss = ConcentratedLoss(least_rate=0.1, share=0.5)
    >>> loss.late_pass_at_k(np.array([0.001, 0.999]), 64).round(3).tolist()
    [0.114, 0.5]
    """

    least_rate: float
    share: float
    law: ClassVar[Law] = "concentrated"

    def late(self, rate_P: Float[np.ndarray, " problem"], rng: np.random.Generator) -> Float[np.ndarray, " problem"]:
        """Return success rates after the loss, drawn at random."""
        risen_P = _risen(rate_P, rng.normal(size=len(rate_P)))
        lost_P = (rate_P >= self.least_rate) & (rng.random(len(rate_P)) < self.share)
        return np.where(lost_P, 0.0, risen_P)

    def late_pass_at_k(self, rate_Q: Float[np.ndarray, " point"], k: int) -> Float[np.ndarray, " point"]:
        """Return expected pass@``k`` after the loss, for problems with rates ``rate_Q`` before it."""
        return np.where(rate_Q >= self.least_rate, 1.0 - self.share, 1.0) * _risen_pass_at_k(rate_Q, k)


def diffuse_loss(
    rate_Q: Float[np.ndarray, " point"], weight_Q: Float[np.ndarray, " point"], *, fall: float, k: int
) -> DiffuseLoss | None:
    """Return the diffuse loss that takes ``fall`` (probability) from expected pass@``k``.

    None if no such loss takes that much.
    """
    held_Q = weight_Q * pass_at_k(rate_Q, k)
    from scipy.optimize import brentq  # slow to import

    order_Q = np.argsort(rate_Q, kind="stable")
    share_Q = np.cumsum(held_Q[order_Q]) / held_Q.sum()
    for share in _PIVOT_SHARES:
        pivot = float(rate_Q[order_Q][min(int(np.searchsorted(share_Q, share)), len(rate_Q) - 1)])

        def missing(strength: float, pivot: float = pivot) -> float:
            return fall_of(DiffuseLoss(pivot=pivot, strength=strength), rate_Q, weight_Q, k) - fall

        first = next((i for i, strength in enumerate(_STRENGTHS) if missing(strength) >= 0), None)
        if first is not None:
            strength = brentq(missing, _STRENGTHS[first - 1], _STRENGTHS[first], xtol=1e-4) if first else 0.0
            return DiffuseLoss(pivot=pivot, strength=float(strength))
    return None


def concentrated_loss(
    rate_Q: Float[np.ndarray, " point"], weight_Q: Float[np.ndarray, " point"], *, fall: float, k: int
) -> ConcentratedLoss | None:
    """Return the concentrated loss that takes ``fall`` (probability) from expected pass@``k``.

    The loss also offsets the gain of the other problems. None if no such loss takes that much.
    """
    least_rate = -math.expm1(math.log(1.0 - _WITHIN_REACH) / k)
    late_Q = weight_Q * _risen_pass_at_k(rate_Q, k)
    at_stake = float(late_Q[rate_Q >= least_rate].sum())
    needed = float(late_Q.sum() - weight_Q @ pass_at_k(rate_Q, k)) + fall
    # MOST_LOG_ODDS lowers problems that are nearly always solved, which may be a tiny fall without any loss
    if not 0 < at_stake >= needed:
        return None
    return ConcentratedLoss(least_rate=least_rate, share=max(0.0, needed) / at_stake)


def fall_of(loss: Loss, rate_Q: Float[np.ndarray, " point"], weight_Q: Float[np.ndarray, " point"], k: int) -> float:
    """Return the expected fall of pass@``k`` over problems and random draws. The weights sum to 1."""
    return float(weight_Q @ (pass_at_k(rate_Q, k) - loss.late_pass_at_k(rate_Q, k)))


def pass_at_k(rate_Q: np.ndarray, k: int) -> np.ndarray:
    """Return pass@``k`` of success rates.

    >>> pass_at_k(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [0.0, 0.75, 1.0]
    """
    return -np.expm1(k * np.log1p(-np.minimum(rate_Q, 1 - 1e-12)))


def _risen_pass_at_k(rate_Q: np.ndarray, k: int) -> np.ndarray:
    node_N, share_N = _scatter()
    return pass_at_k(_risen(rate_Q[:, None], node_N), k) @ share_N


def _risen(rate_P: np.ndarray, scatter_P: np.ndarray | float, away_P: np.ndarray | float = 0.0) -> np.ndarray:
    return np.asarray(expit(np.minimum(_log_odds(rate_P) + LIFT + away_P + SCATTER * scatter_P, MOST_LOG_ODDS)))


def _log_odds(rate: np.ndarray | float) -> np.ndarray:
    return np.asarray(logit(np.clip(rate, 1e-12, 1 - 1e-12)))


def _scatter() -> tuple[np.ndarray, np.ndarray]:
    """Return quadrature nodes of a standard normal distribution, and their weights, which sum to 1."""
    node_N, share_N = hermegauss(_NODES)
    return node_N, share_N / share_N.sum()
