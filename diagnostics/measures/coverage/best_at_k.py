"""Measures of the best of k responses by a reward: its reward, and its accuracy."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH ks AS (
    SELECT unnest($ks::INTEGER[]) AS k
),
rewards AS (
    SELECT checkpoint_id, step, problem_id, {reward} AS reward, count(*) AS n, {worth} AS worth
    FROM {view}
    WHERE series = $series AND NOT greedy AND in_first_round AND {condition}
    GROUP BY checkpoint_id, step, problem_id, {reward}
),
ranked AS (
    SELECT
        *,
        sum(n) OVER (PARTITION BY checkpoint_id, step, problem_id ORDER BY reward)::DOUBLE AS upto,
        sum(n) OVER (PARTITION BY checkpoint_id, step, problem_id)::DOUBLE AS total
    FROM rewards
),
probabilities AS (
    -- probability that the best of k samples has this reward, drawn without and with replacement
    SELECT
        r.*,
        a.k,
        CASE WHEN upto >= k
            THEN exp(lgamma(upto + 1) - lgamma(upto - k + 1) - lgamma(total + 1) + lgamma(total - k + 1)) ELSE 0 END
        - CASE WHEN upto - n >= k
            THEN exp(lgamma(upto - n + 1) - lgamma(upto - n - k + 1) - lgamma(total + 1) + lgamma(total - k + 1))
            ELSE 0 END AS without_replacement,
        pow(upto / total, k) - pow((upto - n) / total, k) AS with_replacement
    FROM ranked AS r
    JOIN ks AS a ON a.k <= r.total
),
problems AS (
    -- in a fixed order: a parallel sum of doubles is not reproducible
    SELECT checkpoint_id, step, problem_id, k, scope, sum(worth * probability ORDER BY reward) AS value
    FROM (
        SELECT *, 'all' AS scope, without_replacement AS probability FROM probabilities
        {with_replacement}
    )
    GROUP BY ALL
),
by_checkpoint AS (
    SELECT checkpoint_id, step, count(DISTINCT problem_id) AS n_problems, {least} AS least, {most} AS most
    FROM rewards
    GROUP BY ALL
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        scope,
        k,
        least,
        most,
        n_problems,
        count(*) AS n,
        avg(value ORDER BY problem_id) AS value,
        -- variance ((P−1)s² + r²) / P², with a floor of one more problem that deviates by the range r of rewards
        1.959964 * sqrt((count(*) - 1) * var_samp(value ORDER BY problem_id) + (most - least) ** 2) / count(*)
            AS half_width
    FROM problems
    JOIN by_checkpoint USING (checkpoint_id, step)
    GROUP BY checkpoint_id, step, scope, k, least, most, n_problems
)
SELECT
    checkpoint_id,
    scope,
    k,
    value,
    CASE WHEN scope = 'all' AND n >= 30 THEN greatest(least, value - half_width) END AS low,
    CASE WHEN scope = 'all' AND n >= 30 THEN least(most, value + half_width) END AS high,
    n
FROM moments
WHERE n = n_problems  -- every problem has k samples
ORDER BY step, scope, k
"""
_WITH_REPLACEMENT = (
    "UNION ALL SELECT *, 'with_replacement' AS scope, with_replacement AS probability FROM probabilities"
)


_HAS_REWARDS = """(
    state IS NULL OR EXISTS (FROM graded_samples WHERE series = $series AND state = 'ok' AND reward NOT IN (0, 1))
)"""


