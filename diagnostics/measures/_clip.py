"""Which share of tokens left the clip range between two checkpoints: the SQL that panel and training batches share."""

from __future__ import annotations

#: Common table expressions from ``pairs`` (checkpoint_id, step, problem_id, token_logps, token_logps_before) to
#: ``moments`` (checkpoint_id, step, n, share, half_width), one row per checkpoint. The range is that of PPO's clipping
#: with ε = 0.2, as in [C] Fig 7.
MOMENTS_OF_PAIRS = """
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
        avg((logp - logp_before NOT BETWEEN ln(1 - 0.2) AND ln(1 + 0.2))::INTEGER) AS share
    FROM tokens
    GROUP BY ALL
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        count(*) AS n,
        -- in a stated order: a parallel sum of doubles has other last bits every time
        avg(share ORDER BY problem_id) AS share,
        -- (P−1)s² + 1 over P²: one more problem that deviates by a full point
        CASE
            WHEN count(*) >= 30
            THEN 1.959964 * sqrt((count(*) - 1) * var_samp(share ORDER BY problem_id) + 1) / count(*)
        END AS half_width
    FROM shares
    GROUP BY ALL
)
"""
