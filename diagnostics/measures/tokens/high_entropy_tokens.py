"""Share of tokens of high entropy."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH scored AS (
    SELECT checkpoint_id, step, is_base, problem_id, sample_index, token_entropies
    FROM own_tokens
    WHERE series = $series
),
complete AS (
    SELECT checkpoint_id, sample_index
    FROM scored
    GROUP BY checkpoint_id, sample_index
    HAVING count(DISTINCT problem_id) = (SELECT count(DISTINCT problem_id) FROM scored)
),
tokens AS (
    SELECT checkpoint_id, step, is_base, problem_id, unnest(token_entropies) AS entropy
    FROM scored
    SEMI JOIN complete USING (checkpoint_id, sample_index)
),
base AS (
    SELECT quantile_cont(entropy, 0.8) AS threshold FROM tokens WHERE is_base
),
problems AS (
    SELECT
        t.checkpoint_id,
        t.step,
        t.is_base,
        t.problem_id,
        count(*) AS n_tokens,
        count(*) FILTER (t.entropy > b.threshold) AS n_high
    FROM tokens AS t
    JOIN base AS b ON b.threshold IS NOT NULL  -- an unforced base makes the share unknown, not 0
    GROUP BY ALL
),
shares AS (
    SELECT
        checkpoint_id,
        count(*) AS n_problems,
        sum(n_tokens) AS n_tokens,
        sum(n_high) / sum(n_tokens) AS share
    FROM problems
    GROUP BY checkpoint_id
),
moments AS (
    SELECT
        p.checkpoint_id,
        p.step,
        s.n_tokens,
        s.share,
        -- linearised; (P−1)s² + 1 over P²: one more problem that deviates by a full point
        CASE
            WHEN s.n_problems >= 30 AND NOT p.is_base
            THEN 1.959964 * sqrt(
                (s.n_problems - 1)
                * var_samp((p.n_high - s.share * p.n_tokens) * s.n_problems / s.n_tokens ORDER BY p.problem_id)
                + 1
            ) / s.n_problems
        END AS half_width
    FROM problems AS p
    JOIN shares AS s USING (checkpoint_id)
    GROUP BY p.checkpoint_id, p.step, p.is_base, s.n_problems, s.n_tokens, s.share
)
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    share AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, share - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, share + half_width) END AS high,
    n_tokens AS n
FROM moments
ORDER BY step
"""


@in_sql(
    needs=("own_tokens",),
    missing="no own samples are scored token by token for all problems, here or under the base; "
    "run the audit again with --panel above 0",
    title="High-entropy tokens",
    unit="share of tokens",
    section="entropy",
    rank=40,
    plot=Plot(x="step", y_label="share of tokens", y_range=(0.0, 1.0)),
)
def high_entropy_tokens() -> str:
    """High-entropy tokens: the share of tokens as undecided as the base's most undecided fifth.

    Meaning: the share of tokens of the checkpoint's own samples whose entropy (full vocabulary, temperature 1,
    teacher-forced) exceeds the 80th percentile of the base's own tokens. The base is at 20 % by construction. Few
    tokens decide how a solution continues, and these have high entropy; fewer of them means fewer alternatives.
    Unit: share of tokens, pooled over all own samples; n counts tokens. 95 % normal interval over problems (ratio
    estimator with a variance floor), from 30 problems on; it assumes a fixed threshold, and the base has none.
    Limits: falls under moderate sharpening too. Longer responses with the same forks have a smaller share. If many
    tokens of the base tie at the threshold, such as at entropy 0, the base is below 20 %. Uses the sample numbers that
    are scored for every problem, so that the choice of responses does not depend on their text.
    Source: the 80/20 rule of Wang et al. 2025, Beyond the 80/20 Rule (arXiv 2506.01939), which trains on the fifth of
    tokens with the highest entropy; a fixed threshold from the base is ours.

    >>> import duckdb, pandas as pd
    >>> own_tokens = pd.DataFrame({"series": "run", "checkpoint_id": ["base", "late"], "step": [0, 20],
    ...     "is_base": [True, False], "problem_id": "q", "sample_index": 0,
    ...     "token_entropies": [[0.0, 0.1, 0.2, 0.3, 2.0], [0.0, 0.0, 0.1, 1.9]]})  # threshold 0.3 + 0.2 · 1.7
    >>> rows = duckdb.execute(high_entropy_tokens.sql, {"series": "run"}).fetchall()
    >>> [(row[0], row[3], row[6]) for row in rows]
    [('base', 0.2, 5), ('late', 0.25, 4)]
    """
    return _SQL