@in_sql(
    needs=("graded_samples",),
    first_round=True,
    missing="no recorded rewards, and all of the verifier are 0 or 1; or fewer than k samples of some problem",
    title="Best@k of the reward",
    unit="reward",
    section="coverage",
    plot=Plot(x="k", group="checkpoint", y_label="highest reward of k responses", log_x=True),
)
def best_at_k() -> str:
    """Best@k: the highest reward of k responses, averaged over problems.

    Meaning: scope ``all`` is the expected reward of the best of k new responses. If every reward is 0 or 1, it is
    pass@k. Scope ``with_replacement`` is the value that verl logs as ``best@k/mean``. verl draws the k responses from a
    problem's n responses with replacement, so it may draw a response twice. Its value is 1 − (1 − c/n)^k instead of 1 −
    C(n−c, k)/C(n, k) for rewards of 0 or 1. That is too low for k different responses, most of all for k near n.
    Compare only curves of the same scope.
    Unit: reward, as recorded by the tool or returned by the verifier. Estimator: the exact mean over all choices of k
    samples. 95 % normal interval over problems with a variance floor, only for scope ``all`` and at least 30 problems.
    n counts problems.
    Limits: only for imported rewards, and for a verifier that returned another reward than 0 and 1. verl uses 1,000
    random draws instead of the exact mean, so its logged value scatters around ``with_replacement``. If several
    responses share the highest reward, there is no single best response.
    Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1, extended to any rewards; verl's validation metrics.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "state": None, "problem_id": "q", "reward": [0.0, 0.0, 0.5, 1.0]})
    >>> rows = duckdb.execute(best_at_k.sql, {"series": "run", "ks": [1, 2, 4, 8]}).fetchall()
    >>> [(row[1], row[2], round(row[3], 4)) for row in rows]  # doctest: +NORMALIZE_WHITESPACE
    [('all', 1, 0.375), ('all', 2, 0.6667), ('all', 4, 1.0),
     ('with_replacement', 1, 0.375), ('with_replacement', 2, 0.5938), ('with_replacement', 4, 0.8105)]
    """
    return _SQL.format(
        view="graded_samples",
        reward="reward",
        worth="min(reward)",
        condition=_HAS_REWARDS,
        with_replacement=_WITH_REPLACEMENT,
        least="min(worth)",
        most="max(worth)",
    )


@in_sql(
    needs=("regraded_samples",),
    first_round=True,
    missing="no samples with recorded rewards were regraded; `oversharp regrade` does that",
    title="Best-of-k by the recorded reward",
    unit="probability",
    section="coverage",
    plot=Plot(x="k", group="checkpoint", y_label="probability that the chosen response is correct", log_x=True),
)
def best_of_k() -> str:
    """Best-of-k: the accuracy of the response with the highest recorded reward of k.

    Meaning: the accuracy of choosing one of k responses by the recorded reward. The verifier of this series decides
    whether the chosen response is correct. The value is averaged over problems. With a perfect reward it would equal
    pass@k. ``majority_at_k`` is the accuracy of choosing without a reward. If the curve falls as k grows, the reward
    prefers wrong responses: it is over-optimised, or hacked.
    Unit: probability. Estimator: the exact mean over all choices of k samples. Among responses that share the highest
    reward, one is chosen at random. 95 % normal interval over problems with a variance floor, for at least 30 problems.
    n counts problems.
    Limits: only after ``oversharp regrade`` of samples with recorded rewards. If the reward is 0 or 1, this compares
    two verifiers: see ``verifier_disagreement``.
    Source: Gao et al. 2022 (arXiv 2210.10760), best-of-n sampling; the estimator is that of pass@k.

    >>> import duckdb, pandas as pd
    >>> regraded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True,
    ...     "problem_id": "q", "own_verifier": "recorded:tool", "own_reward": [0.1, 0.2, 0.9, 0.9],
    ...     "correct": [True, False, True, False]})
    >>> rows = duckdb.execute(best_of_k.sql, {"series": "run", "ks": [1, 2, 4]}).fetchall()
    >>> [(row[2], round(row[3], 4)) for row in rows]
    [(1, 0.5), (2, 0.4167), (4, 0.5)]
    """
    return _SQL.format(
        view="regraded_samples",
        reward="own_reward",
        worth="avg(correct::INTEGER)",
        condition="own_verifier LIKE 'recorded:%'",
        with_replacement="",
        least="0",
        most="1",
    )
