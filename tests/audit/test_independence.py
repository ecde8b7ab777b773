"""Dependent and copied samples are found; independent draws, and a model that repeats itself, are not reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oversharp.diagnostics.audit import independence
from oversharp.diagnostics.audit.counts.series import read_counts
from oversharp.diagnostics.audit.independence import dependence_in_order, describe_dependence, describe_repeats
from oversharp.diagnostics.store import Store
from tests.audit.test_counts import plant

N_PROBLEMS, N = 30, 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


def _independent(rng: np.random.Generator, n: int = N, n_texts: int = 50) -> np.ndarray:
    """Hashes of responses, a few likely and most of them rare."""
    share = 1 / np.arange(1, n_texts + 1)
    return rng.choice(n_texts, size=(N_PROBLEMS, n), p=share / share.sum()).astype(np.uint64)


def _shuffled(responses: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).permuted(responses, axis=1)


def _sorted(rng: np.random.Generator) -> np.ndarray:
    return np.sort(_independent(rng, n_texts=2), axis=1)


def _collapsed(rng: np.random.Generator) -> np.ndarray:
    """Nearly every response is the same one."""
    return (rng.random((N_PROBLEMS, N)) < 0.02).astype(np.uint64)


def _twice_at_two_problems(rng: np.random.Generator) -> np.ndarray:
    responses = _independent(rng)
    responses[:2, N // 2 :] = responses[:2, : N // 2]
    return responses


@pytest.mark.parametrize(
    ("copied", "said"),
    [
        (lambda once: np.tile(once(16), 2), "2 times the same 16 samples at 30 of 30"),
        (lambda once: np.tile(once(4), 8), "8 times the same 4 samples|2 times the same 16 samples"),
        (lambda once: np.tile(once(10), 4)[:, :35], "3 times the same 10 samples"),
        (lambda once: np.repeat(once(16), 2, axis=1), "every sample 2 times in a row at 30 of 30"),
        (lambda once: _shuffled(np.repeat(once(16), 2, axis=1)), "every sample 2 times, shuffled at 30 of 30"),
        (lambda once: _shuffled(np.repeat(once(4), 8, axis=1)), "every sample 8 times, shuffled at 30 of 30"),
        (lambda once: np.vstack([np.tile(once(16), 2)[:10], once(32)[10:]]), "2 times the same 16 samples at 10 of 30"),
    ],
    ids=["twice", "eight times", "a rest", "in a row", "shuffled", "eight times, shuffled", "a third of the problems"],
)
def test_copies_in_blocks_are_found(copied: Callable[..., np.ndarray], said: str) -> None:
    rng = np.random.default_rng(1)
    why = describe_repeats(copied(lambda n: _independent(rng, n)))
    assert why is not None
    assert re.match(said, why)


@pytest.mark.parametrize("drawn", [_independent, _sorted, _collapsed, _twice_at_two_problems])
@pytest.mark.parametrize("seed", range(5))
def test_models_that_repeat_themselves_are_left_alone(drawn: Callable[..., np.ndarray], seed: int) -> None:
    assert describe_repeats(drawn(np.random.default_rng(seed))) is None


@pytest.mark.parametrize("seed", [57, 66, 69])
def test_answers_that_a_tool_sorted_are_no_copies_though_many_counts_can_be_divided(seed: int) -> None:
    rng = np.random.default_rng([64, 200, seed, 6])
    assert describe_repeats(np.sort(rng.choice(2, size=(200, 64), p=[2 / 3, 1 / 3]).astype(np.uint64), axis=1)) is None


def _letters(rng: np.random.Generator, n: int = N) -> dict[int, str]:
    """Responses to each problem, of which none says much about another."""
    return {problem: "".join(rng.choice(list("ABCDEFGHIJKLM......"), size=n)) for problem in range(N_PROBLEMS)}


@pytest.mark.parametrize(("times", "found"), [(1, False), (2, True), (3, True)])
def test_shuffled_copies_show_in_right_and_wrong_alone(times: int, found: bool) -> None:
    once = np.random.default_rng(times).random((100, 96 // times)) < 0.4
    copied = _shuffled(np.repeat(once, times, axis=1)).astype(np.uint64)
    assert (describe_repeats(copied) is not None) == found


@pytest.mark.slow
def test_a_checkpoint_with_the_samples_of_another_is_left_out_and_its_clean_twin_is_not(store: Store) -> None:
    rng = np.random.default_rng(2)
    base, late, clean = _letters(rng, 2 * N), _letters(rng), _letters(rng)
    steps = {0: base, 20: {problem: text[:N] for problem, text in base.items()}, 40: late, 60: late, 80: clean}
    responses = {(problem, step): text for step, texts in steps.items() for problem, text in texts.items()}
    counts = read_counts(store, plant(store, responses, n=N, n_base=2 * N), {}, {})
    assert counts.base.why is None
    reasons = [one.why and one.why.partition(" at ")[0] for one in counts.trained]
    assert reasons == ["the same samples as checkpoint-0", None, "the same samples as checkpoint-40", None]


@pytest.mark.slow
def test_responses_that_no_model_gives_twice_show_copies_in_any_order(store: Store) -> None:
    rng = np.random.default_rng(3)
    responses = {(problem, step): text for step in (0, 20) for problem, text in _letters(rng).items()}
    key = plant(store, responses, n=N)
    assert [one.why for one in read_counts(store, key, {}, {}).trained] == [None]  # short ones, of log-probability -1
    store._database.rows("UPDATE samples SET logp_sum_raw = -200 WHERE checkpoint_id = 'hash20' AND text IN ('A', 'B')")
    (late,) = read_counts(store, key, {}, {}).trained
    assert late.why is not None
    assert "repeat another, which does not happen with independent draws" in late.why
    store._database.rows("UPDATE settings SET temperature = 0.6")  # what was drawn has other probabilities
    assert [one.why for one in read_counts(store, key, {}, {}).trained] == [None]


@pytest.mark.slow
def test_a_base_of_copies_leaves_nothing_to_compare_with(store: Store) -> None:
    rng = np.random.default_rng(4)
    twice = {(problem, 0): 2 * text for problem, text in _letters(rng, N // 2).items()}
    late = {(problem, 20): text for problem, text in _letters(rng).items()}
    counts = read_counts(store, plant(store, {**twice, **late}, n=N), {}, {})
    assert counts.base.why is not None
    assert counts.base.why.startswith("2 times the same 16 samples at 30 of 30 problems: identical seeds")
    assert counts.trained[0].why is None


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
    found = describe_dependence([_in_batches(size, agreement, seed=seed) for seed in range(4)])
    assert found is not None
    told = float(found.split(" varies ")[1].split(" times")[0])
    assert told == pytest.approx(times, rel=0.25)


@pytest.mark.parametrize("n", [256, 30, 5, 1])
def test_independent_samples_are_not_accused(n: int) -> None:
    for seed in range(50):
        assert (
            describe_dependence([_in_batches(1, 0.0, n=n, seed=seed), _in_batches(1, 0.0, n=n, seed=1000 + seed)])
            is None
        )
    assert describe_dependence([]) is None
    assert describe_dependence([np.eye(4, dtype=bool)]) is None  # one right sample each: nothing can stand together


def test_what_was_sorted_or_shuffled_tells_nothing() -> None:
    batches = _in_batches(8, 0.1)
    assert describe_dependence([np.sort(batches, axis=1)]) is None
    assert describe_dependence([np.random.default_rng(0).permuted(batches, axis=1)]) is None


@pytest.mark.slow
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


def _plant_rounds(store: Store, right_PN: np.ndarray, *, first: int, enough: int) -> None:
    """Plant the samples up to the round at which each problem stops; the base has as many."""
    letters = {}
    for problem, row in enumerate(right_PN):
        n = first
        while n < len(row) and row[:n].sum() < enough:
            n *= 2
        letters[problem] = "".join("a" if right else "." for right in row[:n])
    responses = {(problem, step): text for problem, text in letters.items() for step in (0, 20)}
    plant(store, responses, n=right_PN.shape[1], planned={cell: len(text) for cell, text in responses.items()})


@pytest.mark.slow
def test_problems_that_stop_when_they_are_solved_are_no_dependent_samples(store: Store) -> None:
    rng = np.random.default_rng(5)
    _plant_rounds(store, rng.random((900, 64)) < 0.15, first=4, enough=1)
    assert dependence_in_order(store, "run", [20], 4) is None
    # over all samples, the first half of a problem that stops later has no correct one
    assert dependence_in_order(store, "run", [20]) is not None


@pytest.mark.slow
def test_batches_that_share_their_luck_show_within_the_rounds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right_PN = np.vstack([_in_batches(8, 0.5, n=64, seed=seed) for seed in range(3)])
    _plant_rounds(store, right_PN, first=16, enough=40)
    found = dependence_in_order(store, "run", [20], 16)
    assert found is not None
    monkeypatch.setattr(independence, "_STEPS_PER_QUERY", 1)
    assert dependence_in_order(store, "run", [10, 20], 16) == found  # step 10 has no samples
