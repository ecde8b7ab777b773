"""Length of responses in tokens."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH samples_by_scope AS (
    SELECT checkpoint_id, step, 'all' AS scope, n_tokens
    FROM graded_samples
    WHERE series = $series AND NOT greedy
    UNION ALL
    SELECT checkpoint_id, step, CASE WHEN correct THEN 'correct' ELSE 'not_correct' END AS scope, n_tokens
    FROM graded_samples
    WHERE series = $series AND NOT greedy
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
    missing="no graded sample has a token count",
    title="Response length",
    unit="tokens",
    section="health",
    rank=90,
    plot=Plot(x="step", group="scope", y_label="tokens per response"),
)
def response_length() -> str:
    """Response length: the mean number of tokens per sample.

    Meaning: mean length of all samples (scope ``all``) and by grade (``correct``, ``not_correct``). A grade without a
    sample has no row.
    Unit: tokens, the end token included; n counts samples. No interval: it describes these samples.
    Limits: truncated responses count with their truncated length, so compare it with ``truncation_rate``.
    Source: sample health; token counts as the sampler reports them.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": False,
    ...     "correct": [True, False, False], "n_tokens": [3, 6, 12]})
    >>> [(row[1], row[3], row[6]) for row in duckdb.execute(response_length.sql, {"series": "run"}).fetchall()]
    [('all', 7.0, 3), ('correct', 3.0, 1), ('not_correct', 9.0, 2)]
    """
    return _SQL
