"""Token entropy by position: where in its response the model is undecided.

Meaning: the entropy of the next-token distribution over the full vocabulary at temperature 1, teacher-forced on the
checkpoint's own samples, averaged over the tokens of a stretch of the response. Scopes double in length:
``tokens 00001``, ``tokens 00002-00003``, ``tokens 00004-00007`` …; token 1 is the first of the response. Collapse at
the start means that the model always opens alike; a fall further on, that it no longer changes its mind.
Unit: nats per token: mean over a problem's tokens in the stretch, then over problems. 95 % normal interval over
problems, from 30 problems on; n counts problems.
Limits: only responses that reach a stretch have tokens in it, so later scopes speak of other responses and fewer
problems, and a change of length moves them; n says how many. Falls under moderate sharpening too. Uses the sample
numbers that are scored for every problem, so that which responses count does not depend on what they say.
Source: [B] (arXiv 2510.04028), C.5, for the token entropy; the split by position is ours.

>>> import duckdb, pandas as pd
>>> own_tokens = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "problem_id": ["q1", "q2"],
...     "sample_index": 0, "token_entropies": [[2.0, 1.0, 0.0, 0.5], [1.0]]})
>>> [(row[1], row[3], row[6]) for row in duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()]
[('tokens 00001', 1.5, 2), ('tokens 00002-00003', 0.5, 1), ('tokens 00004-00007', 0.5, 1)]
"""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Measure, Plot

SQL = """
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

MEASURE = Measure(
    name="token_entropy_by_position",
    title="Token entropy by position",
    unit="nats per token",
    section="entropy",
    needs=("own_tokens",),
    missing="no own samples are scored token by token for all problems; run the audit again with --panel above 0",
    plot=Plot(x="step", group="scope", y_label="token entropy (nats per token)"),
    sql=SQL,
)
