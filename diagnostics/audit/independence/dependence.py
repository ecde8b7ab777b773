"""Detects dependent samples of a problem that are no copies: batches whose members are correlated.

All orders of independent draws are equally likely. So the counts x of correct samples in the m blocks of b of a
problem's n samples, c of them correct, have sum (x - c / m)^2 = c (n - c) (m - 1) / (m (n - 1)) on average. The sum
divided by that, times m - 1 and summed over problems and checkpoints, is about chi-squared. It is tested at block sizes
of a half, a quarter, … of the samples, and 2: correlation within a batch shows in blocks of its size and above. Samples
that were shuffled afterwards do not show it.

Dependence matters beyond scatter: pass@k is unbiased for independent draws only. The fewer batches the larger the bias,
which differs between the base and a later checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool
from scipy.stats import chi2

from oversharp.diagnostics.store import Store

#: Significance level over all block sizes, per audit.
_CHANCE = 1e-6
#: Samples were sorted where all correct ones are adjacent at more than this share of the problems.
_SORTED = 0.5

_RIGHT = """
SELECT list(s.correct ORDER BY s.sample_index) AS correct
FROM graded_samples AS s
WHERE s.series = $series AND s.step = $step AND NOT s.greedy AND s.correct IS NOT NULL
GROUP BY s.checkpoint_id, s.problem_id
HAVING bool_or(s.correct) AND NOT bool_and(s.correct)
ORDER BY s.problem_id
"""

#: Whether each sample is correct, in index order, of problems with correct and wrong samples.
Right = Bool[np.ndarray, "problem sample"]


def dependence_in_order(store: Store, series: str, steps: Sequence[int]) -> str | None:
    """Return ``dependence`` of the checkpoints of ``steps`` together. Raises ``StoreError``."""
    rights: list[Right] = []
    for step in steps:
        by_length: dict[int, list[np.ndarray]] = {}
        for right in store.frame(_RIGHT, series=series, step=step)["correct"]:
            by_length.setdefault(len(right), []).append(np.asarray(right, dtype=bool))
        rights += [np.stack(rows) for rows in by_length.values()]
    return dependence(rights)


def dependence(rights: Sequence[Right]) -> str | None:
    """Describe how adjacent samples agree in being correct; None where chance explains it.

    None too where they were sorted by correctness, so that their order carries no information.

    >>> rng = np.random.default_rng(0)
    >>> luck = rng.random((50, 8)) < 0.5
    >>> alone = rng.random((50, 64)) < 0.5
    >>> print(dependence([alone]))
    None
    >>> dependence([np.where(rng.random((50, 64)) < 0.5, np.repeat(luck, 8, axis=1), alone)])
    'their right ones among 16 in a row scatter 2.7 times as much as independent draws'
    """
    rights = [one for one in rights if one.shape[1] > 1]
    are_adjacent = np.concatenate([_is_sorted(one) for one in rights]) if rights else np.zeros(0, dtype=bool)
    if are_adjacent.any() and are_adjacent.mean() > _SORTED:
        return None
    scatter: dict[int, list[tuple[float, int]]] = {}
    for one in rights:
        for size, part in _block_scatter(one):
            scatter.setdefault(size, []).append(part)
    significant = []
    for size, parts in scatter.items():
        total, freedom = sum(part[0] for part in parts), sum(part[1] for part in parts)
        if chi2.sf(total, freedom) < _CHANCE / len(scatter):
            significant.append((total / freedom, size))
    if not significant:
        return None
    times, size = max(significant)
    return f"their right ones among {size} in a row scatter {times:.1f} times as much as independent draws"


def _is_sorted(right: Right) -> Bool[np.ndarray, " problem"]:
    """Return whether the correct samples, or the wrong ones, are adjacent at an end, with several of both."""
    n_right = right.sum(axis=1)
    several = np.minimum(n_right, right.shape[1] - n_right) > 1
    return np.asarray((right[:, 1:] != right[:, :-1]).sum(axis=1)[several] == 1)


def _block_scatter(right: Right) -> Iterator[tuple[int, tuple[float, int]]]:
    """Yield block size, and the scatter of its counts over the expected one, with the degrees of freedom."""
    n = right.shape[1]
    sizes = {n // parts for parts in (2**power for power in range(1, n.bit_length())) if n // parts >= 2}
    for size in sorted({2, *sizes} if n >= 4 else set()):
        blocks = n // size
        counts = right[:, : blocks * size].reshape(len(right), blocks, size).sum(axis=2)
        n_right = counts.sum(axis=1)
        mean, n_used = n_right / blocks, blocks * size
        expected = n_right * (n_used - n_right) / (blocks * (n_used - 1))  # of the sum, for each degree of freedom
        informative = expected > 0
        total = (((counts - mean[:, None]) ** 2).sum(axis=1)[informative] / expected[informative]).sum()
        yield size, (float(total), int(informative.sum()) * (blocks - 1))
