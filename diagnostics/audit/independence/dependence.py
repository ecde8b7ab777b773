"""Finds samples of a problem that are no independent draws, though none is a copy: batches that share something.

Of independent draws, any order is as likely as any other. So as many of a problem's right samples stand in one block of
its samples as in another, but for chance: of n samples, c of them right, the counts x of the m blocks of b have
sum (x - c / m)^2 = c (n - c) (m - 1) / (m (n - 1)) on average. Over that, times m - 1, and summed over problems and
checkpoints it is about a chi-squared number. It is asked at every block size that is a half, a quarter, … of the
samples, or 2: what batches share shows in blocks of their size and above. Samples that were shuffled afterwards do not
show it.

It matters beyond scatter: pass@k is unbiased for independent draws alone, and the more biased the fewer batches there
are, which differ between the base and a later checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool
from scipy.stats import chi2

from oversharp.diagnostics.store import Store

#: What is less likely than this, at any block size, is not taken for chance: once in so many audits.
_CHANCE = 1e-6
#: Where all right samples of so large a part of the problems stand in a row, they were sorted.
_SORTED = 0.5

_RIGHT = """
SELECT list(s.correct ORDER BY s.sample_index) AS correct
FROM graded_samples AS s
WHERE s.series = $series AND s.step = $step AND NOT s.greedy AND s.correct IS NOT NULL
GROUP BY s.checkpoint_id, s.problem_id
HAVING bool_or(s.correct) AND NOT bool_and(s.correct)
ORDER BY s.problem_id
"""

#: Of problems with right and wrong samples, whether each sample is right, in the order of their index.
Right = Bool[np.ndarray, "problem sample"]


def dependence_in_order(store: Store, series: str, steps: Sequence[int]) -> str | None:
    """See ``dependence``, of the checkpoints of ``steps`` together. Raises ``StoreError``."""
    found: list[Right] = []
    for step in steps:
        by_length: dict[int, list[np.ndarray]] = {}
        for right in store.frame(_RIGHT, series=series, step=step)["correct"]:
            by_length.setdefault(len(right), []).append(np.asarray(right, dtype=bool))
        found += [np.stack(rows) for rows in by_length.values()]
    return dependence(found)


def dependence(rights: Sequence[Right]) -> str | None:
    """How samples that stand together agree in being right, in words; None where chance makes them agree as much.

    None too where they were sorted by being right, so that their order says nothing.

    >>> rng = np.random.default_rng(0)
    >>> luck = rng.random((50, 8)) < 0.5
    >>> alone = rng.random((50, 64)) < 0.5
    >>> print(dependence([alone]))
    None
    >>> dependence([np.where(rng.random((50, 64)) < 0.5, np.repeat(luck, 8, axis=1), alone)])
    'their right ones among 16 in a row scatter 2.7 times as much as independent draws'
    """
    rights = [one for one in rights if one.shape[1] > 1]
    in_a_row = np.concatenate([_in_a_row(one) for one in rights]) if rights else np.zeros(0, dtype=bool)
    if in_a_row.any() and in_a_row.mean() > _SORTED:
        return None
    scatter: dict[int, list[tuple[float, int]]] = {}
    for one in rights:
        for size, part in _scatter(one):
            scatter.setdefault(size, []).append(part)
    found = []
    for size, parts in scatter.items():
        total, freedom = sum(part[0] for part in parts), sum(part[1] for part in parts)
        if chi2.sf(total, freedom) < _CHANCE / len(scatter):
            found.append((total / freedom, size))
    if not found:
        return None
    times, size = max(found)
    return f"their right ones among {size} in a row scatter {times:.1f} times as much as independent draws"


def _in_a_row(right: Right) -> Bool[np.ndarray, " problem"]:
    """Whether the right samples, or the wrong ones, stand in one row at an end, though there are several of both."""
    n_right = right.sum(axis=1)
    several = np.minimum(n_right, right.shape[1] - n_right) > 1
    return np.asarray((right[:, 1:] != right[:, :-1]).sum(axis=1)[several] == 1)


def _scatter(right: Right) -> Iterator[tuple[int, tuple[float, int]]]:
    """Block size, and what its counts scatter over what chance lets them, with the degrees of freedom."""
    n = right.shape[1]
    sizes = {n // parts for parts in (2**power for power in range(1, n.bit_length())) if n // parts >= 2}
    for size in sorted({2, *sizes} if n >= 4 else set()):
        blocks = n // size
        counts = right[:, : blocks * size].reshape(len(right), blocks, size).sum(axis=2)
        held = counts.sum(axis=1)
        mean, whole = held / blocks, blocks * size
        expected = held * (whole - held) / (blocks * (whole - 1))  # of the sum, for each degree of freedom
        told = expected > 0
        total = (((counts - mean[:, None]) ** 2).sum(axis=1)[told] / expected[told]).sum()
        yield size, (float(total), int(told.sum()) * (blocks - 1))
