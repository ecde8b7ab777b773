from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oversharp.trainers.seeds import batch_positions, stream_seed


@given(st.integers(1, 20), st.integers(1, 30), st.integers(0, 3))
def test_every_problem_occurs_once_per_epoch(n_problems: int, batch_prompts: int, seed: int) -> None:
    steps = n_problems  # whole epochs: steps * batch_prompts is a multiple of n_problems
    drawn = [
        position
        for step in range(1, steps + 1)
        for position in batch_positions(seed, step, n_problems=n_problems, batch_prompts=batch_prompts)
    ]
    for start in range(0, len(drawn), n_problems):
        assert sorted(drawn[start : start + n_problems]) == list(range(n_problems))


def test_epochs_and_seeds_have_different_orders() -> None:
    def order(seed: int, step: int) -> list[int]:
        return batch_positions(seed, step, n_problems=50, batch_prompts=50)

    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


def test_streams_of_different_purpose_step_or_seed_differ() -> None:
    seeds = {stream_seed(seed, purpose, step) for seed in range(3) for purpose in ("a", "b") for step in range(3)}
    assert len(seeds) == 18
