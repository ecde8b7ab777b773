"""Finds samples of a problem that are no independent draws, though none is a copy: batches that share something.

Of independent draws, any order is as likely as any other. So right and wrong ones follow one another in as many runs
as chance makes (Wald and Wolfowitz 1940, Ann. Math. Stat. 11:147): of n samples, c of them right, 1 + 2 c (n - c) / n
on average, with variance 2 c (n - c) (2 c (n - c) - n) / (n^2 (n - 1)). Where many fewer are seen, neighbours are
alike. Samples that were shuffled afterwards do not show it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from diagnostics.store import Store

#: So many standard errors of the number of runs are not taken for chance: one audit in three million.
_BEYOND_CHANCE = 5.0
#: Where so large a part of the problems that can tell has all its right samples in a row, they were sorted.
_SORTED = 0.5
#: A problem can tell where chance makes so many runs.
_TELLING_RUNS = 6.0

_RUNS = """
WITH samples AS (
    SELECT
        s.checkpoint_id,
        s.problem_id,
        s.correct,
        s.correct IS DISTINCT FROM
            lag(s.correct) OVER (PARTITION BY s.checkpoint_id, s.problem_id ORDER BY s.sample_index) AS starts
    FROM graded_samples AS s
    WHERE s.series = $series AND NOT s.greedy AND s.correct IS NOT NULL AND list_contains($steps::INTEGER[], s.step)
)
SELECT count(*) AS n, count(*) FILTER (correct) AS n_correct, count(*) FILTER (starts) AS n_runs
FROM samples
GROUP BY checkpoint_id, problem_id
HAVING n_correct > 0 AND n_correct < n
ORDER BY checkpoint_id, problem_id
"""


def correlation_in_order(store: Store, series: str, steps: Sequence[int]) -> float | None:
    """See ``correlation``, of the checkpoints of ``steps`` together. Raises ``StoreError``."""
    rows = store.frame(_RUNS, series=series, steps=list(steps))
    return correlation(*(rows[name].to_numpy(dtype=np.int64) for name in ("n", "n_correct", "n_runs")))


def correlation(
    n_X: Int[np.ndarray, " problem"], correct_X: Int[np.ndarray, " problem"], runs_X: Int[np.ndarray, " problem"]
) -> float | None:
    """How far neighbouring samples agree in being right, a correlation; None where chance makes them agree as much.

    Of every problem: its samples, the right ones, and the runs in which right and wrong ones follow one another. None
    too where the samples were sorted by being right, so that their order says nothing.

    >>> correlation(np.full(50, 64), np.full(50, 32), np.full(50, 26))
    0.21875
    >>> print(correlation(np.full(50, 64), np.full(50, 32), np.full(50, 33)))
    None
    """
    pairs_X = 2.0 * correct_X * (n_X - correct_X)
    mean_X = 1 + pairs_X / n_X
    sorted_X = _sorted(mean_X, runs_X)
    variance = float((pairs_X * (pairs_X - n_X) / (n_X**2 * np.maximum(n_X - 1.0, 1.0))).sum())
    fewer = float((mean_X - runs_X).sum())
    if (sorted_X.any() and sorted_X.mean() > _SORTED) or fewer <= _BEYOND_CHANCE * np.sqrt(variance):
        return None
    return fewer / float((mean_X - 1).sum())


def _sorted(mean_X: Float[np.ndarray, " problem"], runs_X: Int[np.ndarray, " problem"]) -> Bool[np.ndarray, " telling"]:
    return np.asarray(runs_X[mean_X >= _TELLING_RUNS] <= 2)
