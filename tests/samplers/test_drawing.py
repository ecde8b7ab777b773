from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from oversharp.diagnostics.samplers.contract import row_key
from oversharp.diagnostics.samplers.transformers import draw_tokens, uniform

MASK = (1 << 64) - 1


def splitmix64(seed: int, n: int) -> list[int]:
    """Return numbers of the published generator, computed with Python's integers."""
    state, numbers = seed & MASK, []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(z ^ (z >> 31))
    return numbers


@given(key=st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1))
@settings(max_examples=50)
def test_the_numbers_of_a_key_equal_splitmix64_seeded_with_it(key: int) -> None:
    drawn = [uniform(torch.tensor([key]), position).item() for position in range(4)]
    assert drawn == [(number >> 12) / 2**52 for number in splitmix64(key, 4)]


@pytest.mark.slow
def test_the_numbers_are_uniform_across_samples_and_across_positions() -> None:
    keys_B = torch.tensor([row_key(0, "weights", "problem", index) for index in range(4000)])
    assert kstest(uniform(keys_B, 0).numpy(), "uniform").pvalue > 0.01
    along_positions = np.array([uniform(keys_B[:1], position).item() for position in range(4000)])
    assert kstest(along_positions, "uniform").pvalue > 0.01
    first, second = uniform(keys_B, 0).numpy(), uniform(keys_B, 1).numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_every_part_of_a_rows_identity_changes_its_key() -> None:
    keys = {
        row_key(0, "weights", "problem", 0),
        row_key(1, "weights", "problem", 0),
        row_key(0, "other", "problem", 0),
        row_key(0, "weights", "other", 0),
        row_key(0, "weights", "problem", 1),
    }
    assert len(keys) == 5


def test_the_largest_number_never_draws_a_token_of_probability_zero() -> None:
    logits_BV = torch.tensor([[0.3, -torch.inf, 0.1, -torch.inf]]).expand(3, -1)
    uniform_B = torch.tensor([0.0, 0.5, 1 - 2**-52], dtype=torch.float64)
    assert draw_tokens(logits_BV, uniform_B).tolist() == [0, 0, 2]
