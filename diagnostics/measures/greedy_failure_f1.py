"""Greedy failure as a filter: how well one greedy response tells hard problems from solvable ones.

Meaning: F1, the harmonic mean of precision and recall, of a prediction from the greedy response alone. Scope ``all``:
"greedy failed" predicts a success rate below 0.6. Scope ``highly_solvable``: "greedy is correct" predicts a success
rate of at least 0.6, the direction of the paper. A training method that learns only where greedy fails needs both.
Unit: F1 score, 0 to 1. 95 % normal interval over problems (ratio estimator with a variance floor), from 30 problems on;
n counts problems. The success rate is that of the samples which a problem has at every checkpoint.
Limits: F1 rises with the share of positives alone: a filter that always says yes reaches 2s/(1+s) at share s. The paper
takes 16 samples at temperature 0.6 and top-p 0.95; here they are the audit's, at its temperature and top-p, so levels
differ from Table 5. Few samples mislabel problems near 0.6. Where no problem is positive and none is predicted to be,
F1 is 0/0 and unknown.
Source: [C] (The Reasoning Boundary Paradox), appendix K and Table 5.

>>> import duckdb, pandas as pd
>>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "common": True,
...     "greedy": [True, False] * 3, "problem_id": ["q1", "q1", "q2", "q2", "q3", "q3"], "n_common": 1,
...     "correct": [True, True, False, False, False, True]})
>>> rows = duckdb.execute(MEASURE.sql, {"series": "run"}).fetchall()
>>> [(row[1], round(row[3], 3), row[6]) for row in rows]  # one hit and one miss in each direction
[('all', 0.667, 3), ('highly_solvable', 0.667, 3)]
"""

from __future__ import annotations

from diagnostics.measures.contract import Measure, Plot

SQL = """
WITH problems AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        bool_or(correct) FILTER (greedy) AS greedy_correct,
        count(*) FILTER (NOT greedy AND common) AS n,
        count(*) FILTER (NOT greedy AND common AND correct) AS n_correct,
        any_value(n_common) AS n_planned
    FROM graded_samples
    WHERE series = $series
    GROUP BY checkpoint_id, step, problem_id
),
complete AS (
    SELECT checkpoint_id
    FROM problems
    WHERE greedy_correct IS NOT NULL AND n = n_planned
    GROUP BY checkpoint_id
    HAVING count(*) = (SELECT count(DISTINCT problem_id) FROM problems)
),
judged AS (
    SELECT
        checkpoint_id,
        step,
        problem_id,
        greedy_correct,
        5 * n_correct >= 3 * n AS solvable  -- a rate of 0.6 or more, in whole numbers
    FROM problems
    SEMI JOIN complete USING (checkpoint_id)
),
predictions AS (
    SELECT checkpoint_id, step, problem_id, 'all' AS scope, NOT greedy_correct AS predicted, NOT solvable AS positive
    FROM judged
    UNION ALL
    SELECT checkpoint_id, step, problem_id, 'highly_solvable', greedy_correct, solvable
    FROM judged
),
-- F1 = 2 TP / (2 TP + FP + FN), a ratio of two sums over problems
parts AS (
    SELECT
        *,
        2 * (predicted AND positive)::INTEGER AS above,
        predicted::INTEGER + positive::INTEGER AS below
    FROM predictions
),
ratios AS (
    SELECT
        checkpoint_id,
        step,
        scope,
        count(*) AS n,
        sum(above) / nullif(sum(below), 0) AS f1,
        sum(below) / count(*) AS mean_below
    FROM parts
    GROUP BY ALL
),
moments AS (
    SELECT
        r.checkpoint_id,
        r.step,
        r.scope,
        r.n,
        r.f1,
        -- linearised; (P−1)s² + 1 over P²: one more problem that deviates by a full point
        CASE
            WHEN r.n >= 30
            THEN 1.959964 * sqrt(
                (r.n - 1) * var_samp((p.above - r.f1 * p.below) / r.mean_below ORDER BY p.problem_id) + 1
            ) / r.n
        END AS half_width
    FROM ratios AS r
    JOIN parts AS p USING (checkpoint_id, step, scope)
    GROUP BY r.checkpoint_id, r.step, r.scope, r.n, r.f1, r.mean_below
)
SELECT
    checkpoint_id,
    scope,
    NULL::INTEGER AS k,
    f1 AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(0, f1 - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, f1 + half_width) END AS high,
    n
FROM moments
ORDER BY step, scope
"""

MEASURE = Measure(
    name="greedy_failure_f1",
    title="Greedy failure as a filter (F1)",
    unit="F1 score",
    section="dynamics",
    needs=("graded_samples",),
    missing="some problem lacks its greedy response or planned samples, "
    "or F1 is 0/0 because no problem is of the kind to be found and none is predicted to be",
    plot=Plot(x="step", group="scope", y_label="F1 score", y_range=(0.0, 1.0)),
    sql=SQL,
)
