"""Shares of responses by strategy."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH shares AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        avg((strategy = 'code')::INTEGER) AS code
    FROM graded_samples
    WHERE series = $series AND NOT greedy
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


@in_sql(
    needs=("graded_samples",),
    missing="no graded samples",
    title="Strategy shares",
    unit="share of samples",
    section="strategy",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="share of samples", y_range=(0.0, 1.0)),
)
def strategy_share() -> str:
    """Strategy share: the share of responses that solve by code, and of those that solve in prose.

    Meaning: a response is of the strategy ``code`` if its text matches the audit's strategy pattern (by default a
    fenced code block), otherwise ``prose``; the two scopes sum to 1. Under sharpening one strategy often crowds out the
    other. All samples count, correct or not.
    Unit: share of samples (mean over problems). 95 % normal interval over problems with a variance floor, from 30
    problems on; n counts problems.
    Limits: as good as the pattern, which applies to the text of the response alone.
    Source: [C] (The Reasoning Boundary Paradox), appendix I (code against natural language).

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "problem_id": "q", "strategy": ["code", "prose", "prose", "prose"]})
    >>> [(row[1], row[3]) for row in duckdb.execute(strategy_share.sql, {"series": "run"}).fetchall()]
    [('code', 0.25), ('prose', 0.75)]
    """
    return _SQL
