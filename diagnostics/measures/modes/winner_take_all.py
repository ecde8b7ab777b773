"""Measure of the gain in success rate, by the base's success rate."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot
from oversharp.diagnostics.measures.declare import in_sql

_SQL = """
WITH counts AS (
    SELECT
        checkpoint_id,
        step,
        is_base,
        problem_id,
        n_planned,
        count(*) AS n_drawn,
        count(*) FILTER (in_first_round) AS n,
        count(*) FILTER (correct AND in_first_round) AS n_correct,
        count(*) FILTER (sample_index % 2 = 0 AND in_first_round) AS n_even,
        count(*) FILTER (correct AND sample_index % 2 = 0 AND in_first_round) AS n_even_correct
    FROM graded_samples
    WHERE series = $series AND NOT greedy
    GROUP BY ALL
),
complete AS (
    SELECT checkpoint_id
    FROM counts
    WHERE n_drawn = n_planned
    GROUP BY checkpoint_id
    HAVING count(*) = (SELECT count(DISTINCT problem_id) FROM counts)
),
usable AS (
    FROM counts SEMI JOIN complete USING (checkpoint_id)
),
base AS (
    SELECT
        problem_id,
        (10 * n_even_correct + n_even - 1) // n_even AS decile,  -- rounded up: 0 means never, 10 above 90 %
        (n_correct - n_even_correct) / (n - n_even) AS success
    FROM usable
    WHERE is_base AND 0 < n_even AND n_even < n
),
gains AS (
    SELECT
        u.checkpoint_id,
        u.step,
        u.problem_id,
        b.decile,
        u.n_correct / u.n - b.success AS gain
    FROM usable AS u
    JOIN base AS b USING (problem_id)
    WHERE NOT u.is_base
),
moments AS (
    SELECT
        checkpoint_id,
        step,
        decile,
        count(*) AS n,
        -- in a fixed order: a parallel sum of doubles is not reproducible
        avg(gain ORDER BY problem_id) AS gain,
        -- variance ((P−1)s² + 1) / P², with a floor of one more problem that deviates by 1
        sqrt((count(*) - 1) * var_samp(gain ORDER BY problem_id) + 1) / count(*) AS se
    FROM gains
    GROUP BY ALL
),
intervals AS (
    SELECT
        *,
        -- 97.5 % quantile of Student's t at n − 1 degrees of freedom, by Cornish and Fisher (Abramowitz and Stegun
        -- 26.7.5): within 1 % from 3 problems on; of 2 problems the interval is −1 … 1 either way
        CASE
            WHEN n > 1
            THEN se * (
                1.959964 + 2.372271 / (n - 1) + 2.822499 / (n - 1) ** 2
                + 2.555854 / (n - 1) ** 3 + 1.589536 / (n - 1) ** 4
            )
        END AS half_width
    FROM moments
)
SELECT
    checkpoint_id,
    CASE decile WHEN 0 THEN 'base 0' ELSE 'base ' || (10 * decile - 10) || '-' || (10 * decile) || '%' END AS scope,
    NULL::INTEGER AS k,
    gain AS value,
    CASE WHEN half_width IS NOT NULL THEN greatest(-1, gain - half_width) END AS low,
    CASE WHEN half_width IS NOT NULL THEN least(1, gain + half_width) END AS high,
    n
FROM intervals
ORDER BY step, decile
"""


@in_sql(
    needs=("graded_samples",),
    first_round=True,
    missing="the planned graded samples are incomplete here or under the base (which needs two per problem); "
    "run the audit again to complete them",
    title="Gain in success by base success",
    unit="probability",
    section="dynamics",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="gain in success rate"),
    signed=True,
    of_base=False,
)
def winner_take_all() -> str:
    """Winner-take-all: the gain in success rate, by how often the base solved the problem.

    Meaning: the success rate minus the base's success rate, averaged over problems that the base solved about equally
    often. Scope ``base 0`` contains the problems that the base never solved. Scopes ``base 0-10%`` to ``base 90-100%``
    are bins of the base's success rate, including their upper bound. Winner-take-all means that problems that were
    already solvable gain while hard problems lose.
    Unit: probability, signed. 95 % t interval over problems with a variance floor. n counts problems. The base has no
    finding. Problems are binned by the base's even-numbered samples, and the base's success rate is computed from its
    odd-numbered samples. If the same samples were used for both, lucky problems would seem to lose and unlucky problems
    to gain, even if nothing changed (regression to the mean).
    Limits: the bins use only half of the base's samples, so neighbouring bins mix. Problems with a rate near 1 cannot
    gain much. A bin without problems has no finding. A checkpoint with missing planned samples is unknown.
    Source: [C] (The Reasoning Boundary Paradox), section 5 (winner-take-all) and Eq 7; the bins and the split are ours.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": ["base"] * 4 + ["late"] * 4,
    ...     "step": [0] * 4 + [20] * 4, "is_base": [True] * 4 + [False] * 4, "greedy": False, "problem_id": "q",
    ...     "sample_index": [0, 1, 2, 3] * 2, "correct": [True, True, False, False] + [True] * 3 + [False],
    ...     "n_planned": 4, "in_first_round": True})
    >>> duckdb.execute(winner_take_all.sql, {"series": "run"}).fetchall()  # bin 1/2; gain 3/4 − 1/2
    [('late', 'base 40-50%', None, 0.25, None, None, 1)]
    """
    return _SQL
