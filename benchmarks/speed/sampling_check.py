"""Compare sampled pass@k with the exact value on a task with listed responses.

There are two questions per checkpoint and k of a finished audit. Is the exact value in the reported 95 % interval,
which is over problems? Is the difference within the sampling error? The sampling variance at fixed problems follows
from the exact success probability p of each problem: its count is Binomial(n, p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binom

from oversharp import open_store
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table

#: Largest |z|: 6e-5 of the two-sided normal distribution are beyond. The rows of one checkpoint share their samples.
Z_LIMIT = 4.0
#: Root mean square of z over all rows, 1 in expectation.
RMS_Z_LIMIT = 1.5


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Sampled and exact pass@k of one checkpoint.

    ``z`` is the difference in standard errors of sampling.
    """

    series: str
    step: int
    k: int
    sampled: float
    low: float
    high: float
    exact: float
    z: float

    @property
    def inside(self) -> bool:
        """Whether the exact value is in the reported interval.

        It nearly always is, because the interval is over problems.
        """
        return self.low <= self.exact <= self.high

    @property
    def explained(self) -> bool:
        """Whether sampling alone explains the difference.

        A biased sampler or estimator fails this.
        """
        return abs(self.z) <= Z_LIMIT


def agreements(store_path: Path) -> list[Agreement]:
    """Return one row per series, checkpoint and k ≤ n/2 with both values, in that order."""
    with open_store(store_path) as store:
        pairs = store.frame(
            """
            SELECT s.series, s.step, s.k, s.value AS sampled, s.low, s.high, e.value AS exact
            FROM findings AS s
            JOIN findings AS e USING (series, step, k, scope)
            WHERE s.measure = 'pass_at_k' AND e.measure = 'pass_at_k_exact' AND scope = 'all' AND s.low IS NOT NULL
            ORDER BY s.series, s.step, s.k
            """
        )
        exact = store.frame(
            """
            SELECT series, step, n, least(sum(exp(logp_sum)), 1) AS p
            FROM mode_logps
            JOIN sampled_counts USING (series, step, problem_id)
            GROUP BY series, step, problem_id, n
            ORDER BY ALL
            """
        )
    found = []
    for row in pairs.itertuples():
        own = exact[(exact["series"] == row.series) & (exact["step"] == row.step)]
        n = int(own["n"].max())
        estimate_C = pass_at_k_table(n, [row.k])[:, 0]
        weight_PC = binom.pmf(np.arange(n + 1)[None, :], n, own["p"].to_numpy()[:, None])
        variance_P = weight_PC @ estimate_C**2 - (weight_PC @ estimate_C) ** 2
        z = (row.sampled - row.exact) * len(own) / math.sqrt(max(variance_P.sum(), 1e-18))
        found.append(
            Agreement(
                series=row.series,
                step=row.step,
                k=row.k,
                sampled=row.sampled,
                low=row.low,
                high=row.high,
                exact=row.exact,
                z=z,
            )
        )
    return found


def rms_z(rows: list[Agreement]) -> float:
    """Return the root mean square of z."""
    return math.sqrt(sum(row.z**2 for row in rows) / len(rows))


def agree(rows: list[Agreement]) -> bool:
    """Return whether every exact value is in its interval, and sampling explains all differences."""
    return all(row.inside and row.explained for row in rows) and rms_z(rows) <= RMS_Z_LIMIT


def print_agreements(rows: list[Agreement]) -> None:
    """Print base and last checkpoint of every series, the share inside, the spread of z, and the worst row."""
    print(f"\n{'series':8}{'step':>6}{'k':>6}{'sampled':>10}   95 % interval{'exact':>12}{'z':>8}")
    last = {row.series: row.step for row in rows}
    for row in rows:
        if row.step in (0, last[row.series]):
            print(
                f"{row.series:8}{row.step:6d}{row.k:6d}{row.sampled:10.4f}   {row.low:.4f} … {row.high:.4f}"
                f"{row.exact:10.4f}{row.z:+8.2f}"
            )
    worst = max(rows, key=lambda row: abs(row.z))
    inside = sum(row.inside for row in rows)
    print(
        f"sampled against exact pass@k: {inside} of {len(rows)} exact values inside the 95 % interval; root mean "
        f"square z {rms_z(rows):.2f} (1 expected, at most {RMS_Z_LIMIT}); worst: {worst.series} step {worst.step} "
        f"k {worst.k}, z {worst.z:+.2f} (at most {Z_LIMIT}): {'agree' if agree(rows) else 'DISAGREE'}"
    )
