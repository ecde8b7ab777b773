"""Measure of the shares of correct samples by mode."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.counts import ONE_MODE
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH correct_samples AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        mode,
        is_base AND sample_index % 2 = 0 AS ranks_modes
    FROM graded_samples
    WHERE series = $series AND NOT greedy AND in_first_round AND correct AND mode IS NOT NULL
),
second_mode AS (
    -- without these, the share of the leading mode is always 1
    SELECT problem_id
    FROM correct_samples
    GROUP BY problem_id
    HAVING count(DISTINCT mode) > 1
),
base_rank AS (
    SELECT
        problem_id,
        mode,
        row_number() OVER (PARTITION BY problem_id ORDER BY count(*) DESC, mode) AS position
    FROM correct_samples
    WHERE ranks_modes
    GROUP BY problem_id, mode
),
placed AS (
    SELECT
        s.checkpoint_id,
        s.step,
        s.problem_id,
        least(coalesce(r.position, 3), 3) AS place  -- a mode that the base's even half does not show is 'other'
    FROM correct_samples AS s
    LEFT JOIN base_rank AS r USING (problem_id, mode)
    WHERE NOT s.ranks_modes AND s.problem_id IN (SELECT problem_id FROM base_rank)
),
scopes AS (
    SELECT * FROM (VALUES (1, 'dominant'), (2, 'second'), (3, 'other')) AS t (place, scope)
),
shares AS (
    SELECT
        p.checkpoint_id,
        p.step,
        p.problem_id,
        c.place,
        c.scope,
        avg((p.place = c.place)::INTEGER) AS share
    FROM placed AS p
    CROSS JOIN scopes AS c
    GROUP BY ALL
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        place,
        scope,
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
SELECT
    checkpoint_id,
    scope,
    NULL::INTEGER AS k,
    share AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, share - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, share + half_width) END AS high,
    n
FROM moments
WHERE EXISTS (FROM second_mode)
ORDER BY step, place
"""


@in_sql(
    needs=("graded_samples",),
    first_round=True,
    missing=f"no correct sample of the base has a named mode, or {ONE_MODE}",
    title="Mode shares",
    unit="share of samples",
    section="modes",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="share of correct samples", y_range=(0.0, 1.0)),
)
def mode_share() -> str:
    """Mode shares: correct samples split between the base's leading mode and the others.

    Meaning: the share of each mode among a problem's correct samples, averaged over problems with a correct sample.
    Scope ``dominant`` is the most frequent mode under the base, ``second`` the base's second mode, ``other`` all other
    modes. The three sum to 1. A dominant share that rises to 1 is collapse onto the base's preference.
    Unit: share of samples. The base's even-numbered samples rank the modes, and its own shares are computed from its
    odd-numbered samples. If the same samples were used for both, the leading mode would look too frequent by chance,
    and would seem to lose share even if nothing changed. 95 % normal interval over problems with a variance floor, for
    at least 30 problems. n counts problems.
    Limits: problems without a correct sample among the base's even-numbered samples, or at the checkpoint, are
    excluded. So checkpoints cover different problems; n counts them. The verifier must name the mode of a solution. The
    shares are unknown if no problem has samples of two correct modes at any checkpoint, for example because the
    verifier's modes are the answers.
    Source: on-policy learning favours responses that the base finds likely, [C] (The Reasoning Boundary Paradox),
    section 5; the split is ours.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": ["base"] * 4 + ["late"] * 4,
    ...     "step": [0] * 4 + [20] * 4, "is_base": [True] * 4 + [False] * 4, "greedy": False, "in_first_round": True,
    ...     "problem_id": "q", "sample_index": [0, 1, 2, 3] * 2, "correct": True,
    ...     "mode": ["a", "a", "a", "b"] + ["b", "b", "b", "a"]})
    >>> [(row[0], row[1], row[3]) for row in duckdb.execute(mode_share.sql, {"series": "run"}).fetchall()][:4]
    [('base', 'dominant', 0.5), ('base', 'second', 0.0), ('base', 'other', 0.5), ('late', 'dominant', 0.25)]
    """
    return _SQL
