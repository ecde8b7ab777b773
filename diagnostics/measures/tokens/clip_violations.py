"""Measures of tokens outside the clip range, on the panel and in training batches."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

#: SQL that both measures share. It computes ``moments`` (checkpoint_id, step, n, share, half_width), one row per
#: checkpoint, from ``pairs`` (checkpoint_id, step, problem_id, token_logps, token_logps_before). The clip range is that
#: of PPO with ε = 0.2, as in [C] Fig 7.
_MOMENTS_OF_PAIRS = """
tokens AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        unnest(token_logps)::DOUBLE AS logp,
        unnest(token_logps_before)::DOUBLE AS logp_before
    FROM pairs
),
shares AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        -- the range is open, so its ends are violations; 1e-6 is the rounding of two float32 numbers
        avg((
            logp - logp_before <= ln(1 - 0.2) + 1e-6 OR logp - logp_before >= ln(1 + 0.2) - 1e-6
        )::INTEGER) AS share
    FROM tokens
    GROUP BY ALL
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        count(*) AS n,
        -- in a fixed order: a parallel sum of doubles is not reproducible
        avg(share ORDER BY problem_id) AS share,
        -- variance ((P−1)s² + 1) / P², with a floor of one more problem that deviates by 1
        CASE
            WHEN count(*) >= 30
            THEN 1.959964 * sqrt((count(*) - 1) * var_samp(share ORDER BY problem_id) + 1) / count(*)
        END AS half_width
    FROM shares
    GROUP BY ALL
)
"""

_PANEL_SQL = (
    """
WITH scored AS (
    SELECT checkpoint_id, step, problem_id, sample_index, token_logps
    FROM panel_tokens
    WHERE series = $series
),
planned AS (
    SELECT count(DISTINCT (problem_id, sample_index)) AS n_responses
    FROM scored
),
consecutive AS (
    SELECT checkpoint_id, lag(checkpoint_id) OVER (ORDER BY step) AS before_id
    FROM (SELECT DISTINCT checkpoint_id, step FROM scored)
),
pairs AS (
    SELECT
        now.checkpoint_id,
        now.step,
        now.problem_id,
        now.token_logps,
        before.token_logps AS token_logps_before
    FROM consecutive AS c
    JOIN scored AS now USING (checkpoint_id)
    JOIN scored AS before
        ON before.checkpoint_id = c.before_id
        AND before.problem_id = now.problem_id
        AND before.sample_index = now.sample_index
),
complete AS (
    -- if a checkpoint is scored in part, the share would be that of other problems
    SELECT checkpoint_id, count(*) = any_value(n_responses) AS is_complete
    FROM pairs
    CROSS JOIN planned
    GROUP BY checkpoint_id
),"""
    + _MOMENTS_OF_PAIRS
    + """
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    CASE WHEN is_complete THEN share END AS value,
    CASE WHEN is_complete AND half_width IS NOT NULL THEN greatest(0, share - half_width) END AS low,
    CASE WHEN is_complete AND half_width IS NOT NULL THEN least(1, share + half_width) END AS high,
    CASE WHEN is_complete THEN n END AS n
FROM moments
JOIN complete USING (checkpoint_id)
ORDER BY step
"""
)

_TRAINING_SQL = (
    """
WITH pairs AS (
    SELECT checkpoint_id, step, problem_id, token_logps, token_logps_before
    FROM training_tokens
    WHERE series = $series
),"""
    + _MOMENTS_OF_PAIRS
    + """
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    share AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, share - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, share + half_width) END AS high,
    n
