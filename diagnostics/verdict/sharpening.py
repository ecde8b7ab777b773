"""Comparison of the late checkpoints with the base at lower temperatures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.statistics.frontier import AgainstFrontier, FrontierPoints, Matched, against_frontier
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import Samples, most_samples
from oversharp.diagnostics.statistics.units import Interval
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.results import Estimate, Sharpening, SharpeningLabel
from oversharp.diagnostics.verdict.rule import MARGIN

#: A run is better, or worse, if at least this share of the bootstrap draws is above, or below, the frontier.
SURE = 0.975


def sharpening_of(
    counts: SeriesCounts, window: Sequence[CheckpointCounts], rng: np.random.Generator
) -> Sharpening | None:
    """Compare the mean of the window's checkpoints with the frontier of the base.

    None if the base was not sampled at lower temperatures, or if there are too few samples for k > 1.

    - *Better*: above the frontier in 97.5 % of the bootstrap draws, by more than the possible interpolation error of
      half a point of pass@1.
    - *Worse*: below the frontier in as many draws.
    - *Sharpening only*: neither. pass@1 rose significantly, and the mean is significantly less than 2 points above the
      frontier, in pass@1 at equal pass@k or in pass@k at equal pass@1.
    """
    sharper = counts.sharper
    if sharper is None:
        return None
    most = min(counts.base.n // 2, *(one.n // 2 for one in window), *map(most_samples, sharper.n_S))
    if most < 2:
        return None
    k = _largest(most)
    drawn = [_rates(correct_P, n, k) for correct_P, n in zip(sharper.correct_SP, sharper.n_S, strict=True)]
    points = FrontierPoints(
        sharpness_S=1.0 - np.array(sharper.temperature_S) / sharper.temperature_S[0],
        x_SP=np.stack([first for first, _ in drawn]),
        y_SP=np.stack([all_k for _, all_k in drawn]),
        limit_P=None if sharper.greedy_P is None else sharper.greedy_P.astype(np.float64),
    )
    late = [_rates(one.correct_P, one.samples, k) for one in window]
    x_TP = np.stack([first for first, _ in late])
    [against] = against_frontier(
        points,
        x_TP,
        np.stack([all_k for _, all_k in late]),
        groups=[range(len(window))],
        rng=rng,
        cluster_P=counts.cluster_P,
    )
    rise = share_interval(x_TP.mean(axis=0) - points.x_SP[0], bounds=(-1.0, 1.0), cluster_P=counts.cluster_P)
    return Sharpening(
        label=_label(against, rise),
        k=k,
        rise=Estimate(value=rise.mean, low=rise.low, high=rise.high),
        gain=_estimate(against.gain),
        loss=_estimate(against.loss),
        share=_estimate(against.share),
        read=_rise_by_parsing(counts, window),
    )


def _label(against: AgainstFrontier, rise: Interval) -> SharpeningLabel:
    if against.above >= SURE:
        return "better"
    if against.below >= SURE:
        return "worse"
    highest = [one.high for one in (against.gain, against.loss) if one.high is not None]
    rose = rise.low is not None and rise.low > 0.0
    return "sharpening_only" if rose and highest and min(highest) <= MARGIN else "not_shown"


def _rates(
    correct_P: np.ndarray, n: Samples, k: int
) -> tuple[Float[np.ndarray, " problem"], Float[np.ndarray, " problem"]]:
    """Return pass@1 and pass@k of every problem."""
    table_CK = pass_at_k_table(n, [1, k])
    return table_CK[correct_P, 0], table_CK[correct_P, 1]


def _rise_by_parsing(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> float | None:
    """Return how much the base's pass@1 would rise if it had the window's share of parsed samples; None if unknown.

    Unparsed samples are assumed to be correct as often as parsed ones.
    """
    base, late = counts.base, [one for one in window if one.unread_P is not None]
    if base.unread_P is None or len(late) < len(window):
        return None
    unread = float(base.unread_shares.mean())
    now = float(np.mean([one.unread_shares.mean() for one in late]))
    return float(base.pass_at_1.mean()) * max(unread - now, 0.0) / (1.0 - unread) if unread < 1.0 else None


def _estimate(matched: Matched) -> Estimate:
    return Estimate(value=matched.value, low=matched.low, high=matched.high)


def _largest(most: int) -> int:
    return inference_ks(2 * most)[-1]
