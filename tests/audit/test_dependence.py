"""Samples that stand together are alike where batches share something, and not where they are drawn alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oversharp.diagnostics.audit.counts import read_counts
from oversharp.diagnostics.audit.independence.dependence import dependence
from oversharp.diagnostics.store import Store
from tests.audit.test_counts import plant


def _in_batches(size: int, agreement: float, *, n_problems: int = 100, n: int = 256, seed: int = 0) -> np.ndarray:
    """Whether each sample is right, with the correlation ``agreement`` between two of one batch."""
    rng = np.random.default_rng(seed)
    rate_P = rng.beta(0.6, 2, n_problems)[:, None]
    own_PN, shared_PB = rng.random((n_problems, n)) < rate_P, rng.random((n_problems, n // size)) < rate_P
    follows_PN = rng.random((n_problems, n)) < np.sqrt(agreement)
    right = np.where(follows_PN, np.repeat(shared_PB, size, axis=1), own_PN)
    return right[right.any(axis=1) & ~right.all(axis=1)]


@pytest.mark.parametrize(
    ("size", "agreement", "times"),
    [
        (8, 0.1, 1.7),  # 1 + (8 - 1) 0.1 in blocks of the batches' size
        (64, 0.1, 7.3),
        (64, 0.02, 2.3),
        (2, 0.3, 1.3),
    ],
)
def test_batches_that_share_their_luck_are_seen_by_how_their_blocks_scatter(
    size: int, agreement: float, times: float
) -> None:
    found = dependence([_in_batches(size, agreement, seed=seed) for seed in range(4)])
    assert found is not None
    told = float(found.split(" scatter ")[1].split(" times")[0])
    assert told == pytest.approx(times, rel=0.25)


@pytest.mark.parametrize("n", [256, 30, 5, 1])
def test_independent_samples_are_not_accused(n: int) -> None:
    for seed in range(50):
        assert dependence([_in_batches(1, 0.0, n=n, seed=seed), _in_batches(1, 0.0, n=n, seed=1000 + seed)]) is None
    assert dependence([]) is None
    assert dependence([np.eye(4, dtype=bool)]) is None  # one right sample each: nothing can stand together


def test_what_was_sorted_or_shuffled_tells_nothing() -> None:
    batches = _in_batches(8, 0.1)
    assert dependence([np.sort(batches, axis=1)]) is None
    assert dependence([np.random.default_rng(0).permuted(batches, axis=1)]) is None


@pytest.mark.parametrize(("agreement", "seen"), [(0.3, True), (0.0, False)])
def test_the_store_is_read_in_the_order_of_the_samples(tmp_path: Path, agreement: float, seen: bool) -> None:
    letters = {
        (problem, step): "".join("a" if right else "." for right in row)
        for step in (0, 20)
        for problem, row in enumerate(_in_batches(8, agreement, n_problems=40, n=64, seed=step)[:20])
    }
    with Store.open(tmp_path / "audit.duckdb") as store:
        counts = read_counts(store, plant(store, letters, n=64), {}, {})
    assert (counts.dependence is not None) == seen