FROM moments
ORDER BY step
"""
)


@in_sql(
    needs=("panel_tokens",),
    missing="there is no previous checkpoint, or the panel is not scored token by token under both; "
    "run the audit with --panel 4 and keep audit.tokens next to the store",
    title="Clip violations on the panel",
    unit="share of tokens",
    section="trust_region",
    rank=10,
    plot=Plot(x="step", y_label="share of panel tokens", y_range=(0.0, 1.0)),
    of_base=False,
)
def clip_violations_panel() -> str:
    """Clip violations on the panel: the share of tokens that left the trust region.

    Meaning: for each response token of the panel, the probability given its prefix is divided by the probability under
    the previous checkpoint. A token violates the clip range if this ratio is not within (1 − ε, 1 + ε), where ε = 0.2
    and both bounds are excluded. Clipping constrains the policy on the training batch, and this measures the change
    elsewhere. The value is the share of a problem's panel tokens, averaged over problems. The base has no finding.
    Unit: share of tokens. 95 % normal interval over problems with a variance floor, for at least 30 problems. n counts
    problems.
    Limits: there are many updates between two checkpoints. So the share is larger than the clip fraction per update
    that a trainer logs, and grows with the distance of the checkpoints. Compare it with ``clip_violations_training``,
    which has the same distance. Rounding also changes ratios: see ``scoring_noise``. A checkpoint that was excluded
    from the audit is skipped, and its neighbours are compared.
    Source: [C] (The Reasoning Boundary Paradox), section 5 and Fig 7, probing data; ε = 0.2 as in Fig 7.

    >>> import duckdb, pandas as pd
    >>> from math import log
    >>> panel_tokens = pd.DataFrame({"series": "run", "checkpoint_id": ["base", "late"], "step": [0, 20],
    ...     "problem_id": "q", "sample_index": 0,
    ...     "token_logps": [[log(0.5)] * 4, [log(0.5), log(0.59), log(0.61), log(0.39)]]})
    >>> duckdb.execute(clip_violations_panel.sql, {"series": "run"}).fetchall()  # ratios 1, 1.18, 1.22, 0.78
    [('late', 'all', None, 0.5, None, None, 1)]
    """
    return _PANEL_SQL


@in_sql(
    needs=("training_tokens",),
    missing="there is no previous checkpoint, one of the two was excluded, or the run directory contains no rollouts "
    "(rollouts/step_*.parquet) between the two",
    title="Clip violations in training",
    unit="share of tokens",
    section="trust_region",
    rank=20,
    plot=Plot(x="step", y_label="share of training tokens", y_range=(0.0, 1.0)),
    of_base=False,
)
def clip_violations_training() -> str:
    """Clip violations in training: the share of tokens that left the trust region.

    Meaning: as ``clip_violations_panel``, but on responses of the training batches between the previous checkpoint and
    this one. It is the share of response tokens whose probability ratio between the two checkpoints is not within (1 −
    ε, 1 + ε), with ε = 0.2, for each prompt, averaged over prompts. [C] finds that it is constant over training, while
    that of the panel grows. The base has no finding.
    Unit: share of tokens. 95 % normal interval over prompts with a variance floor, for at least 30 prompts. n counts
    prompts.
    Limits: there are many updates between two checkpoints, so the share is larger than the clip fraction per update
    that a trainer logs. Both measures have the same distance and can be compared. The responses were sampled by the
    policies between the two checkpoints. They are spaced evenly over the batches, and there are at most as many as in
    the panel. They are scored from their text, whose tokens may differ from the sampled tokens.
    Source: [C] (The Reasoning Boundary Paradox), section 5 and Fig 7, training data; ε = 0.2 as in Fig 7.

    >>> import duckdb, pandas as pd
    >>> from math import log
    >>> training_tokens = pd.DataFrame({"series": "run", "checkpoint_id": "late", "step": 20, "problem_id": "q",
    ...     "token_logps": [[log(0.5), log(0.59), log(0.61), log(0.39)]], "token_logps_before": [[log(0.5)] * 4]})
    >>> duckdb.execute(clip_violations_training.sql, {"series": "run"}).fetchall()  # ratios 1, 1.18, 1.22, 0.78
    [('late', 'all', None, 0.5, None, None, 1)]
    """
    return _TRAINING_SQL
