"""Accuracy of greedy responses."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH greedy AS (
    SELECT
        checkpoint_id,
        step,
        count(*) AS n,
        avg(correct::INTEGER) AS share,
        1.959964 AS z  -- normal quantile of a two-sided 95 % interval
    FROM graded_samples
    WHERE series = $series AND greedy
    GROUP BY ALL
),
wilson AS (
    SELECT
        *,
        (share + z * z / (2 * n)) / (1 + z * z / n) AS centre,
        z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n) AS half_width
    FROM greedy
)
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    share AS value,
    -- at 0 and 1 an end of the interval is the share itself, up to rounding
    greatest(0, least(share, centre - half_width)) AS low,
    least(1, greatest(share, centre + half_width)) AS high,
    n
FROM wilson
ORDER BY step
"""


@in_sql(
    needs=("graded_samples",),
    missing="no graded greedy responses",
    title="Greedy accuracy",
    unit="share of problems",
    section="coverage",
    rank=100,
    plot=Plot(x="step", y_label="greedy accuracy", y_range=(0.0, 1.0)),
)
def greedy_accuracy() -> str:
    """Greedy accuracy: the share of problems whose greedy response is correct.

    Meaning: the accuracy of a user who does not sample. It often rises while coverage falls, so alone it is no
    evidence about over-sharpening.
    Unit: share of problems. 95 % Wilson score interval over problems (one greedy response each).
    Limits: temperature 0 by arg max; a response that could not be graded counts as not correct.
    Source: Wilson 1927, JASA 22:209, for the interval.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": True,
    ...     "problem_id": ["q1", "q2"], "correct": [True, False]})
    >>> row = duckdb.execute(greedy_accuracy.sql, {"series": "run"}).fetchone()
    >>> row[3], round(row[4], 3), round(row[5], 3), row[6]
    (0.5, 0.095, 0.905, 2)
    """
    return _SQL
