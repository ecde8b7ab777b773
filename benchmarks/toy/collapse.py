"""Count the seeds that collapsed, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm

from benchmarks.toy.simulation import ToyRun
from oversharp.diagnostics.records.errors import ConfigError

#: Largest probability at which a policy counts as collapsed.
COLLAPSED_FROM = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """``count`` of ``n`` seeds, their share, and its Wilson interval."""

    count: int
    n: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareByStep:
    """A share of seeds at every recorded step, with the bounds of its Wilson interval."""

    step_T: Int[np.ndarray, " record"]
    n: int
    share_T: Float[np.ndarray, " record"]
    low_T: Float[np.ndarray, " record"]
    high_T: Float[np.ndarray, " record"]

    @property
    def last(self) -> Share:
        """The share at the last recorded step."""
        return wilson(round(float(self.share_T[-1]) * self.n), self.n)


def wilson(count: int, n: int, *, confidence: float = 0.95) -> Share:
    """Share of ``count`` in ``n`` independent seeds with Wilson's score interval (Wilson 1927; Brown et al. 2001).

    Raises ``ConfigError`` unless 0 <= count <= n and n > 0.

    >>> nine = wilson(9, 10)
    >>> nine.share, round(nine.low, 4), round(nine.high, 4)
    (0.9, 0.5958, 0.9821)
    >>> wilson(200, 200).high
    1.0
    """
    if not 0 <= count <= n or n < 1:
        raise ConfigError(f"{count} of {n}: a share needs 0 <= count <= n and at least one seed")
    share = count / n
    z2 = float(norm.ppf(0.5 + confidence / 2)) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half_width = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # rounding must not move the bounds past the share
    low, high = max(0.0, min(share, middle - half_width)), min(1.0, max(share, middle + half_width))
    return Share(count=count, n=n, share=share, low=low, high=high)


def collapsed_share(run: ToyRun, *, threshold: float = COLLAPSED_FROM, confidence: float = 0.95) -> ShareByStep:
    """Return the share of seeds whose largest probability is at least ``threshold``, by recorded step.

    Seeds are the resampling unit. The bounds hold step by step, not for the whole path at once.
    """
    count_T = (run.prob_STK.max(axis=2) >= threshold).sum(axis=0)
    n = len(run.prob_STK)
    shares = [wilson(int(count), n, confidence=confidence) for count in count_T]
    return ShareByStep(
        step_T=run.step_T,
        n=n,
        share_T=np.array([share.share for share in shares]),
        low_T=np.array([share.low for share in shares]),
        high_T=np.array([share.high for share in shares]),
    )


def first_collapsed_step(run: ToyRun, *, threshold: float = COLLAPSED_FROM) -> tuple[int | None, ...]:
    """Return, for every seed, the first recorded step with a largest probability of at least ``threshold``.

    None if there is none.
    """
    collapsed_ST = run.prob_STK.max(axis=2) >= threshold
    return tuple(
        int(run.step_T[int(collapsed_T.argmax())]) if collapsed_T.any() else None for collapsed_T in collapsed_ST
    )
