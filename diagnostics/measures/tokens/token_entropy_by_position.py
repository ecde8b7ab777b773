"""Entropy of tokens by position in the response."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH scored AS (
    SELECT checkpoint_id, step, problem_id, sample_index, token_entropies
    FROM own_tokens
    WHERE series = $series
),
complete AS (
    SELECT checkpoint_id, sample_index
    FROM scored
    GROUP BY checkpoint_id, sample_index
    HAVING count(DISTINCT problem_id) = (SELECT count(DISTINCT problem_id) FROM scored)
),
-- stretch b holds tokens 2^b … 2^(b+1)−1 and as many of them as the response has
stretches AS (
    SELECT
        s.checkpoint_id,
        s.step,
        s.problem_id,
        s.sample_index,
        b.bit,
        s.token_entropies[1 << b.bit : (1 << (b.bit + 1)) - 1] AS entropies
    FROM scored AS s
    SEMI JOIN complete USING (checkpoint_id, sample_index)
    JOIN range(30) AS b (bit) ON len(s.token_entropies) >= 1 << b.bit
),
problems AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        bit,
        -- in a stated order: a parallel sum of doubles has other last bits every time
        sum(list_sum(entropies) ORDER BY sample_index) / sum(len(entropies)) AS entropy
    FROM stretches
    GROUP BY ALL
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        bit,
        count(*) AS n,
        avg(entropy ORDER BY problem_id) AS entropy,
        CASE
            WHEN count(*) >= 30
            THEN 1.959964 * sqrt(var_samp(entropy ORDER BY problem_id) / count(*))
        END AS half_width
    FROM problems
    GROUP BY ALL
)
SELECT
    checkpoint_id,
    -- leading zeros: the order of letters is the order of positions
    'tokens ' || printf('%05d', 1 << bit)
        || CASE WHEN bit > 0 THEN '-' || printf('%05d', (1 << (bit + 1)) - 1) ELSE '' END AS scope,
    NULL::INTEGER AS k,
    entropy AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, entropy - half_width) END AS low,
    entropy + half_width AS high,
    n
FROM moments
ORDER BY step, bit
"""


@in_sql(
    needs=("own_tokens",),
    missing="no own samples are scored token by token for all problems; run the audit again with --panel above 0",
    title="Token entropy by position",
    unit="nats per token",
    section="entropy",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="token entropy (nats per token)"),
)
def token_entropy_by_position() -> str:
    """Token entropy by position: the entropy of the next token by its place in the response.

    Meaning: the entropy of the next-token distribution over the full vocabulary at temperature 1, teacher-forced on the
    checkpoint's own samples, averaged over the tokens of an interval of the response. Scopes double in length: ``tokens
    00001``, ``tokens 00002-00003``, ``tokens 00004-00007`` …; token 1 is the first of the response. Collapse at the
    start means that all responses open alike; a fall further on, that the model no longer changes course.
    Unit: nats per token: mean over a problem's tokens in the interval, then over problems. 95 % normal interval over
    problems, from 30 problems on; n counts problems.
    Limits: only responses that reach a position have tokens there, so later scopes cover other responses and fewer
    problems, and a change of length moves them; n counts them. Falls under moderate sharpening too. Uses the sample
    numbers that are scored for every problem, so that the choice of responses does not depend on their text.
    Source: [B] (arXiv 2510.04028), C.5, for the token entropy; the split by position is ours.

    >>> import duckdb, pandas as pd
    >>> own_tokens = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "problem_id": ["q1", "q2"],
    ...     "sample_index": 0, "token_entropies": [[2.0, 1.0, 0.0, 0.5], [1.0]]})
    >>> rows = duckdb.execute(token_entropy_by_position.sql, {"series": "run"}).fetchall()
    >>> [(row[1], row[3], row[6]) for row in rows]
    [('tokens 00001', 1.5, 2), ('tokens 00002-00003', 0.5, 1), ('tokens 00004-00007', 0.5, 1)]
    """
    return _SQL
