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

>>> from dataclasses import replace
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> greedy = tiny_evidence("greedy_grades", "checkpoint_id problem_id correct", [
...     ("base", "q1", True), ("base", "q2", False), ("base", "q3", False)])
>>> drawn = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct n_planned", [
...     ("base", "q1", 1, 1, 1), ("base", "q2", 1, 0, 1), ("base", "q3", 1, 1, 1)])
>>> evidence = replace(greedy, frames={**greedy.frames, **drawn.frames})
>>> [(f.scope, round(f.value, 3), f.n) for f in compute(evidence)]  # one hit and one miss in each direction
[('all', 0.667, 3), ('highly_solvable', 0.667, 3)]
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.units import Interval

Z = 1.959964
LEAST_PROBLEMS = 30


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint; unknown where a problem lacks its greedy response or samples, or F1 is 0/0."""
    problems = _problems(evidence.frames["greedy_grades"], evidence.frames["problem_counts"])
    n_problems = problems["problem_id"].nunique()
    findings: list[Finding] = []
    for checkpoint_id in checkpoint_ids(evidence):
        here = problems[(problems["checkpoint_id"] == checkpoint_id) & problems["complete"]]
        if len(here) < n_problems or not n_problems:
            findings.append(unknown(MEASURE, checkpoint_id, MEASURE.missing))
            continue
        greedy_P = here["greedy_correct"].to_numpy(dtype=bool)
        solvable_P = here["solvable"].to_numpy(dtype=bool)
        for scope, predicted_P, positive_P in (
            ("all", ~greedy_P, ~solvable_P),
            ("highly_solvable", greedy_P, solvable_P),
        ):
            interval = f1_interval(predicted_P, positive_P)
            findings.append(
                replace(unknown(MEASURE, checkpoint_id, MEASURE.missing, scope=scope), n=n_problems)
                if interval is None
                else known(MEASURE, checkpoint_id, interval, scope=scope)
            )
    return findings


def f1_interval(predicted_P: Bool[np.ndarray, " problem"], positive_P: Bool[np.ndarray, " problem"]) -> Interval | None:
    """F1 over problems, with its interval from 30 of them on; None where it is 0/0.

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
    # F1 = 2 TP / (2 TP + FP + FN), a ratio of two sums over problems, linearised
    above_P, below_P = 2 * (predicted_P & positive_P), predicted_P.astype(int) + positive_P
    deviation_P = (above_P - f1 * below_P) / (int(below_P.sum()) / n)
    # (P−1)s² + 1 over P²: one more problem that deviates by a full point
    half_width = Z * math.sqrt((n - 1) * _variance(deviation_P) + 1) / n
    return Interval(mean=f1, low=max(0.0, f1 - half_width), high=min(1.0, f1 + half_width), n=n)


def _problems(greedy: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """Each problem of each checkpoint, in the order of problem ids: whether greedy solved it, whether it is solvable
    at a rate of 0.6, and whether its responses are complete."""
    keys = ["checkpoint_id", "problem_id"]
    solved = greedy[[*keys, "correct"]].rename(columns={"correct": "greedy_correct"})
    table = solved.merge(drawn[[*keys, "n", "n_correct", "n_planned"]], on=keys, how="outer").sort_values(keys)
    table["complete"] = table["greedy_correct"].notna() & (table["n"] == table["n_planned"])
    table["solvable"] = 5 * table["n_correct"] >= 3 * table["n"]  # a rate of 0.6 or more, in whole numbers
    return table


def _variance(values_P: Float[np.ndarray, " problem"]) -> float:
    """The sample variance, one problem after the other as SQL's var_samp has it, to the last bit (Welford 1962)."""
    mean = squares = 0.0
    for count, value in enumerate(values_P.tolist(), start=1):
        before, mean = mean, mean + (value - mean) / count
        squares += (value - mean) * (value - before)
    return squares / (len(values_P) - 1)


MEASURE = Measure(
    name="greedy_failure_f1",
    title="Greedy failure as a filter (F1)",
    unit="F1 score",
    section="dynamics",
    needs=("greedy_grades", "problem_counts"),
    missing="some problem lacks its greedy response or planned samples, "
    "or F1 is 0/0 because no problem is of the kind to be found and none is predicted to be",
    plot=Plot(x="step", group="scope", y_label="F1 score", y_range=(0.0, 1.0)),
    compute=compute,
)
