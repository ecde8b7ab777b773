"""Measures of greedy responses: accuracy, and prediction of hard problems."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results, Unknown
from oversharp.diagnostics.measures.declare import Input, Loaded, in_sql, per_checkpoint
from oversharp.diagnostics.statistics.units import Interval

_SQL = """
WITH greedy AS (
    SELECT
        checkpoint_id,
        step,
        count(*) AS n,
        avg(correct::INTEGER) AS share,
        1.959964 AS z  -- normal quantile of a two-sided 95 % interval
    FROM graded_samples
    WHERE series = $series AND greedy
    GROUP BY ALL
),
wilson AS (
    SELECT
        *,
        (share + z * z / (2 * n)) / (1 + z * z / n) AS centre,
        z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n) AS half_width
    FROM greedy
)
SELECT
    checkpoint_id,
    'all' AS scope,
    NULL::INTEGER AS k,
    share AS value,
    -- at 0 and 1 an end of the interval is the share itself, up to rounding
    greatest(0, least(share, centre - half_width)) AS low,
    least(1, greatest(share, centre + half_width)) AS high,
    n
FROM wilson
ORDER BY step
"""
Z = 1.959964
LEAST_PROBLEMS = 30
MISSING = (
    "at least one problem has no greedy response or not all planned samples, "
    "or F1 is 0/0, because no problem is positive and none is predicted to be"
)


@in_sql(
    needs=("graded_samples",),
    missing="no graded greedy responses",
    title="Greedy accuracy",
    unit="share of problems",
    section="coverage",
    rank=100,
    plot=Plot(x="step", y_label="greedy accuracy", y_range=(0.0, 1.0)),
)
def greedy_accuracy() -> str:
    """Greedy accuracy: the share of problems whose greedy response is correct.

    Meaning: the accuracy without sampling. It often rises while coverage falls, so it shows nothing about
    over-sharpening.
    Unit: share of problems. 95 % Wilson score interval over problems, with one greedy response each.
    Limits: temperature 0, computed as arg max. A response that could not be graded counts as not correct.
    Source: Wilson 1927, JASA 22:209, for the interval.

    >>> import duckdb, pandas as pd
    >>> graded_samples = pd.DataFrame({"series": "run", "checkpoint_id": "base", "step": 0, "greedy": True,
    ...     "problem_id": ["q1", "q2"], "correct": [True, False]})
    >>> row = duckdb.execute(greedy_accuracy.sql, {"series": "run"}).fetchone()
    >>> row[3], round(row[4], 3), round(row[5], 3), row[6]
    (0.5, 0.095, 0.905, 2)
    """
    return _SQL


def _load_problems(evidence: Evidence) -> Loaded[pd.DataFrame]:
    """Load the problems of each checkpoint that has all greedy responses and planned samples."""
    problems = _compare_with_samples(evidence.frames["greedy_grades"], evidence.frames["problem_counts"])
    n_problems = problems["problem_id"].nunique()
    complete = dict(iter(problems[problems["complete"]].groupby("checkpoint_id")))
    complete = {i: rows for i, rows in complete.items() if len(rows) == n_problems}
    return complete, {i: MISSING for i in evidence.checkpoint_ids if i not in complete}


@per_checkpoint(
    input=Input(load=_load_problems, needs=("greedy_grades", "problem_counts"), missing=MISSING, first_round=True),
    title="Greedy failure as a filter (F1)",
    unit="F1 score",
    section="dynamics",
    rank=40,
    plot=Plot(x="step", group="scope", y_label="F1 score", y_range=(0.0, 1.0)),
)
def greedy_failure_f1(problems: pd.DataFrame) -> Results:
    """Greedy failure as a filter: how well a greedy response separates hard problems.

    Meaning: the greedy response is used to predict whether a problem is hard. F1 is the harmonic mean of precision and
    recall of this prediction. In scope ``all``, a failed greedy response predicts a success rate below 0.6. In scope
    ``highly_solvable``, a correct greedy response predicts a success rate of at least 0.6, as in the paper. A training
    method that uses only problems on which greedy decoding fails needs a high F1 in both.
    Unit: F1 score, 0 to 1. 95 % normal interval over problems (ratio estimator with a variance floor), for at least 30
    problems. n counts problems. The success rate is estimated from the samples that a problem has at every checkpoint.
    Limits: F1 rises with the share s of positive problems. A filter that accepts every problem has F1 = 2s/(1+s). The
    paper uses 16 samples at temperature 0.6 and top-p 0.95. Here the audit's samples are used, at its temperature and
    top-p, so levels differ from Table 5. With few samples, problems with rates near 0.6 are labelled wrongly. If no
    problem is positive and none is predicted to be, F1 is 0/0 and unknown.
    Source: [C] (The Reasoning Boundary Paradox), appendix K and Table 5.

    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> greedy = tiny_evidence("greedy_grades", "checkpoint_id problem_id correct", [
    ...     ("base", "q1", True), ("base", "q2", False), ("base", "q3", False)])
    >>> drawn = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct n_planned", [
    ...     ("base", "q1", 1, 1, 1), ("base", "q2", 1, 0, 1), ("base", "q3", 1, 1, 1)])
    >>> evidence = combine_views(greedy, drawn)
    >>> [(f.scope, round(f.value, 3), f.n) for f in greedy_failure_f1(evidence)]  # one hit, one miss each
    [('all', 0.667, 3), ('highly_solvable', 0.667, 3)]
    """
    is_greedy_P = problems["greedy_correct"].to_numpy(dtype=bool)
    is_solvable_P = problems["solvable"].to_numpy(dtype=bool)
    return {
        "all": f1_interval(~is_greedy_P, ~is_solvable_P) or Unknown(why=MISSING, n=len(problems)),
        "highly_solvable": f1_interval(is_greedy_P, is_solvable_P) or Unknown(why=MISSING, n=len(problems)),
    }


def f1_interval(predicted_P: Bool[np.ndarray, " problem"], positive_P: Bool[np.ndarray, " problem"]) -> Interval | None:
    """Return F1 over problems, with an interval for at least 30 problems; None if F1 is 0/0.

    >>> f1_interval(np.array([True, True, False]), np.array([True, False, True])).mean  # 2·1 / (2·1 + 1 + 1)
    0.5
    >>> f1_interval(np.array([False]), np.array([False])) is None
    True
    """
    from sklearn.metrics import f1_score  # takes a second to import

    f1, n = float(f1_score(positive_P, predicted_P, zero_division=np.nan)), len(predicted_P)
    if math.isnan(f1):
        return None
    if n < LEAST_PROBLEMS:
        return Interval(mean=f1, low=None, high=None, n=n)
    # F1 = 2 TP / (2 TP + FP + FN) is a ratio of two sums over problems; its variance is that of the linearised ratio
    above_P, below_P = 2 * (predicted_P & positive_P), predicted_P.astype(int) + positive_P
    deviation_P = (above_P - f1 * below_P) / (int(below_P.sum()) / n)
    # variance ((P−1)s² + 1) / P²: the variance floor is one more problem that deviates by 1
    half_width = Z * math.sqrt((n - 1) * _variance(deviation_P) + 1) / n
    return Interval(mean=f1, low=max(0.0, f1 - half_width), high=min(1.0, f1 + half_width), n=n)


def _compare_with_samples(greedy: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """Return one row per checkpoint and problem: greedy_correct, solvable, complete.

    ``solvable`` means a success rate of at least 0.6. ``complete`` means that the greedy response and all planned
    samples exist.
    """
    keys = ["checkpoint_id", "problem_id"]
    solved = greedy[[*keys, "correct"]].rename(columns={"correct": "greedy_correct"})
    table = solved.merge(drawn[[*keys, "n", "n_correct", "n_planned"]], on=keys, how="outer").sort_values(keys)
    table["complete"] = table["greedy_correct"].notna() & (table["n"] == table["n_planned"])
    table["solvable"] = 5 * table["n_correct"] >= 3 * table["n"]  # a rate of at least 0.6, in integers
    return table


def _variance(values_P: Float[np.ndarray, " problem"]) -> float:
    """Return the sample variance, bit-identical to SQL's var_samp (Welford 1962)."""
    mean = squares = 0.0
    for count, value in enumerate(values_P.tolist(), start=1):
        before, mean = mean, mean + (value - mean) / count
        squares += (value - mean) * (value - before)
    return squares / (len(values_P) - 1)
