"""Measure of the length of responses in tokens."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH samples_by_scope AS (
    SELECT checkpoint_id, step, 'all' AS scope, n_tokens
    FROM graded_samples
    WHERE series = $series AND NOT greedy AND in_first_round
    UNION ALL
    SELECT checkpoint_id, step, CASE WHEN correct THEN 'correct' ELSE 'not_correct' END AS scope, n_tokens
    FROM graded_samples
    WHERE series = $series AND NOT greedy AND in_first_round
)
SELECT
    checkpoint_id,
    scope,
    NULL::INTEGER AS k,
    avg(n_tokens) AS value,
    NULL::DOUBLE AS low,
    NULL::DOUBLE AS high,
    count(*) AS n
FROM samples_by_scope
GROUP BY checkpoint_id, step, scope
ORDER BY step, scope
"""


@in_sql(
    needs=("graded_samples",),
    first_round=True,
    missing="no graded sample has a token count",
    title="Response length",
    unit="tokens",
    section="health",
    rank=90,
    plot=Plot(x="step", group="scope", y_label="tokens per response"),
)
def response_length() -> str:
    """Response length: the mean number of tokens per sample.

    Meaning: scope ``all`` is the mean length of all samples. Scopes ``correct`` and ``not_correct`` are the mean
    lengths by grade. A scope without samples has no finding.
    Unit: tokens, including the end token. n counts samples. There is no interval, because the value describes exactly
    these samples.
    Limits: a truncated response counts with its truncated length, so compare the value with ``truncation_rate``.
    Source: sample health. Token counts are those that the sampler reports.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "in_first_round": True, "correct": [True, False, False], "n_tokens": [3, 6, 12]})
    >>> [(row[1], row[3], row[6]) for row in duckdb.execute(response_length.sql, {"series": "run"}).fetchall()]
    [('all', 7.0, 3), ('correct', 3.0, 1), ('not_correct', 9.0, 2)]
    """
    return _SQL
