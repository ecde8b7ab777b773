"""Two log-probabilities of the same response: how far apart they are per token, on average and at worst."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from diagnostics.measures._findings import known, unknown
from diagnostics.measures.contract import Measure
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import Interval, mean_interval

SCOPES = ("all", "max")


def unknown_gaps(measure: Measure, checkpoint_id: str, why: str) -> list[Finding]:
    """Both scopes without a value."""
    return [unknown(measure, checkpoint_id, why, scope=scope) for scope in SCOPES]


def gap_findings(measure: Measure, checkpoint_id: str, rows: pd.DataFrame, one: str, other: str) -> list[Finding]:
    """Scope ``all``: mean of |one − other| / n_tokens within a problem, then over problems; ``max``: the largest.

    ``rows`` has the columns problem_id, n_tokens and the two log-probability sums in nats. Unknown where one of the
    two is infinite.
    """
    gap = (rows[one] - rows[other]).abs() / rows["n_tokens"]
    # Two responses of probability 0 differ by −inf − −inf, which is no number either.
    n_broken = int((~np.isfinite(gap)).sum())
    if n_broken:
        why = f"{n_broken} of {len(gap)} responses have probability 0 here by one of the two; check the weights"
        return unknown_gaps(measure, checkpoint_id, why)
    per_problem_P = gap.groupby(rows["problem_id"]).mean().to_numpy(dtype=np.float64)
    largest = Interval(mean=float(gap.max()), low=None, high=None, n=len(gap))
    return [
        known(measure, checkpoint_id, mean_interval(per_problem_P, bounds=(0.0, math.inf))),
        known(measure, checkpoint_id, largest, scope="max"),
    ]
