"""Samples that follow one another are alike where batches share something, and not where they are drawn alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diagnostics.audit.counts import read_counts
from diagnostics.audit.dependence import correlation
from diagnostics.store import Store
from tests.audit.test_counts import plant


def _in_batches(size: int, agreement: float, *, n_problems: int = 100, n: int = 256, seed: int = 0) -> np.ndarray:
    """Whether each sample is right, with the correlation ``agreement`` between two of one batch."""
    rng = np.random.default_rng(seed)
    rate_P = rng.beta(0.6, 2, n_problems)[:, None]
    own_PN, shared_PB = rng.random((n_problems, n)) < rate_P, rng.random((n_problems, n // size)) < rate_P
    follows_PN = rng.random((n_problems, n)) < np.sqrt(agreement)
    return np.where(follows_PN, np.repeat(shared_PB, size, axis=1), own_PN)


def _of(right_PN: np.ndarray) -> float | None:
    told = right_PN[right_PN.any(axis=1) & ~right_PN.all(axis=1)]
    runs_P = 1 + (told[:, 1:] != told[:, :-1]).sum(axis=1)
    return correlation(np.full(len(told), told.shape[1]), told.sum(axis=1), runs_P)


def test_batches_that_share_their_luck_are_seen_and_their_correlation_is_right() -> None:
    # 7 of 8 neighbours are of one batch
    assert _of(_in_batches(8, 0.1)) == pytest.approx(0.1 * 7 / 8, abs=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_independent_samples_are_not_accused(seed: int) -> None:
    assert _of(_in_batches(8, 0.0, seed=seed)) is None


def test_what_was_sorted_or_shuffled_tells_nothing() -> None:
    batches = _in_batches(8, 0.1)
    assert _of(np.sort(batches, axis=1)) is None
    assert _of(np.random.default_rng(0).permuted(batches, axis=1)) is None


@pytest.mark.parametrize(("agreement", "seen"), [(0.3, True), (0.0, False)])
def test_the_store_is_read_in_the_order_of_the_samples(tmp_path: Path, agreement: float, seen: bool) -> None:
    letters = {
        (problem, step): "".join("a" if right else "." for right in row)
        for step in (0, 20)
        for problem, row in enumerate(_in_batches(8, agreement, n_problems=20, n=64, seed=step))
    }
    with Store.open(tmp_path / "audit.duckdb") as store:
        counts = read_counts(store, plant(store, letters, n=64), {}, {})
    assert (counts.correlation is not None) == seen
