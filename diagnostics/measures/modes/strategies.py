"""Measures of the shares and the accuracy of responses by strategy."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SHARE_SQL = """
WITH shares AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        avg((strategy = 'code')::INTEGER) AS code
    FROM graded_samples
    WHERE series = $series AND NOT greedy AND in_first_round
    GROUP BY ALL
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        count(*) AS n,
        -- in a fixed order: a parallel sum of doubles is not reproducible
        avg(code ORDER BY problem_id) AS code,
        -- variance ((P−1)s² + 1) / P², with a floor of one more problem that deviates by 1
        CASE
            WHEN count(*) >= 30
            THEN 1.959964 * sqrt((count(*) - 1) * var_samp(code ORDER BY problem_id) + 1) / count(*)
        END AS half_width
    FROM shares
    GROUP BY ALL
),
strategies AS (
    SELECT checkpoint_id, step, 'code' AS scope, code AS share, half_width, n FROM moments
    UNION ALL
    SELECT checkpoint_id, step, 'prose' AS scope, 1 - code AS share, half_width, n FROM moments
)
SELECT
    checkpoint_id,
    scope,
    NULL::INTEGER AS k,
    share AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, share - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, share + half_width) END AS high,
    n
FROM strategies
ORDER BY step, scope
"""
_ACCURACY_SQL = """
WITH rates AS (
    SELECT
        checkpoint_id,
        step,
        is_base,
        problem_id,
        coalesce(any_value(share) FILTER (strategy = 'code'), 0) AS alpha,
        any_value(n_correct / n) FILTER (strategy = 'code') AS rho_code,
        any_value(n_correct / n) FILTER (strategy = 'prose') AS rho_prose
    FROM strategy_counts
    WHERE series = $series
    GROUP BY ALL
),
with_base AS (
    SELECT r.*, b.alpha AS base_alpha
    FROM rates AS r
    LEFT JOIN rates AS b
        ON b.problem_id = r.problem_id
        AND b.is_base
),
scopes AS (
    SELECT checkpoint_id, step, problem_id, 'code' AS scope, rho_code AS rate FROM with_base
    UNION ALL
    SELECT checkpoint_id, step, problem_id, 'prose' AS scope, rho_prose AS rate FROM with_base
    UNION ALL
    SELECT
        checkpoint_id,
        step,
        problem_id,
        'same_mixture' AS scope,
        -- a strategy of weight 0 needs no rate
        CASE WHEN base_alpha = 0 THEN 0 ELSE base_alpha * rho_code END
        + CASE WHEN base_alpha = 1 THEN 0 ELSE (1 - base_alpha) * rho_prose END AS rate
    FROM with_base
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        scope,
        count(*) AS n,
        -- in a fixed order: a parallel sum of doubles is not reproducible
        avg(rate ORDER BY problem_id) AS rate,
        -- variance ((P−1)s² + 1) / P², with a floor of one more problem that deviates by 1
        CASE
            WHEN count(*) >= 30
            THEN 1.959964 * sqrt((count(*) - 1) * var_samp(rate ORDER BY problem_id) + 1) / count(*)
        END AS half_width
    FROM scopes
    WHERE rate IS NOT NULL
    GROUP BY ALL
)
SELECT
    checkpoint_id,
    scope,
    NULL::INTEGER AS k,
    rate AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, rate - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, rate + half_width) END AS high,
    n
FROM moments
ORDER BY step, scope
"""


@in_sql(
    needs=("graded_samples",),
    first_round=True,
    missing="no graded samples",
    title="Strategy shares",
    unit="share of samples",
    section="strategy",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="share of samples", y_range=(0.0, 1.0)),
)
def strategy_share() -> str:
    """Strategy share: the shares of responses in code and in prose.

    Meaning: a response has the strategy ``code`` if its text matches the audit's strategy pattern (by default a fenced
    code block), otherwise ``prose``. The two scopes sum to 1. Under sharpening one strategy often crowds out the other.
    All samples count, correct or not.
    Unit: share of samples (mean over problems). 95 % normal interval over problems with a variance floor, for at least
    30 problems. n counts problems.
    Limits: the shares are only as good as the pattern, which is applied to the text of the response alone.
    Source: [C] (The Reasoning Boundary Paradox), appendix I (code against natural language).

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True, "problem_id": "q", "strategy": ["code", "prose", "prose", "prose"]})
    >>> [(row[1], row[3]) for row in duckdb.execute(strategy_share.sql, {"series": "run"}).fetchall()]
    [('code', 0.25), ('prose', 0.75)]
    """
    return _SHARE_SQL


@in_sql(
    needs=("strategy_counts",),
    first_round=True,
    missing="no graded samples",
    title="Accuracy of each strategy",
    unit="share of samples",
    section="strategy",
    rank=80,
    plot=Plot(x="step", group="scope", y_label="share of samples that are correct", y_range=(0.0, 1.0)),
)
def strategy_accuracy() -> str:
    """Strategy accuracy: the accuracy by strategy, and the effect of switching.

    Meaning: ρ(x) is the share of correct samples among a problem's samples with one strategy. Scopes ``code`` and
    ``prose`` are the mean of ρ(x) over problems. Training that replaces a strategy by a less accurate one lowers
    pass@1. Scope ``same_mixture`` is pass@1 if every problem still had the base's shares α(x) of the two strategies.
    Compare it with ``pass_at_k`` at k = 1 to see the effect of the switch alone. The view ``strategy_counts`` has α(x)
    and ρ(x) of every problem.
    Unit: share of samples. 95 % normal interval over problems with a variance floor, for at least 30 problems. n counts
    problems with a sample of that strategy. For ``same_mixture`` it counts problems with a sample of every strategy
    that the base uses there.
    Limits: strategies are those that the audit's pattern detects, as in ``strategy_share``. Problems that no longer use
    a strategy are not in its mean, so the means of two checkpoints cover different problems; n counts them.
    Source: [C] (The Reasoning Boundary Paradox), appendix I, Eq 35 and 36; fixing the mixture at the base's is ours.

    >>> import duckdb, pandas as pd
    >>> strategy_counts = pd.DataFrame({"series": "run", "checkpoint_id": ["base"] * 2 + ["late"] * 2,
    ...     "step": [0] * 2 + [9] * 2, "is_base": [True] * 2 + [False] * 2, "problem_id": "q",
    ...     "strategy": ["code", "prose"] * 2, "n": [2, 2, 1, 3], "n_correct": [2, 1, 1, 1],
    ...     "share": [0.5, 0.5, 0.25, 0.75]})
    >>> rows = duckdb.execute(strategy_accuracy.sql, {"series": "run"}).fetchall()
    >>> [(row[0], row[1], round(row[3], 3)) for row in rows][3:]
    [('late', 'code', 1.0), ('late', 'prose', 0.333), ('late', 'same_mixture', 0.667)]
    """
    return _ACCURACY_SQL
