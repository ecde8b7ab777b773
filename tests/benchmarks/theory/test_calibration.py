import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.theory.calibration import calibrated_sampling, inverse_success_advantages

ADVANTAGE_PG = np.array([[0.5, 0.5, 0.5, -1.5], [3.0, -1.0, -1.0, -1.0]])
CORRECT_PG = ADVANTAGE_PG > 0


def test_alpha_zero_changes_nothing_not_even_an_all_correct_group():
    assert inverse_success_advantages(ADVANTAGE_PG, CORRECT_PG, alpha=0.0).tolist() == ADVANTAGE_PG.tolist()
    all_correct_PG = np.ones((1, 2))
    assert inverse_success_advantages(all_correct_PG, all_correct_PG > 0, alpha=0.0).tolist() == [[1.0, 1.0]]  # 0⁰
    assert inverse_success_advantages(all_correct_PG, all_correct_PG > 0, alpha=1.0).tolist() == [[0.0, 0.0]]


def test_a_least_bad_wrong_answer_is_raised_only_as_printed():
    advantage_PG, correct_PG = np.array([[1.5, -0.5, -0.5, -0.5]]), np.zeros((1, 4), dtype=bool)
    assert inverse_success_advantages(advantage_PG, correct_PG, alpha=1.0).tolist() == advantage_PG.tolist()
    printed_PG = inverse_success_advantages(advantage_PG, correct_PG, alpha=1.0, as_printed=True)
    assert printed_PG.tolist() == [[4.5, -0.5, -0.5, -0.5]]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.0, 3.0))
def test_scale_matching_keeps_the_mean_size_and_the_proportions(seed, alpha):
    rng = np.random.default_rng(seed)
    advantage_PG, correct_PG = rng.normal(size=(3, 8)), rng.random((3, 8)) < 0.5
    plain_PG = inverse_success_advantages(advantage_PG, correct_PG, alpha=alpha)
    matched_PG = inverse_success_advantages(advantage_PG, correct_PG, alpha=alpha, scale_matched=True)
    assert np.abs(matched_PG).mean() == pytest.approx(np.abs(advantage_PG).mean())
    scale = np.abs(advantage_PG).mean() / np.abs(plain_PG).mean()
    assert matched_PG == pytest.approx(scale * plain_PG)


def test_a_memory_of_the_policy_itself_flattens_it():
    logit_V = np.log([0.7, 0.2, 0.1])
    assert calibrated_sampling(logit_V, logit_V, mu=1.0) == pytest.approx([1 / 3] * 3)
    assert calibrated_sampling(logit_V, logit_V, mu=0.0) == pytest.approx([0.7, 0.2, 0.1])
    root_V = np.sqrt([0.7, 0.2, 0.1])
    assert calibrated_sampling(logit_V, logit_V, mu=0.5) == pytest.approx(root_V / root_V.sum())


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="alpha"):
        inverse_success_advantages(ADVANTAGE_PG, CORRECT_PG, alpha=-1.0)
    with pytest.raises(ValueError, match="the same shape"):
        inverse_success_advantages(ADVANTAGE_PG, CORRECT_PG[:1], alpha=1.0)
    with pytest.raises(ValueError, match="mu"):
        calibrated_sampling([0.0], [0.0], mu=-0.5)
    with pytest.raises(ValueError, match="memory_logit_V"):
        calibrated_sampling([0.0], [0.0, 1.0], mu=0.5)
