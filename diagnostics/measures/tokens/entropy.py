"""Measures of token entropy on own samples: mean, by position, share of high entropy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import find_incomplete
from oversharp.diagnostics.measures.declare import Input, Loaded, in_sql, per_checkpoint
from oversharp.diagnostics.statistics.intervals import mean_interval, ratio_interval

SCOPES = ("all", "token_pooled")
MISSING = "no response has a token entropy; run the audit with --entropy-samples above 0"
_BY_POSITION_SQL = """
WITH scored AS (
    SELECT checkpoint_id, step, problem_id, sample_index, token_entropies
    FROM own_tokens
    WHERE series = $series AND token_entropies IS NOT NULL
),
complete AS (
    SELECT checkpoint_id, sample_index
    FROM scored
    GROUP BY checkpoint_id, sample_index
    HAVING count(DISTINCT problem_id) = (SELECT count(DISTINCT problem_id) FROM scored)
),
-- interval b has the response's tokens 2^b … 2^(b+1)−1
intervals AS (
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
        -- in a fixed order: a parallel sum of doubles is not reproducible
        sum(list_sum(entropies) ORDER BY sample_index) / sum(len(entropies)) AS entropy
    FROM intervals
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
    -- leading zeros: alphabetical order is the order of positions
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
_HIGH_ENTROPY_SQL = """
WITH scored AS (
    SELECT checkpoint_id, step, is_base, problem_id, sample_index, token_entropies
    FROM own_tokens
    WHERE series = $series AND token_entropies IS NOT NULL
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
    JOIN base AS b ON b.threshold IS NOT NULL  -- without teacher forcing of the base the share is unknown, not 0
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
        -- linearised ratio; variance ((P−1)s² + 1) / P², with a floor of one more problem that deviates by 1
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


def _load(evidence: Evidence) -> Loaded[tuple[pd.DataFrame, np.ndarray | None]]:
    """Load sums of entropies, tokens and responses by problem, and the clusters."""
    frame = evidence.frames["sample_entropies"]
    frame = frame.assign(entropy_mean=frame["entropy_sum"] / frame["n_tokens"], responses=1)
    by_problem = frame.groupby(["checkpoint_id", "problem_id"])
    # the number of scored samples is a setting of the audit, the same for every problem and checkpoint
    why = find_incomplete(evidence, frame, frame["responses"], expected=int(by_problem.size().max()))
    sums = by_problem[["entropy_mean", "entropy_sum", "n_tokens", "responses"]].sum()
    own = {i: sums.loc[i] for i in evidence.checkpoint_ids if i not in why}
    return {i: (rows, evidence.clusters(rows.index)) for i, rows in own.items()}, why


@per_checkpoint(
    input=Input(load=_load, needs=("sample_entropies",), missing=MISSING, first_round=True),
    scopes=SCOPES,
    title="Token entropy",
    unit="nats per token",
    section="entropy",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="token entropy (nats per token)"),
)
def token_entropy(sums_and_clusters: tuple[pd.DataFrame, np.ndarray | None]) -> Results:
    """Token entropy: the entropy of the next token in the model's own responses.

    Meaning: the entropy of the next-token distribution over the full vocabulary at temperature 1, computed by teacher
    forcing on the checkpoint's own samples. Scope ``all`` averages over the tokens of a response, then over responses,
    then over problems. Scope ``token_pooled`` averages over all tokens at once, so long responses have more weight.
    Unit: nats per token. 95 % t interval over problems (for ``token_pooled`` a ratio estimator). n counts responses.
    Limits: it also falls under moderate sharpening, so a fall alone does not show a loss. Checkpoints generate
    different responses, so a change in style or length also changes it. Responses truncated at the token limit are
    included.
    Source: [B] (arXiv 2510.04028), C.5.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sample_entropies", "checkpoint_id problem_id sample_index entropy_sum n_tokens", [
    ...     ("base", "q1", 0, 2.0, 2), ("base", "q2", 0, 1.0, 4)])
    >>> [(f.scope, f.value, f.n) for f in token_entropy(evidence)]  # (1 + 1/4) / 2, then 3 / 6
    [('all', 0.625, 2), ('token_pooled', 0.5, 2)]
    """
    sums, cluster_P = sums_and_clusters
    n, positive = int(sums["responses"].sum()), (0.0, math.inf)
    mean_P = (sums["entropy_mean"] / sums["responses"]).to_numpy(dtype=np.float64)
    entropy_P, tokens_P = (sums[name].to_numpy(dtype=np.float64) for name in ("entropy_sum", "n_tokens"))
    pooled = ratio_interval(entropy_P, tokens_P, floor=False, bounds=positive, cluster_P=cluster_P)
    return {
        "all": replace(mean_interval(mean_P, bounds=positive, cluster_P=cluster_P), n=n),
        "token_pooled": replace(pooled, n=n),
    }


@in_sql(
    needs=("own_tokens",),
    first_round=True,
    missing="no own samples have token entropies for all problems; run the audit again with --panel above 0, and with "
    "--entropy-samples above 0 if a server scores responses",
    title="Token entropy by position",
    unit="nats per token",
    section="entropy",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="token entropy (nats per token)"),
)
def token_entropy_by_position() -> str:
    """Token entropy by position: the entropy of the next token by its place in the response.

    Meaning: the entropy of the next-token distribution over the full vocabulary at temperature 1, computed by teacher
    forcing on the checkpoint's own samples, and averaged over the tokens in an interval of positions. The intervals
    double in length: scopes are ``tokens 00001``, ``tokens 00002-00003``, ``tokens 00004-00007``, and so on. Token 1 is
    the first token of the response. A low entropy at the start means that all responses begin in the same way. A low
    entropy later means that the model no longer changes direction.
    Unit: nats per token: mean over a problem's tokens in the interval, then over problems. 95 % normal interval over
    problems, for at least 30 problems. n counts problems.
    Limits: only responses that reach a position have tokens there. So later scopes cover other responses and fewer
    problems (n counts them), and a change of length changes them. It also falls under moderate sharpening, so a fall
    alone does not show a loss. Only sample numbers that are scored for every problem are used, so that the choice of
    responses does not depend on their text.
    Source: [B] (arXiv 2510.04028), C.5, for the token entropy; the split by position is ours.

    >>> import duckdb, pandas as pd
    >>> own_tokens = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "problem_id": ["q1", "q2"],
    ...     "sample_index": 0, "token_entropies": [[2.0, 1.0, 0.0, 0.5], [1.0]]})
    >>> rows = duckdb.execute(token_entropy_by_position.sql, {"series": "run"}).fetchall()
    >>> [(row[1], row[3], row[6]) for row in rows]
    [('tokens 00001', 1.5, 2), ('tokens 00002-00003', 0.5, 1), ('tokens 00004-00007', 0.5, 1)]
    """
    return _BY_POSITION_SQL


@in_sql(
    needs=("own_tokens",),
    first_round=True,
    missing="no own samples have token entropies for all problems, here or under the base; run the audit again with "
    "--panel above 0, and with --entropy-samples above 0 if a server scores responses",
    title="High-entropy tokens",
    unit="share of tokens",
    section="entropy",
    rank=40,
    plot=Plot(x="step", y_label="share of tokens", y_range=(0.0, 1.0)),
)
def high_entropy_tokens() -> str:
    """High-entropy tokens: the share of tokens above the entropy of 80 % of the base's tokens.

    Meaning: the threshold is the 80th percentile of the entropy of the base's own tokens (full vocabulary, temperature
    1, teacher-forced). The value is the share of tokens in the checkpoint's own samples whose entropy is above this
    threshold. The base is at 20 % by construction. The few tokens that decide how a solution continues have high
    entropy. Fewer of them mean fewer alternatives.
    Unit: share of tokens, pooled over all own samples. n counts tokens. 95 % normal interval over problems (ratio
    estimator with a variance floor), for at least 30 problems. It treats the threshold as fixed, and the base has no
    interval.
    Limits: it also falls under moderate sharpening, so a fall alone does not show a loss. Longer responses with the
    same number of such tokens have a smaller share. If many tokens of the base have exactly the threshold entropy, such
    as 0, the base is below 20 %. Only sample numbers that are scored for every problem are used, so that the choice of
    responses does not depend on their text.
    Source: Wang et al. 2025, Beyond the 80/20 Rule (arXiv 2506.01939), which trains on the fifth of tokens with the
    highest entropy. A fixed threshold from the base is ours.

    >>> import duckdb, pandas as pd
    >>> own_tokens = pd.DataFrame({"series": "run", "checkpoint_id": ["base", "late"], "step": [0, 20],
    ...     "is_base": [True, False], "problem_id": "q", "sample_index": 0,
    ...     "token_entropies": [[0.0, 0.1, 0.2, 0.3, 2.0], [0.0, 0.0, 0.1, 1.9]]})  # threshold 0.3 + 0.2 · 1.7
    >>> rows = duckdb.execute(high_entropy_tokens.sql, {"series": "run"}).fetchall()
    >>> [(row[0], row[3], row[6]) for row in rows]
    [('base', 0.2, 5), ('late', 0.25, 4)]
    """
    return _HIGH_ENTROPY_SQL
